"""Earlier results against those of now: what got slower beyond the noise.

The unit is the run, a fresh process: the rounds inside of one share its luck. A row got slower if
every run of now is worse than every earlier one, and the medians differ by more than 5 percent. One
timing, or two, are never compared. Where nothing changed and runs scatter normally by 5 percent
(standard deviation), 3 in 100 rows with three runs each look slower all the same, and 3 in 1,000
with five (simulated). So a row that looks slower runs as often once more, and counts as slower if
none of all its runs reaches the earlier ones.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.results import SPEED, Experiment, Run, is_reference
from benchmarks.harness.tables import MISSING, align

LEAST_RUNS = 3
# What a session runs each row for that is compared, unless it is told otherwise.
USUAL_RUNS = 5
LEAST_DIFFERENCE = 0.05
SLOWER = "slower"
FASTER = "faster"
SAME = "same within the noise"
NOT_COMPARED = "not compared"
# Of experiments without a speed, if they don't say otherwise: the ratios' own contestant.
OURS = "ours"
HEADS = ("row", "verdict", "now / before", "metric", "before", "range", "now", "range")

Key = tuple[str, str, str, int | str]


@dataclass(frozen=True)
class Earlier:
    """What an earlier session wrote.

    Args:
        path: The file.
        machine: As `describe_machine` said it then.
        sizes: Of its experiments, by name; "" where the file doesn't tell.
        runs: Of its experiments, by name.
    """

    path: Path
    machine: dict[str, Any]
    sizes: dict[str, str]
    runs: dict[str, list[Run]]


@dataclass(frozen=True)
class Sample:
    """One row's runs at one time."""

    median: float
    least: float
    most: float
    runs: int

    @classmethod
    def of(cls, runs: Iterable[Run], metric: str) -> Sample | None:
        """The sample of one metric; None where no run has it."""
        values = [run.metrics[metric] for run in runs if metric in run.metrics]
        if not values:
            return None
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Change:
    """One row that is in both.

    Args:
        experiment: Its name.
        row: The row's name.
        metric: Which number was compared.
        before: The earlier runs; None where none has a result.
        now: Those of this session, likewise.
        ratio: Of the medians, now to before; None where they weren't compared.
        verdict: `SLOWER`, `FASTER`, `SAME`, or `NOT_COMPARED` with the reason.
        command: Repeats the row.
    """

    experiment: str
    row: str
    metric: str
    before: Sample | None
    now: Sample | None
    ratio: float | None
    verdict: str
    command: str


