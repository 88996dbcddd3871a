"""What the experiments found: runs, the rows that sum them up, and the JSON that keeps both.

A run is one fresh process. A row is all runs of one loader with one number of workers: medians,
and the range of the speed. The JSON keeps every run, so that a row can be checked.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.processes import ROOT, Outcome

# What the numbers may depend on; those that aren't installed are left out.
DISTRIBUTIONS = (
    "loader-adapters",
    "numpy",
    "keras",
    "tensorflow",
    "tensorflow-cpu",
    "jax",
    "torch",
    "mxnet",
    "grain",
    "nvidia-dali-cuda120",
    "opencv-python-headless",
    "simplejpeg",
    "pillow",
    "scikit-image",
    "scikit-learn",
    "loky",
)


@dataclass(frozen=True)
class Column:
    """One number of a table.

    Args:
        key: Its key in `Run.metrics`.
        head: What the table calls it, with the unit.
        form: A format specification.
    """

    key: str
    head: str
    form: str


# Shared by every experiment that trains a network.
TRAINING_COLUMNS = (
    Column("train_seconds", "train s", ".2f"),
    Column("eval_seconds", "eval s", ".2f"),
    Column("accuracy", "accuracy", ".4f"),
    Column("samples_per_second", "samples/s", ",.0f"),
    Column("waited_share", "waited", ".1%"),
    Column("wait_p50_ms", "wait p50 ms", ".2f"),
    Column("wait_p99_ms", "wait p99 ms", ".2f"),
    Column("peak_pss_mib", "peak PSS MiB", ",.0f"),
    Column("cpu_percent", "CPU %", ".0f"),
)
SPEED = "samples_per_second"


@dataclass(frozen=True)
class Run:
    """One process: who ran, and what was measured or why not.

    Args:
        framework: Groups rows and figures: "Keras", "Gluon".
        loader: The contestant.
        workers: How many, or "auto".
        ours: Whether the loader is this package's.
        metrics: Numbers under column keys; empty where there is no result.
        rounds: Speeds of parts of the run, samples/s; empty where it has only one.
        software: Framework and backend with versions; empty without a result.
        device: What was trained on; empty without a result.
        failure: Why the run doesn't count as good, or None.
        log: The end of a failed run's output.
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
    rounds: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.framework} {self.loader}, workers {self.workers}"

    @classmethod
    def of(
        cls, framework: str, loader: str, workers: int | str, ours: bool, outcome: Outcome
    ) -> Run:
        """The run that ended with this outcome."""
        result = outcome.result
        metrics = {} if result is None else dict(result["metrics"])
        if outcome.peak_pss_bytes is not None:
            metrics["peak_pss_mib"] = outcome.peak_pss_bytes / 2**20
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
            rounds=() if result is None else tuple(result.get("rounds", ())),
        )


@dataclass(frozen=True)
class Row:
    """All runs of one loader with one number of workers.

    Args:
        framework: As in `Run`.
        loader: As in `Run`.
        workers: As in `Run`.
        medians: Of each metric, over the runs that have it.
        speed_range: The slowest and the fastest run, or round of a run, samples/s; None without a
            result.
        runs: How many.
        failures: The reasons of those that failed.
    """

    framework: str
    loader: str
    workers: int | str
    medians: dict[str, float]
    speed_range: tuple[float, float] | None
    runs: int
    failures: tuple[str, ...]


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
    """

    name: str
    title: str
    columns: tuple[Column, ...] = TRAINING_COLUMNS
    axis: str = "workers"
    notes: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """Sorted by framework, loader and workers, frameworks and loaders as they first ran."""
        groups: dict[tuple[str, str, int | str], list[Run]] = {}
        for run in self.runs:
            groups.setdefault((run.framework, run.loader, run.workers), []).append(run)
        frameworks = list(dict.fromkeys(run.framework for run in self.runs))
        loaders = list(dict.fromkeys(run.loader for run in self.runs))
        rows = [_sum_up(group) for group in groups.values()]
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
        trained = [
            f"{run.framework}: {run.software}, on {run.device}" for run in self.runs if run.software
        ]
        return [*dict.fromkeys(trained), *self.notes]

    def write_json(self, folder: Path) -> Path:
        """Write everything to `<folder>/<name>.json`, replacing it at once; returns the path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        content: dict[str, Any] = {
            "experiment": self.name,
            "title": self.title,
            "notes": self.notes,
            "machine": describe_machine(),
            "rows": [dataclasses.asdict(row) for row in self.rows()],
            "runs": [dataclasses.asdict(run) for run in self.runs],
        }
        unfinished = path.with_suffix(".json.unfinished")
        unfinished.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(unfinished, path)
        return path


def _sum_up(runs: list[Run]) -> Row:
    keys = dict.fromkeys(key for run in runs for key in run.metrics)
    values = {key: [run.metrics[key] for run in runs if key in run.metrics] for key in keys}
    speeds = [*values.get(SPEED, ()), *(speed for run in runs for speed in run.rounds)]
    return Row(
        framework=runs[0].framework,
        loader=runs[0].loader,
        workers=runs[0].workers,
        medians={key: statistics.median(numbers) for key, numbers in values.items()},
        speed_range=(min(speeds), max(speeds)) if speeds else None,
        runs=len(runs),
        failures=tuple(run.failure for run in runs if run.failure is not None),
    )


def describe_machine() -> dict[str, Any]:
    """What the numbers were taken on, and with: processor, memory, versions, date, commit."""
    return {
        "cpu": _cpu_model(),
        "usable_cpus": usable_cpus(),
        "memory_gib": _memory_gib(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": dict(_versions(DISTRIBUTIONS)),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "arguments": sys.argv[1:],
    }


def usable_cpus() -> int:
    """The processors that this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float:
    return round(float(psutil.virtual_memory().total) / 2**30, 1)


def _versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _commit() -> str | None:
    """The commit, with "+changes" where the work tree differs; None without git."""
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip()
