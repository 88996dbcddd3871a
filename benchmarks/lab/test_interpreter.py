"""The interpreter's share: of a picture, nearly all must be left to as many cores as there are."""

from __future__ import annotations

import pytest

from adapters.images import kernel
from benchmarks.harness.results import Column
from benchmarks.harness.sweeps import RowSpec, Session, our_failures
from benchmarks.lab.experiments.interpreter import CORES, SOURCES

COLUMNS = (
    Column("held_us", "held us", ".2f"),
    Column("first_us", "held us, first pass", ".1f"),
    Column("whole_us", "CPU us", ".0f"),
    Column("share", "share", ".2%"),
    *(Column(f"cores_{cores}", f"{cores} cores at best", ".1f") for cores in CORES),
    Column("most_cores", "any number at best", ",.0f"),
)
PASSES = {"smoke": 1, "default": 5, "full": 11}
BATCHES = (64, 256)
HELD = "interpreter: held, us a picture"  # Has a bar.
LIMIT_SECONDS = 120


@pytest.mark.parametrize("source", SOURCES)
def test_interpreter(session: Session, source: str) -> None:
    """Every row ends well; of 270 us that a picture takes, 3 make 16 cores worth 13.6 or more."""
    if kernel.load() is None:
        pytest.skip("without the native kernel, other libraries decode")
    experiment = session.experiment(
        "interpreter",
        "The interpreter's share of a JPEG",
        "For how long does a JPEG hold the lock that all threads share?",
    )
    experiment.columns = COLUMNS
    experiment.better, experiment.lower_is_better = "held_us", True
    specs = [
        RowSpec(
            framework="Keras",
            loader=f"{source}, batches of {batch}",
            workers="0",
            ours=True,
            program="benchmarks.lab.experiments.interpreter",
            options={"source": source, "batch": batch, "passes": PASSES[session.size]},
            limit_seconds=LIMIT_SECONDS,
        )
        for batch in BATCHES
    ]
    runs = session.sweep(experiment, specs, 1)
    assert our_failures(runs) == []
    for run in runs:
        session.judge(experiment, HELD, run.metrics["held_us"], of=run.loader)
