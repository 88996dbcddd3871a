"""HTML by elements: text is escaped, what an element made is taken as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str) -> Html:
    """An element; `class_` is the attribute `class`."""
    written = "".join(f' {key.rstrip("_")}="{escape(text)}"' for key, text in attributes.items())
    inner = "".join(text if isinstance(text, Html) else escape(text) for text in content)
    return Html(f"<{name}{written}>{inner}</{name}>\n")


def listed(lines: Iterable[str]) -> Html:
    """A list of lines."""
    return element("ul", *(element("li", line) for line in lines))


def table(heads: Sequence[str], lines: Iterable[Sequence[Html]], words: int) -> Html:
    """A table that scrolls by itself where it is too wide.

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
    # Reachable by keyboard, too, where it must be scrolled.
    return element("div", made, class_="wide", tabindex="0")


def details(summary: str, *content: str) -> Html:
    """What a reader opens."""
    return element("details", element("summary", summary), *content)
