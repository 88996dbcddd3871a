"""What the experiments found: runs, the rows that sum them up, and the JSON that keeps both.

A run is one fresh process. A row is all runs of one loader with one number of workers: medians,
and the range of the speed. The JSON keeps every run, so that a row can be checked.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.machine import describe_machine
from benchmarks.harness.processes import Outcome
from benchmarks.harness.reference import Verdict


@dataclass(frozen=True)
class Column:
    """One number of a table.

    Args:
        key: Its key in `Run.metrics`.
        head: What the table calls it, with the unit.
        form: A format specification.
        seeded: Whether it depends on the seed, so that its spread is that over seeds.
    """

    key: str
    head: str
    form: str
    seeded: bool = False


ACCURACY = "accuracy"
# Shared by every experiment that trains a network.
TRAINING_COLUMNS = (
    Column("train_seconds", "train s", ".2f"),
    Column("eval_seconds", "eval s", ".2f"),
    Column(ACCURACY, "accuracy", ".4f", seeded=True),
    Column("samples_per_second", "samples/s", ",.0f"),
    Column("waited_share", "waited", ".1%"),
    Column("wait_p50_ms", "wait p50 ms", ".2f"),
    Column("wait_p99_ms", "wait p99 ms", ".2f"),
    Column("peak_pss_mib", "peak PSS MiB", ",.0f"),
    Column("cpu_percent", "CPU %", ".0f"),
)
SPEED = "samples_per_second"
# Loaders that didn't run here: figures of others, and what perfect scaling would give.
PUBLISHED = "published"
IDEAL = "ideal"


def is_reference(loader: str) -> bool:
    """Whether its rows are there to compare with, and were not measured."""
    return loader == IDEAL or loader.startswith(PUBLISHED)


@dataclass(frozen=True)
class Run:
    """One process: who ran, and what was measured or why not.

    Args:
        framework: Groups rows and figures: "Keras", "Gluon".
        loader: The contestant.
        workers: How many, or "auto".
        ours: Whether the loader is this package's.
        metrics: Numbers under column keys; empty where there is no result.
        rounds: Metrics of parts of the run, which widen the row's ranges.
        software: Framework and backend with versions; empty without a result.
        device: What was trained on; empty without a result.
        failure: Why the run doesn't count as good, or None.
        log: The end of a failed run's output.
        command: Repeats its row; empty where the row was not measured here.
        seed: What the order of samples and the first weights came from; None where it isn't known.
    """

    framework: str
    loader: str
    workers: int | str
    ours: bool
    metrics: dict[str, float]
    software: str
    device: str
    failure: str | None
    log: str
    rounds: dict[str, list[float]] = field(default_factory=dict)
    command: str = ""
    seed: int | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.framework} {self.loader}, workers {self.workers}"

    @classmethod
    def of(
        cls,
        framework: str,
        loader: str,
        workers: int | str,
        ours: bool,
        outcome: Outcome,
        command: str = "",
    ) -> Run:
        """The run that ended with this outcome."""
        result = outcome.result
        metrics = {} if result is None else dict(result["metrics"])
        if "peak_pss_mib" in outcome.rounds:
            metrics["peak_pss_mib"] = max(outcome.rounds["peak_pss_mib"])
        return cls(
            framework=framework,
            loader=loader,
            workers=workers,
            ours=ours,
            metrics=metrics,
            software="" if result is None else result["software"],
            device="" if result is None else result["device"],
            failure=outcome.failure,
            log=outcome.log,
            rounds={} if result is None else {**result.get("rounds", {}), **outcome.rounds},
            command=command,
            seed=None if result is None else result.get("seed"),
        )


@dataclass(frozen=True)
class OverSeeds:
    """A metric over runs with different seeds; runs with the same one count once, by their mean.

    Args:
        mean: Of the seeds.
        deviation: The standard deviation between them; None for one seed.
        seeds: How many.
    """

    mean: float
    deviation: float | None
    seeds: int

    @classmethod
    def of(cls, key: str, runs: Iterable[Run]) -> OverSeeds | None:
        """Over the runs that have this metric and a seed; None where there are none."""
        values: dict[int, list[float]] = {}
        for run in runs:
            if run.seed is not None and key in run.metrics:
                values.setdefault(run.seed, []).append(run.metrics[key])
        if not values:
            return None
        means = [statistics.fmean(each) for each in values.values()]
        deviation = statistics.stdev(means) if len(means) > 1 else None
        return cls(statistics.fmean(means), deviation, len(means))


@dataclass(frozen=True)
class Row:
    """All runs of one loader with one number of workers.

    Args:
        framework: As in `Run`.
        loader: As in `Run`.
        workers: As in `Run`.
        medians: Of each metric, over the runs that have it.
        ranges: The least and the most of each metric over the runs and their rounds.
        runs: How many.
        failures: The reasons of those that failed.
        command: Repeats the row; empty where it was not measured here.
        over_seeds: What depends on the seed, where the runs' seeds are known.
    """

    framework: str
    loader: str
    workers: int | str
    medians: dict[str, float]
    ranges: dict[str, tuple[float, float]]
    runs: int
    failures: tuple[str, ...]
    command: str
    over_seeds: dict[str, OverSeeds] = field(default_factory=dict)


@dataclass
class Experiment:
    """One table, one JSON file and one figure.

    Args:
        name: The files' name.
        title: The table's and the figure's.
        columns: What is measured, in the table's order.
        axis: What `Run.workers` counts here.
        notes: What one must know to read the table: data, sizes, what the clock includes.
        runs: Filled as they end.
        better: The metric by which rows are compared: with each other, and with earlier ones.
        lower_is_better: Whether less of it is better, as of a time.
        panels: The figure's: keys of metrics and what they are called. None: the speed and the
            share waited, or the first columns where no speed was measured.
        size: The session's: "smoke", "default", "full"; "" where it isn't known.
        asks: The question that it answers, in a line.
        verdicts: By row: its figure beside the reference's.
    """

    name: str
    title: str
    columns: tuple[Column, ...] = TRAINING_COLUMNS
    axis: str = "workers"
    notes: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    better: str = SPEED
    lower_is_better: bool = False
    panels: tuple[tuple[str, str], ...] | None = None
    size: str = ""
    asks: str = ""
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def note(self, *notes: str) -> None:
        """Add what isn't there yet to the notes."""
        self.notes += [each for each in notes if each not in self.notes]

    def rows(self) -> list[Row]:
        """Sorted by framework, loader and workers, frameworks and loaders as they first ran."""
        groups: dict[tuple[str, str, int | str], list[Run]] = {}
        for run in self.runs:
            groups.setdefault((run.framework, run.loader, run.workers), []).append(run)
        frameworks = list(dict.fromkeys(run.framework for run in self.runs))
        loaders = list(dict.fromkeys(run.loader for run in self.runs))
        seeded = [column.key for column in self.columns if column.seeded]
        rows = [_sum_up(group, seeded) for group in groups.values()]
        return sorted(
            rows,
            key=lambda row: (
                frameworks.index(row.framework),
                loaders.index(row.loader),
                # "auto" after the numbers.
                isinstance(row.workers, str),
                row.workers,
            ),
        )

    def heads(self) -> list[str]:
        """What trained on what, and the notes: the lines between the title and the table."""
        frameworks: dict[str, dict[str, None]] = {}
        for run in self.runs:
            if run.software:
                line = f"{run.software}, on {run.device}"
                frameworks.setdefault(line, {})[run.framework] = None
        trained = [f"{', '.join(names)}: {line}" for line, names in frameworks.items()]
        return [*trained, *self.notes]

    def best(self) -> list[Row]:
        """The best measured row of each framework."""
        found: dict[str, Row] = {}
        sign = -1 if self.lower_is_better else 1
        for row in self.rows():
            if self.better not in row.medians or is_reference(row.loader):
                continue
            rival = found.setdefault(row.framework, row)
            if sign * row.medians[self.better] > sign * rival.medians[self.better]:
                found[row.framework] = row
        return list(found.values())

    def lead(self) -> Column | None:
        """The column that rows are compared by, where any row has it."""
        measured = any(self.better in run.metrics for run in self.runs)
        return next((each for each in self.columns if measured and each.key == self.better), None)

    def caption(self) -> str:
        """One line: what is asked, and which way is better."""
        lead, asked = self.lead(), self.asks
        if lead is None:
            return asked
        which = f"{'Less' if self.lower_is_better else 'More'} {lead.head} is better."
        return f"{asked} {which}" if asked else which

    def content(self) -> dict[str, Any]:
        """Everything but the machine, for JSON."""
        return {
            "experiment": self.name,
            "title": self.title,
            "notes": self.notes,
            "size": self.size,
            "columns": [dataclasses.asdict(column) for column in self.columns],
            "axis": self.axis,
            "better": self.better,
            "lower_is_better": self.lower_is_better,
            "rows": [dataclasses.asdict(row) for row in self.rows()],
            "verdicts": [dataclasses.asdict(each) for each in self.verdicts.values()],
            "runs": [dataclasses.asdict(run) for run in self.runs],
        }

    def write_json(self, folder: Path) -> Path:
        """Write everything to `<folder>/<name>.json`, replacing it at once; returns the path."""
        content = {**self.content(), "machine": describe_machine()}
        return write_json(content, folder / f"{self.name}.json")


def write_json(content: Mapping[str, Any], path: Path) -> Path:
    """Write a file, and its folder, so that it appears whole or not at all; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".json.unfinished")
    unfinished.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(unfinished, path)
    return path


def _sum_up(runs: list[Run], seeded: Iterable[str]) -> Row:
    keys = dict.fromkeys(key for run in runs for key in run.metrics)
    values = {key: [run.metrics[key] for run in runs if key in run.metrics] for key in keys}
    spread = {
        key: [*numbers, *(each for run in runs for each in run.rounds.get(key, ()))]
        for key, numbers in values.items()
    }
    ranges = {key: (min(numbers), max(numbers)) for key, numbers in spread.items()}
    return Row(
        framework=runs[0].framework,
        loader=runs[0].loader,
        workers=runs[0].workers,
        medians={key: statistics.median(numbers) for key, numbers in values.items()},
        ranges=ranges,
        runs=len(runs),
        failures=tuple(run.failure for run in runs if run.failure is not None),
        command=runs[-1].command,
        over_seeds={key: found for key in seeded if (found := OverSeeds.of(key, runs))},
    )
