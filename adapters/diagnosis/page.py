"""A diagnosis as a self-contained HTML page.

From top to bottom: the result, the training loop's wait for each batch, the parts of the loader's
work with their ranges, the advice, and the report as text. The page follows the system's light or
dark theme and the width of the screen.
"""

from __future__ import annotations

from collections.abc import Iterator

from adapters.diagnosis.figures import NAMES, values_of
from adapters.diagnosis.report import PARTS, Diagnosis, headline
from adapters.markup import Html, details, document, element, listed, table

_BATCHES_PER_LINE, _LINES = 12, 6
# In SVG units; the drawing is scaled to the width of the page.
_WIDTH, _LINE, _BAR, _LABEL = 640, 34, 20, 44
_STYLE = """
:root { --paper: #fcfcfb; --ink: #1c1c1a; --soft: #62605b; --rule: #dddad3;
  --wait: #c2570c; --step: #2f6fb3; }
@media (prefers-color-scheme: dark) { :root { --paper: #191919; --ink: #ecebe8; --soft: #a4a19a;
  --rule: #3b3a37; --wait: #f08c3a; --step: #6aa7e8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
p, figcaption { margin: .3rem 0; }
figcaption, .soft, th { color: var(--soft); font-size: .9rem; font-weight: normal; }
figure { margin: 0; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
.wait { fill: var(--wait); } .step { fill: var(--step); } .rule { stroke: var(--soft); }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; }
.key.wait { background: var(--wait); } .key.step { background: var(--step); }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .3rem .5rem .3rem 0; text-align: left; border-top: 1px solid var(--rule); }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.meter { height: .5rem; border-radius: 2px; background: var(--step); min-width: 1px; }
.part { padding-left: 1rem; }
li { margin: .4rem 0; }
pre { overflow-x: auto; font-size: .8rem; line-height: 1.4; }
"""


def page_of(diagnosis: Diagnosis, title: str = "adapters doctor") -> str:
    """The page as HTML text.

    Args:
        diagnosis: The diagnosis to show.
        title: Title of the page, such as the script's name.
    """
    return document(title, _STYLE, *_body_of(diagnosis, title))


def _body_of(d: Diagnosis, title: str) -> Iterator[Html]:
    first, *more = headline(d)
    yield element("p", title, class_="soft")
    yield element("h1", first)
    for line in more:
        yield element("p", line)
    for name, lines in (("contradiction", d.contradictions), ("noise", d.noise)):
        for line in lines:
            yield element("p", element("strong", f"{name}:"), f" {line}")
    yield from _waits(d)
    yield from _parts(d)
    yield element("h2", "What to change")
    yield listed(d.advice, "ol")
    yield details("All of it as text", element("pre", str(d)))


# --- the waits ---


def _waits(d: Diagnosis) -> Iterator[Html]:
    """A chart of how long training waited for each of the last batches, in order."""
    yield element("h2", "Waits, batch by batch")
    if not d.waits_seconds or d.whole is None:
        reason = "Not measured: without a step, or as they aren't recorded here."
        yield element("p", reason, class_="soft")
        return
    waits = d.waits_seconds[-_BATCHES_PER_LINE * _LINES :]
    # The rest of the total is the step, which isn't timed for each batch.
    mean = sum(d.waits_seconds) / len(d.waits_seconds)
    step = max(d.whole - mean, 0.0)
    lines = [waits[at : at + _BATCHES_PER_LINE] for at in range(0, len(waits), _BATCHES_PER_LINE)]
    longest = max(sum(line) + step * len(line) for line in lines) or 1e-9
    height = _LINE * len(lines) + _BAR
    waited = sum(waits) / max(sum(waits) + step * len(waits), 1e-9)
    number = len(d.waits_seconds) - len(waits)
    drawn = [
        rectangle
        for place, line in enumerate(lines)
        for rectangle in _line(line, step, number + place * _BATCHES_PER_LINE, place, longest)
    ]
    ends = {"y": f"{height - 4}"}
    picture = element(
        "svg",
        *drawn,
        element("text", "0", x=f"{_LABEL}", **ends),
        element("text", _milliseconds(longest), x=f"{_WIDTH}", **ends, **{"text-anchor": "end"}),
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        **{"aria-label": f"The last {len(waits)} batches: {waited:.0%} of the time was waiting"},
    )
    caption = element(
        "figcaption",
        element("span", class_="key wait"),
        " training waits, ",
        element("span", class_="key step"),
        f" training works. The last {len(waits)} batches, {_BATCHES_PER_LINE} to a line; "
        f"{waited:.0%} of the time was waiting. How long it works is the mean, as only waits are "
        "known for each batch.",
    )
    yield element("figure", picture, caption)


def _line(
    waits: tuple[float, ...], step: float, number: int, place: int, longest: float
) -> Iterator[Html]:
    top, left = place * _LINE + 2, float(_LABEL)
    scale = (_WIDTH - _LABEL) / longest
    yield element("text", str(number), x="0", y=str(top + 15))
    for offset, wait in enumerate(waits):
        for kind, seconds, word in (("wait", wait, "waited"), ("step", step, "worked")):
            width = seconds * scale
            if width > 0.05:
                said = f"batch {number + offset}: {word} {_milliseconds(seconds)}"
                yield element(
                    "rect",
                    element("title", said),
                    class_=kind,
                    x=f"{left:.1f}",
                    y=str(top),
                    height=str(_BAR),
                    # Leave a gap between two batches.
                    width=f"{max(width - (kind == 'step'), 0.5):.1f}",
                )
            left += width


# --- the parts ---


def _parts(d: Diagnosis) -> Iterator[Html]:
    """A table of the figures with their ranges and bars."""
    yield element("h2", f"Milliseconds for a batch of {d.samples}")
    known = [(name, getattr(d, name)) for name in NAMES if getattr(d, name) is not None]
    longest = max(seconds for _, seconds in known) or 1e-9
    lines = []
    for name, seconds in known:
        values = values_of(d.rounds, name)
        spread = [element("div", _range(values), class_="soft")] if len(values) > 1 else []
        meter = element("div", class_="meter", style=f"width:{seconds / longest:.1%}")
        lines.append(
            [
                element("td", NAMES[name], class_="part" if name in PARTS else "word"),
                element("td", _milliseconds(seconds), *spread, class_="number"),
                element("td", meter, style="width:30%"),
            ]
        )
    yield table(("part", "ms", "of the longest"), lines, words=1)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _range(values: list[float]) -> str:
    return f"{1000 * min(values):.3g} to {1000 * max(values):.3g}"
