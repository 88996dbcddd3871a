"""A diagnosis as a self-contained HTML page: the result, the waits of each batch, the report.

The page follows the system's light or dark theme and the width of the screen.
"""

from __future__ import annotations

from collections.abc import Iterator

from adapters.diagnosis.report import Diagnosis, headline
from adapters.markup import Html, document, element, listed

_BATCHES_PER_LINE, _LINES = 12, 6
# In SVG units; the drawing is scaled to the width of the page.
_WIDTH, _LINE, _BAR, _LABEL = 640, 34, 20, 44
_STYLE = """
:root { --paper: #fcfcfb; --ink: #1c1c1a; --soft: #62605b; --wait: #c2570c; --step: #2f6fb3; }
@media (prefers-color-scheme: dark) { :root { --paper: #191919; --ink: #ecebe8; --soft: #a4a19a;
  --wait: #f08c3a; --step: #6aa7e8; } }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
figcaption, .soft { color: var(--soft); font-size: .9rem; }
figure { margin: 0; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
.wait { fill: var(--wait); } .step { fill: var(--step); }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; }
.key.wait { background: var(--wait); } .key.step { background: var(--step); }
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
    yield from (element("p", line) for line in more)
    for name, lines in (("contradiction", d.contradictions), ("noise", d.noise)):
        for line in lines:
            yield element("p", element("strong", f"{name}:"), f" {line}")
    yield element("h2", "Waits, batch by batch")
    yield _waits(d)
    yield element("h2", "What to change")
    yield listed(d.advice, "ol")
    yield element("h2", "The report")
    yield element("pre", str(d))


def _waits(d: Diagnosis) -> Html:
    """A chart of how long training waited for each of the last batches, in order."""
    if not d.waits_seconds or d.whole is None:
        reason = "Not measured: without a step, or as they aren't recorded here."
        return element("p", reason, class_="soft")
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
    return element("figure", picture, caption)


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


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
