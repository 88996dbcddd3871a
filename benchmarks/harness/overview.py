"""The report's first table: every experiment in a line or a few, ours beside the best peer."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.markup import Html, details, element, table
from benchmarks.harness.pairs import Bar, Pair, drawn
from benchmarks.harness.reference import Verdict
from benchmarks.harness.results import Experiment
from benchmarks.harness.summary import Figure, Line, lines_of, rounded
from benchmarks.harness.tables import MISSING

HEADS = ("work", "ratio", "on the reference machine", "ours", "best peer", "published", "unit")
CAPTION = "Ours against the best peer of the same run; a ratio above 1 speaks for ours."
NOTE = (
    "Medians of the best row of each; of rows called ratios, our median against the peer's best "
    "round. Of times, fewer are better, and the ratio is turned round."
)


def overview(experiments: Sequence[Experiment]) -> Html:
    """The section; nothing where nothing was measured."""
    found = [(each, lines_of(each)) for each in experiments]
    found = [(each, lines) for each, lines in found if lines]
    if not found:
        return Html("")
    rows: list[list[Html]] = []
    for experiment, lines in found:
        link = element("a", experiment.title, href=f"#{anchor(experiment)}")
        rows.append([element("th", link, scope="rowgroup", colspan=str(len(HEADS)), class_="word")])
        rows += [_cells(line, experiment) for line in lines]
    parts = [
        element("h2", "Summary", id="summary"),
        element("p", CAPTION, class_="caption"),
        table(HEADS, rows, words=1),
        element("p", NOTE, class_="note"),
    ]
    pairs = [_pair(line) for _, lines in found for line in lines if line.ratio is not None]
    if pairs:
        picture = Html(drawn("Longer is better; each pair has its own scale", pairs))
        parts.append(details("The same as bars", picture))
    return element("section", *parts)


def anchor(experiment: Experiment) -> str:
    """The section's name in links."""
    return f"experiment-{experiment.name}"


def _cells(line: Line, experiment: Experiment) -> list[Html]:
    ratio, verdict = line.ratio, experiment.verdicts.get(line.row)
    kind = "number" if ratio is None else "number good" if ratio >= 1 else "number behind"
    return [
        element("td", line.work, class_="word"),
        element("td", MISSING if ratio is None else f"{ratio:.2f}", class_=kind),
        element("td", *_reference(verdict), class_="number"),
        element("td", *_figure(line.ours), class_="number"),
        element("td", *_figure(line.peer), class_="number"),
        element("td", *_figure(line.published), class_="number"),
        element("td", line.unit, class_="word"),
    ]


def _reference(verdict: Verdict | None) -> list[str]:
    if verdict is None or verdict.reference is None:
        return [MISSING]
    machine = element("span", verdict.machine, class_="spread")
    return [f"{verdict.reference:.3g}", " ", machine]


def _figure(figure: Figure | None) -> list[str]:
    if figure is None:
        return [MISSING]
    return [rounded(figure.value), " ", element("span", figure.who, class_="spread")]


def _pair(line: Line) -> Pair:
    """Longer is better, of times, too."""
    assert line.ours is not None
    assert line.peer is not None
    bars = [
        Bar(
            each.who.split(",")[0],
            1 / each.value if line.lower_is_better else each.value,
            f"{rounded(each.value)} {line.unit}",
        )
        for each in (line.ours, line.peer)
    ]
    return Pair(line.work, f"{line.ratio:.2f}", *bars)
