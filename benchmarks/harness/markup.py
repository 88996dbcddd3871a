"""HTML elements: plain text is escaped, markup from other elements is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str) -> Html:
    """Make an element of text, which is escaped, and ``Html``; ``class_`` is its class."""
    written = "".join(f' {key.rstrip("_")}="{escape(text)}"' for key, text in attributes.items())
    inner = "".join(text if isinstance(text, Html) else escape(text) for text in content)
    return Html(f"<{name}{written}>{inner}</{name}>\n")


def listed(lines: Iterable[str], kind: str = "ul") -> Html:
    """Make a list of lines: ``ul``, or numbered, ``ol``."""
    return element(kind, *(element("li", line) for line in lines))


def table(heads: Sequence[str], lines: Iterable[Sequence[Html]], words: int) -> Html:
    """Make a table that scrolls on its own if it is too wide.

    Args:
        heads: Heads of the columns.
        lines: Cells, made by `element`.
        words: Number of leading columns with words; the others are numbers.
    """
    head = [
        element("th", text, scope="col", class_="word" if place < words else "number")
        for place, text in enumerate(heads)
    ]
    body = [element("tr", *line) for line in lines]
    made = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    # Focusable, so that it can be scrolled by keyboard.
    return element("div", made, class_="wide", tabindex="0")


def details(summary: str, *content: str) -> Html:
    """Make a part that the reader can open."""
    return element("details", element("summary", summary), *content)


def document(title: str, style: str, *body: str, refresh_seconds: int | None = None) -> str:
    """Make a page that loads no other files.

    Args:
        title: Title of the page.
        style: CSS.
        body: Elements.
        refresh_seconds: The browser reloads the page after this time; None for never.
    """
    refresh = f'<meta http-equiv="refresh" content="{refresh_seconds}">'
    head = [
        Html('<meta charset="utf-8">\n'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        Html('<meta name="color-scheme" content="light dark">\n'),
        Html("" if refresh_seconds is None else f"{refresh}\n"),
        Html('<link rel="icon" href="data:,">\n'),  # Otherwise, browsers request one.
        element("title", title),
        Html(f"<style>\n{style}</style>\n"),
    ]
    content = element("head", *head) + element("body", *body)
    return f'<!DOCTYPE html>\n<html lang="en">\n{content}</html>\n'
