"""Runs and sessions for tests: made-up numbers, and rows of the program in `rows.py`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from benchmarks.harness.results import Run
from benchmarks.harness.sweeps import RowSpec, Session
from tests.benchmarks.rows import SLEEP_SECONDS

MACHINE = {
    "cpu": "EPYC",
    "usable_cpus": 2,
    "memory_gib": 23.5,
    "features": ["native kernel"],
    "system": "Linux",
    "python": "3.11.7",
    "libraries": {"numpy": "1.26.4"},
    "date": "2026-11-21T12:00:00+00:00",
    "commit": "2f85e3f",
    "arguments": ["benchmarks", "--full"],
    "keras_backend": None,
}


def made_up_run(
    loader: str,
    workers: int | str = 0,
    *,
    framework: str = "Keras",
    failure: str | None = None,
    log: str = "",
    **metrics: float,
) -> Run:
    """A run with these metrics."""
    return Run(
        framework=framework,
        loader=loader,
        workers=workers,
        ours=False,
        metrics=metrics,
        software=f"{framework} 3.15" if metrics else "",
        device="the CPU" if metrics else "",
        failure=failure,
        log=log,
        command=f"pytest benchmarks/test_it.py --rows '{framework} {loader} workers {workers}'",
    )


def speeds(loader: str, *values: float, workers: int | str = 0) -> list[Run]:
    """A run for each speed."""
    return [made_up_run(loader, workers, samples_per_second=value) for value in values]


def open_session(out: Path, *, rows: str = "") -> Session:
    """As the command line opens it."""
    return Session(
        size="default", repeats=None, rows=rows, out=out, data_dir=None, uncaptured=nullcontext
    )


def sleeping_row(loader: str, seconds: float = SLEEP_SECONDS, error: str | None = None) -> RowSpec:
    """A row that sleeps so long for each sample, or fails."""
    options: dict[str, float | str] = {"seconds": seconds}
    if error is not None:
        options["error"] = error
    own = {"framework": "Plain", "workers": 0, "ours": True, "limit_seconds": 60}
    return RowSpec(loader=loader, program="tests.benchmarks.rows", options=options, **own)
