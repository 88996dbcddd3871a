"""Pairs of bars, ours above the peer's, as one SVG that is readable by day and by night.

Each pair has a scale of its own, as units differ: its longer bar is as long as the longest of any
other pair. The picture has its own background, and both change with the reader's preference, so
that it can stand on any page::

    TFRecords of JPEGs into Keras                      2.7 times
    [#####################################] SafeSequence 4,745
    [##############] tf.data 1,789
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 640
_MARGIN, _BAR, _LINE, _GAP, _HEAD = 16, 18, 22, 14, 34
# What the longest bar leaves to the name and the number behind it.
_LONGEST = WIDTH - 2 * _MARGIN - 240
STYLE = """
.pairs { font: 15px system-ui, sans-serif; }
.pairs .paper { fill: #ffffff; } .pairs text { fill: #1b1b1b; }
.pairs .faint { fill: #5f6368; font-size: 13px; } .pairs .bold { font-weight: 600; }
.pairs .ours { fill: #0072b2; } .pairs .peer { fill: #9aa0a6; }
@media (prefers-color-scheme: dark) {
  .pairs .paper { fill: #161616; } .pairs text { fill: #e6e6e6; }
  .pairs .faint { fill: #a8adb2; } .pairs .ours { fill: #56b4e9; } .pairs .peer { fill: #70757a; }
}
"""


@dataclass(frozen=True)
class Bar:
    """One of a pair.

    Args:
        who: The loader.
        value: How long it is.
        shown: The value with its unit, as it is to be read.
    """

    who: str
    value: float
    shown: str


@dataclass(frozen=True)
class Pair:
    """Ours and the peer's.

    Args:
        work: What both did.
        verdict: At the right of it, such as "2.7 times".
        ours: This package's.
        peer: The other one.
    """

    work: str
    verdict: str
    ours: Bar
    peer: Bar


def drawn(title: str, pairs: Sequence[Pair], note: str = "") -> str:
    """The SVG's text.

    Args:
        title: The first line, and what a screen reader says first.
        pairs: From top to bottom.
        note: A line or several in small letters at the bottom.
    """
    parts, y = [], _MARGIN + 14
    parts.append(_text(_MARGIN, y, title, "bold"))
    y = _HEAD + _MARGIN
    for pair in pairs:
        longest = max(pair.ours.value, pair.peer.value)
        y += 12
        parts.append(_text(_MARGIN, y, pair.work))
        parts.append(_text(WIDTH - _MARGIN, y, pair.verdict, "bold", anchor="end"))
        y += 8
        for kind, bar in (("ours", pair.ours), ("peer", pair.peer)):
            width = max(1.0, _LONGEST * bar.value / longest) if longest else 1.0
            parts.append(
                f'<rect class="{kind}" x="{_MARGIN}" y="{y}" width="{width:.1f}" '
                f'height="{_BAR}" rx="2"/>'
            )
            parts.append(_text(_MARGIN + width + 8, y + 14, f"{bar.who} {bar.shown}", "faint"))
            y += _LINE
        y += _GAP
    for line in note.splitlines():
        parts.append(_text(_MARGIN, y + 6, line, "faint"))
        y += _LINE
    height = y + _MARGIN // 2
    said = "; ".join(f"{pair.work}: {pair.verdict}" for pair in pairs)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pairs" role="img" '
        f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'aria-label="{escape(f"{title}. {said}")}">'
    )
    paper = f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", paper, *parts, "</svg>", ""])


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    if anchor:
        attributes += f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(words)}</text>'
