"""What a batch costs in Keras's training loop, above the same batch already on the device."""

from __future__ import annotations

import importlib.util

from benchmarks.harness.backends import TITLES
from benchmarks.harness.results import Column
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

COLUMNS = (
    Column("floor_us", "floor us", ",.0f"),
    Column("ours_us", "ours us", ",.0f"),
    Column("ours_least_us", "least", ",.0f"),
    Column("ours_most_us", "most", ",.0f"),
    Column("inline_us", "ours, no workers", ",.0f"),
    Column("peer_us", "PyDataset us", ",.0f"),
    Column("peer_best_us", "best round", ",.0f"),
    Column("share", "ours to its median", ".2f"),
)
LIMIT_SECONDS = 300
SHARE = "batch cost: share of PyDataset's"  # Has a bar.


def test_batch_cost(session: Session) -> None:
    """Every row ends well."""
    experiment = session.experiment(
        "batch-cost",
        "What a batch costs: microseconds above the same batch on the device",
        "How much of the training loop's time does a loader take for a batch?",
    )
    experiment.columns = COLUMNS
    experiment.better, experiment.lower_is_better = "ours_us", True
    experiment.note(
        "Keras's fit of a network that computes next to nothing, batches of 64 digits scaled as a "
        "whole, auto; floor: Keras's own loop with the same batch, already on the device; 18 "
        "interleaved rounds, medians; where ours reads ahead, the processors' other work shows",
    )
    first = [each.name for each in session.backends.chosen]
    backends = [name for name in TITLES if importlib.util.find_spec(name)]
    specs = [
        RowSpec(
            framework=f"Keras on {TITLES[backend]}",
            loader="a batch's cost",
            workers="",
            ours=True,
            program="benchmarks.experiments.batch_cost",
            options={"backend": backend, "short": session.size == "smoke"},
            limit_seconds=LIMIT_SECONDS,
            backend=backend,
        )
        for backend in (backends if session.all_rows and session.size != "smoke" else first)
    ]
    runs = session.sweep(experiment, specs, repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        if "share" in run.metrics:
            session.judge(experiment, SHARE, run.metrics["share"], of=run.framework)
