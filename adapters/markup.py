"""HTML by elements: plain text is escaped, text that an element made is taken as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str) -> Html:
    """An element.

    Args:
        name: Its tag.
        content: Text, which is escaped, and `Html`, which isn't.
        attributes: By name; ``class_`` is the attribute ``class``.
    """
    written = "".join(f' {key.rstrip("_")}="{escape(text)}"' for key, text in attributes.items())
    inner = "".join(text if isinstance(text, Html) else escape(text) for text in content)
    return Html(f"<{name}{written}>{inner}</{name}>\n")


def listed(lines: Iterable[str], kind: str = "ul") -> Html:
    """A list of lines: ``ul``, or numbered, ``ol``."""
    return element(kind, *(element("li", line) for line in lines))


def table(heads: Sequence[str], lines: Iterable[Sequence[Html]], words: int) -> Html:
    """A table that scrolls by itself if it is too wide.

    Args:
        heads: Of the columns.
        lines: Cells, made by `element`.
        words: How many of the first columns are words; the others are numbers.
    """
    head = [
        element("th", text, scope="col", class_="word" if place < words else "number")
        for place, text in enumerate(heads)
    ]
    body = [element("tr", *line) for line in lines]
    made = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    # Reachable by keyboard, too, as it may have to be scrolled.
    return element("div", made, class_="wide", tabindex="0")


def details(summary: str, *content: str) -> Html:
    """A part that the reader opens."""
    return element("details", element("summary", summary), *content)


def document(title: str, style: str, *body: str, refresh_seconds: int | None = None) -> str:
    """A page that asks for no other file.

    Args:
        title: Of the page.
        style: CSS.
        body: Elements.
        refresh_seconds: The browser loads it again after so long; None: never.
    """
    refresh = f'<meta http-equiv="refresh" content="{refresh_seconds}">'
    head = [
        Html('<meta charset="utf-8">\n'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        Html('<meta name="color-scheme" content="light dark">\n'),
        Html("" if refresh_seconds is None else f"{refresh}\n"),
        Html('<link rel="icon" href="data:,">\n'),  # Or a browser asks the server for one.
        element("title", title),
        Html(f"<style>\n{style}</style>\n"),
    ]
    content = element("head", *head) + element("body", *body)
    return f'<!DOCTYPE html>\n<html lang="en">\n{content}</html>\n'