@dataclass(frozen=True)
class Comparison:
    """Earlier results against those of now.

    Args:
        path: Of the earlier results.
        heads: What else differs: the machine, the libraries, the devices.
        changes: The rows in both.
        only_before: Names of rows that didn't run now.
        only_now: Names of rows that hadn't run before.
    """

    path: str
    heads: tuple[str, ...]
    changes: tuple[Change, ...]
    only_before: tuple[str, ...]
    only_now: tuple[str, ...]

    @property
    def slower(self) -> list[Change]:
        """What got slower."""
        return [change for change in self.changes if change.verdict == SLOWER]

    def content(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def read_earlier(path: Path) -> Earlier:
    """Read the results of an earlier session.

    Args:
        path: Its `run.json`, or the JSON of one of its experiments.

    Returns:
        What is in it.

    Raises:
        ValueError: The file can't be read, or is none of those.
    """
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    try:
        experiments = content.get("experiments", [content])
        return Earlier(
            path=path,
            machine=dict(content["machine"]),
            sizes={each["experiment"]: each.get("size", "") for each in experiments},
            runs={each["experiment"]: _read_runs(each["runs"]) for each in experiments},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is neither a run.json nor an experiment's JSON: "
            f"{type(error).__name__}: {error}"
        ) from error


def _read_runs(runs: list[dict[str, Any]]) -> list[Run]:
    """What they say that a `Run` of today has: later versions may have written more."""
    known = [each.name for each in dataclasses.fields(Run)]
    found = [Run(**{key: run[key] for key in known if key in run}) for run in runs]
    for run in found:
        for key, value in run.metrics.items():
            if not isinstance(value, int | float):
                raise TypeError(f"{run.name}: {key} must be a number, got {value!r}")
    return found


def check_size(earlier: Earlier, size: str) -> None:
    """See that the earlier session had this size.

    Raises:
        ValueError: It had another, so that no number could be compared.
    """
    others = {each for each in earlier.sizes.values() if each} - {size}
    if others:
        raise ValueError(
            f"{earlier.path} is of the size {' and '.join(sorted(others))}, this run would be of "
            f"the size {size}: choose the same by --full, --smoke, or neither"
        )


def compare_results(
    earlier: Earlier, experiments: Iterable[Experiment], machine: Mapping[str, Any]
) -> Comparison:
    """Compare row by row.

    Args:
        earlier: The results of then.
        experiments: Those of now; by their own metric each.
        machine: That of now.

    Returns:
        The verdicts, and what else differs.
    """
    ran = [experiment for experiment in experiments if experiment.runs]
    before = _by_row(earlier.runs)
    now = _by_row({experiment.name: experiment.runs for experiment in ran})
    metrics = {experiment.name: _metric(experiment) for experiment in ran}
    changes = [
        judge(key, metrics[key[0]], before[key], runs) for key, runs in now.items() if key in before
    ]
    return Comparison(
        path=str(earlier.path),
        heads=(*_other_machine(earlier.machine, machine), *_other_devices(before, now)),
        changes=tuple(changes),
        only_before=tuple(_name(key) for key in before if key not in now),
        only_now=tuple(_name(key) for key in now if key not in before),
    )


def suspects(earlier: Earlier, experiment: Experiment) -> set[tuple[str, str, int | str]]:
    """Framework, loader and workers of the rows that look slower so far."""
    before, metric = _by_row(earlier.runs), _metric(experiment)
    rows = _by_row({experiment.name: experiment.runs})
    return {
        key[1:]
        for key, runs in rows.items()
        if key in before and judge(key, metric, before[key], runs).verdict == SLOWER
    }


def judge(key: Key, metric: tuple[str, bool], before: list[Run], now: list[Run]) -> Change:
    """One row's verdict.

    Args:
        key: The experiment, the framework, the loader, the workers.
        metric: Its key, and whether less of it is better.
        before: The earlier runs.
        now: Those of this session.
    """
    name, lower_is_better = metric
    old, new = Sample.of(before, name), Sample.of(now, name)
    ratio = None
    if old is None or new is None:
        verdict = f"{NOT_COMPARED}: no {name} {'before' if old is None else 'now'}"
    elif min(old.runs, new.runs) < LEAST_RUNS:
        fewest = min(old.runs, new.runs)
        verdict = f"{NOT_COMPARED}: {fewest} run{'s' * (fewest > 1)}"
    elif old.median <= 0:
        verdict = f"{NOT_COMPARED}: a median of {old.median:g} before"
    else:
        ratio = new.median / old.median
        verdict = SAME
        if abs(new.median - old.median) > LEAST_DIFFERENCE * old.median:
            if new.most < old.least:
                verdict = FASTER if lower_is_better else SLOWER
            elif new.least > old.most:
                verdict = SLOWER if lower_is_better else FASTER
    experiment = key[0]
    return Change(experiment, _name(key), name, old, new, ratio, verdict, now[-1].command)


def comparison_lines(comparison: Comparison) -> list[str]:
    """The comparison as text."""
    lines = [f"against {comparison.path}", *comparison.heads]
    if comparison.changes:
        lines += ["", *align(HEADS, [cells(change) for change in comparison.changes], words=2)]
    for word, names in (("before", comparison.only_before), ("now", comparison.only_now)):
        if names:
            lines += ["", f"only {word}:", *(f"  {name}" for name in names)]
    lines.append("")
    if comparison.slower:
        count = f"{len(comparison.slower)} of {len(comparison.changes)} rows"
        lines.append(f"slower: {count}, so the session fails")
        for change in comparison.slower:
            lines.append(f"  {change.row}: {change.ratio:.2f} of before; again: {change.command}")
    else:
        judged = sum(change.ratio is not None for change in comparison.changes)
        compared = f"nothing got slower, of {judged} rows compared"
        lines.append(compared if judged else "no row could be compared")
    return lines


def cells(change: Change) -> list[str]:
    """A change as a line of the table."""
    return [
        change.row,
        change.verdict,
        MISSING if change.ratio is None else f"{change.ratio:.2f}",
        change.metric,
        *_sample_cells(change.before),
        *_sample_cells(change.now),
    ]


def _sample_cells(sample: Sample | None) -> list[str]:
    if sample is None:
        return [MISSING, MISSING]
    return [f"{sample.median:,.4g}", f"{sample.least:,.4g} to {sample.most:,.4g} ({sample.runs})"]


def _metric(experiment: Experiment) -> tuple[str, bool]:
    measured = {key for run in experiment.runs for key in run.metrics}
    if experiment.better == SPEED and SPEED not in measured and OURS in measured:
        return OURS, False
    return experiment.better, experiment.lower_is_better


def _by_row(experiments: Mapping[str, list[Run]]) -> dict[Key, list[Run]]:
    rows: dict[Key, list[Run]] = {}
    for name, runs in experiments.items():
        for run in runs:
            if not is_reference(run.loader):
                rows.setdefault((name, run.framework, run.loader, run.workers), []).append(run)
    return rows


def _name(key: Key) -> str:
    experiment, framework, loader, workers = key
    return f"{experiment}: {framework} {loader} {workers}".rstrip()


def _other_machine(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs and speeds depend on, one line each; a date or a commit always does."""
    keys = ("cpu", "usable_cpus", "memory_gib", "gpus", "python", "keras_backend")
    # Older files don't tell all of it.
    pairs = {key: (before[key], now.get(key)) for key in keys if key in before}
    old, new = before.get("libraries", {}), now.get("libraries", {})
    pairs |= {name: (old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])}
    differing = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
    lines = [f"{key}: {old} before, {new} now" for key, (old, new) in differing.items()]
    if "cpu" in differing or "usable_cpus" in differing:
        lines.insert(0, "ANOTHER MACHINE: what follows may be its doing")
    return lines


def _other_devices(before: Mapping[Key, list[Run]], now: Mapping[Key, list[Run]]) -> list[str]:
    """Rows of an experiment that ran on another device than before."""
    lines: dict[str, None] = {}
    for key, runs in now.items():
        old = {run.device for run in before.get(key, ()) if run.device}
        new = {run.device for run in runs if run.device}
        if old and new and old != new:
            named = f"on {' and '.join(sorted(old))} before, on {' and '.join(sorted(new))} now"
            lines[f"{key[0]}, {key[1]}: {named}"] = None
    return list(lines)
