"""A session in a few lines: of each piece of work ours, the best peer, and what others published.

A line of a ratio has our median and the peer's best round, as its row says; every other line the
medians of the best rows of a framework, ours and theirs, by the number that the experiment's rows
are compared by. `ratio` is how many times as good ours is, so that less than 1 is worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.harness.results import IDEAL, Experiment, Row, is_reference
from benchmarks.harness.tables import MISSING, align

# What `measure_ratio` says of its contestants: who against whom, in which unit.
_CONTEST = re.compile(r"^(.+) against (.+), ([^,()]+?)(?: \(.*\))?$")


def rounded(value: float) -> str:
    """Four digits, as people write them: 884100.3 is "884,100"."""
    return f"{float(f'{value:.4g}'):,.10g}"


@dataclass(frozen=True)
class Figure:
    """One loader's number.

    Args:
        who: The loader, with its workers where it has several.
        value: In the line's unit.
    """

    who: str
    value: float


@dataclass(frozen=True)
class Line:
    """One piece of work.

    Args:
        experiment: The experiment's name.
        work: What was done, in which framework.
        unit: Of the figures.
        ours: This package's best; None where it has no row.
        peer: The best of the others; None where there is none.
        published: The best figure that others printed; None where there is none.
        lower_is_better: Whether the unit is one of which less is better.
        row: What `reference.json` calls it; "" if it has no name there.
    """

    experiment: str
    work: str
    unit: str
    ours: Figure | None
    peer: Figure | None
    published: Figure | None
    lower_is_better: bool = False
    row: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as good as the peer's ours is; None where one of them is missing or 0."""
        if self.ours is None or self.peer is None or 0 in (self.ours.value, self.peer.value):
            return None
        ratio = self.ours.value / self.peer.value
        return 1 / ratio if self.lower_is_better else ratio


def summary(experiments: Iterable[Experiment]) -> list[Line]:
    """The lines of all experiments, in their order; none of one where no row was measured."""
    return [line for experiment in experiments for line in lines_of(experiment)]


def summary_lines(experiments: Iterable[Experiment]) -> list[str]:
    """The same as text."""
    heads = ("experiment", "work", "ours", "best peer", "ratio", "unit")
    cells = [
        (
            line.experiment,
            line.work,
            *(
                MISSING if each is None else f"{rounded(each.value)} {each.who}"
                for each in (line.ours, line.peer)
            ),
            MISSING if line.ratio is None else f"{line.ratio:.2f}",
            line.unit,
        )
        for line in summary(experiments)
    ]
    return align(heads, cells, words=4) if cells else []


def lines_of(experiment: Experiment) -> list[Line]:
    """The lines of one experiment."""
    if any("ratio" in run.metrics for run in experiment.runs):
        return _contests(experiment)
    rows = [row for row in experiment.rows() if experiment.better in row.medians]
    frameworks = dict.fromkeys(row.framework for row in rows)
    found = [
        _line(experiment, [row for row in rows if row.framework == framework])
        for framework in frameworks
    ]
    return [line for line in found if line.ours or line.peer]


def _contests(experiment: Experiment) -> list[Line]:
    """Of rows that are ratios already."""
    software = {(run.framework, run.loader): run.software for run in experiment.runs}
    found = []
    for row in experiment.rows():
        match = _CONTEST.match(software[row.framework, row.loader])
        if match is None or "ratio" not in row.medians:
            continue
        own, peer, unit = match.groups()
        found.append(
            Line(
                experiment.name,
                f"{row.framework}: {row.loader}",
                unit,
                Figure(own, row.medians["ours"]),
                Figure(peer, row.medians["peer"]),
                None,
                row=f"{row.framework} {row.loader}",
            )
        )
    return found


def _line(experiment: Experiment, rows: Sequence[Row]) -> Line:
    """The best of one framework's rows."""
    column = next(each for each in experiment.columns if each.key == experiment.better)
    own = {(run.framework, run.loader) for run in experiment.runs if run.ours}
    groups: dict[str, list[Row]] = {"ours": [], "peer": [], "published": []}
    for row in rows:
        if row.loader == IDEAL:
            continue
        kind = "ours" if (row.framework, row.loader) in own else "peer"
        groups["published" if is_reference(row.loader) else kind].append(row)
    best = {kind: _best(experiment, group) if group else None for kind, group in groups.items()}
    return Line(
        experiment.name,
        rows[0].framework,
        column.head,
        best["ours"],
        best["peer"],
        best["published"],
        experiment.lower_is_better,
    )


def _best(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    choose = min if experiment.lower_is_better else max
    row = choose(rows, key=lambda each: each.medians[experiment.better])
    workers = f", {experiment.axis} {row.workers}" if row.workers != "" else ""
    return Figure(f"{row.loader}{workers}", row.medians[experiment.better])
