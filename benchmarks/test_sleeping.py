"""The sleeping data set: N workers that only wait should be N times as fast, in every loader.

The ideal line is what they would make without any cost of handing over. A loader that gives an item
twice, not at all or out of its order has a failed row, as has one that hangs.
"""

from __future__ import annotations

import importlib.util

from benchmarks.experiments.sleeping import AUTO, CONTESTANTS, ITEMS, Contestant, ideal_speed
from benchmarks.harness.results import IDEAL, Column, Experiment, Run
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

COLUMNS = (
    Column("samples_per_second", "items/s", ",.1f"),
    Column("ideal_share", "of the ideal", ".0%"),
    Column("peak_pss_mib", "peak PSS MiB", ",.0f"),
)
PANELS = (("samples_per_second", "items per second"), ("ideal_share", "share of the ideal, %"))
WAIT_SECONDS = {"smoke": 0.002, "default": 0.02, "full": 1.0}
# The default size has none for our threads in Keras only; without workers, all loaders are alike.
WORKERS = {"smoke": (3,), "default": (0, 8), "full": (0, 1, 3, 8, 16, 32)}
FEW = {"smoke": (3,), "default": (8,), "full": WORKERS["full"]}
PASSES = {"smoke": 1, "default": 3, "full": 2}
LIMIT_SECONDS = {"smoke": 180, "default": 180, "full": 300}


def test_sleeping(session: Session) -> None:
    """Every row of this package's loaders ends well, with all items once and in order."""
    wait_seconds = WAIT_SECONDS[session.size]
    experiment = session.experiment(
        "sleeping",
        "The sleeping data set: every item only waits",
        "What are N workers worth where every item only waits?",
    )
    experiment.columns, experiment.panels = COLUMNS, PANELS
    experiment.notes += [
        f"{ITEMS} items of {wait_seconds:g} s, batches of 1; 0: in the loop's own thread; "
        "max_queue_size: 10, or as many as there are workers",
        f"whole passes: at best, ceil({ITEMS} / workers) waits; the workers are all there before, "
        "but those of PyDataset, which starts them in each pass; a loader that reads on into "
        "the next pass can be above the ideal",
    ]
    specs = [
        RowSpec(
            framework=contestant.framework,
            loader=loader,
            workers=workers,
            ours=contestant.ours,
            program="benchmarks.experiments.sleeping",
            options={"wait_seconds": wait_seconds, "passes": PASSES[session.size]},
            limit_seconds=LIMIT_SECONDS[session.size],
        )
        for loader, contestant in _installed(experiment).items()
        for workers in _workers(loader, contestant, session.size)
    ]
    runs = session.sweep(experiment, specs, repeats=1)
    experiment.runs += ideal(runs, wait_seconds)
    assert our_failures(runs) == []


def ideal(runs: list[Run], wait_seconds: float) -> list[Run]:
    """The line that no loader can be above in a pass of its own, for each framework's figure."""
    frameworks = dict.fromkeys(run.framework for run in runs)
    numbers = dict.fromkeys(run.workers for run in runs if isinstance(run.workers, int))
    return [
        Run(
            framework=framework,
            loader=IDEAL,
            workers=workers,
            ours=False,
            metrics={"samples_per_second": ideal_speed(workers, wait_seconds), "ideal_share": 1.0},
            software="",
            device="",
            failure=None,
            log="",
        )
        for framework in frameworks
        for workers in numbers
    ]


def _installed(experiment: Experiment) -> dict[str, Contestant]:
    """The loaders whose library is there; notes the others."""
    found = {}
    for loader, contestant in {**CONTESTANTS, **AUTO}.items():
        if importlib.util.find_spec(contestant.library):
            found[loader] = contestant
        else:
            experiment.notes.append(f"not run, as {contestant.library} isn't installed: {loader}")
    return found


def _workers(loader: str, contestant: Contestant, size: str) -> list[int | str]:
    if loader in AUTO:
        return ["auto"]
    every = contestant.ours and contestant.inline and contestant.framework == "Keras"
    numbers = (WORKERS if every else FEW)[size]
    return [workers for workers in numbers if workers or contestant.inline]
