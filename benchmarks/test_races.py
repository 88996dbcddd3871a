"""Duplicates and races: with many workers, SafeSequence repeats, loses and mixes up nothing.

Beside it stands what Keras's own ways do with the same data: PyDataset with as many workers, its
generators, which have none any more, and generators that threads share, as many people still write
it. Of these nothing is asserted: the table counts what went wrong, and says where nothing did.
"""

from __future__ import annotations

import importlib.util
import os

from benchmarks.experiments.races import BATCHES, CONTESTANTS, ERROR, SAMPLES, faults_of
from benchmarks.harness.backends import TITLES
from benchmarks.harness.results import Column, Run
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

COLUMNS = (
    Column("repeated", "repeated", ",.0f"),
    Column("lost", "lost", ",.0f"),
    Column("out_of_order", "out of order", ",.0f"),
    Column("differing", "differing", ",.0f"),
    Column("errors", "errors", ",.0f"),
    Column("faults", "all", ",.0f"),
)
PANELS = (("faults", "samples that were wrong, and errors"),)
OURS = ("SafeSequence threads", "SafeSequence processes")
# `--long` has these on one backend only: what goes wrong with them goes wrong with PyDataset's
# threads, too, or before Keras sees it.
FIRST_BACKEND_ONLY = ("PyDataset processes", "generator", "generator, in threads")
FIRST = "jax"  # It starts fastest, and there PyDataset's threads lose samples.
WORKERS = {"smoke": (2,), "default": (4,), "full": (2, 4, 8, 16)}
REPEATS = {"smoke": 1, "default": 1, "full": 5}
LIMIT_SECONDS = 180  # A row that takes longer hangs.


def test_races(session: Session) -> None:
    """Every sample once, in order and the same again, from every kind and number of our workers."""
    experiment = session.experiment(
        "races",
        "Duplicates and races, in samples",
        "Which samples are repeated, lost, out of order?",
    )
    experiment.columns, experiment.panels = COLUMNS, PANELS
    experiment.notes += [
        f"2 x (two epochs of fit, evaluate and predict), each of {SAMPLES} samples in {BATCHES} "
        "batches, with fresh models",
        "differing: between the two runs, which have equal seeds; errors: calls that raised one",
        "generator: Keras reads it without workers; in threads: several take from one, by hand",
    ]
    asked = os.environ.get("KERAS_BACKEND") or FIRST
    backends = [name for name in dict.fromkeys([asked, *TITLES]) if importlib.util.find_spec(name)]
    first = backends[0]
    missing = [name for name in TITLES if name not in backends]
    experiment.notes += [f"not run, as {name} isn't installed: Keras on it" for name in missing]
    if session.size == "smoke" or not session.all_rows:
        backends = [first]
    specs = [
        RowSpec(
            framework=f"Keras on {TITLES[backend]}",
            loader=loader,
            workers=workers,
            ours=loader in OURS,
            program="benchmarks.experiments.races",
            options={"backend": backend},
            limit_seconds=LIMIT_SECONDS,
        )
        for backend in backends
        for loader in CONTESTANTS
        if backend == first or session.size == "full" or loader not in FIRST_BACKEND_ONLY
        for workers in ((1,) if loader == "generator" else WORKERS[session.size])
    ]
    runs = session.sweep(experiment, specs, REPEATS[session.size])
    experiment.notes += findings(runs)
    assert our_failures(runs) == []
    wrong = [(run.name, run.metrics) for run in runs if run.ours and run.metrics["faults"]]
    assert wrong == []


def test_faults_are_counted() -> None:
    """A batch that comes late, those that come again, and those that never do."""
    late = [*range(4, 48), 0, 1, 2, 3, *range(4, 36)]
    assert faults_of(late) == {"repeated": 32, "lost": SAMPLES - 48, "out_of_order": 4}
    assert set(faults_of(list(range(SAMPLES))).values()) == {0}


def findings(runs: list[Run]) -> list[str]:
    """Where Keras's own ways did nothing wrong, and what they raised."""
    lines = []
    others = [run for run in runs if not run.ours and run.metrics]
    for name in dict.fromkeys(run.name for run in others):
        same = [run for run in others if run.name == name]
        asked = f"{same[0].loader}, workers {same[0].workers}, {same[0].software}"
        if not any(run.metrics["faults"] for run in same):
            lines.append(f"{asked}: no fault seen")
        raised = {key for run in same for key in run.metrics if key.startswith(ERROR)}
        if raised:
            names = sorted(key.removeprefix(ERROR) for key in raised)
            lines.append(f"{asked}: raised {' and '.join(names)}")
    return lines
