"""Our loaders and everybody's, on the same pictures: `pytest benchmarks --peers`."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.data.photographs import find_photographs
from benchmarks.experiments.every_loader import LOADERS, WORKS, check
from benchmarks.harness.ratios import BATCH
from benchmarks.harness.results import Column
from benchmarks.harness.sweeps import RowSpec, Session, our_failures
from benchmarks.peers.pictures import EVAL, SIDE, TRAIN

pytestmark = pytest.mark.peers

COLUMNS = (
    Column("samples_per_second", "samples/s", ",.0f"),
    Column("peak_pss_mib", "peak PSS MiB", ",.0f"),
    Column("cpu_percent", "CPU %", ",.0f"),
)
NOTE = (
    "2,000 JPEG pictures of 500x375, batches of 64 as uint8 224x224; train: random boxes, flipped, "
    "shuffled; eval: the centre, in order; the range is that of the rounds of a process"
)
SIZES = {  # "auto" takes up to a dozen batches to choose: they are skipped.
    "smoke": {"skipped": 1, "rounds": 1, "seconds": 0.0},
    "default": {"skipped": 14, "rounds": 5, "seconds": 0.8},
    "full": {"skipped": 14, "rounds": 5, "seconds": 5.0},
}
REPEATS = {"smoke": 1, "default": 1, "full": 3}
LIMIT_SECONDS = 120


@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("work", WORKS)
def test_peers(session: Session, work: str) -> None:
    """Every row of this package's loaders ends well; in the smoke size, every row."""
    asked = session.peers or "peers" in session.rows.lower()
    if session.size == "default" and not asked:
        pytest.skip("not of the default size: with --peers, with --full, or named by --rows")
    with session.uncaptured():
        find_photographs()
    experiment = session.experiment("peers", "Peers: pictures from JPEG, everybody's loaders")
    experiment.columns = COLUMNS
    experiment.panels = ()  # What one loader's workers are is not what another's are.
    notes = [NOTE]
    notes += [
        f"not run, as {each.module}, or what it needs, isn't installed: {name}"
        for name, each in LOADERS.items()
        if each.missing
    ]
    experiment.note(*notes)
    specs = [
        RowSpec(
            framework=f"peers {work}",
            loader=name,
            workers=each.workers,
            ours=each.ours,
            program="benchmarks.experiments.every_loader",
            options={"work": work, **SIZES[session.size]},
            limit_seconds=LIMIT_SECONDS,
        )
        for name, each in LOADERS.items()
        if not each.missing
    ]
    runs = session.sweep(experiment, specs, REPEATS[session.size])
    assert our_failures(runs) == []
    if session.size == "smoke":
        assert [f"{run.name}: {run.failure}\n{run.log}" for run in runs if run.failure] == []


def test_zeros_are_refused() -> None:
    """A loader that delivers nothing is no fast one."""
    zeros = np.zeros((BATCH, SIDE, SIDE, 3), np.uint8)
    labels = np.array(find_photographs().labels[:BATCH])
    with pytest.raises(ValueError, match="not the centres"):
        check((zeros, labels), EVAL)
    with pytest.raises(ValueError, match="random order"):
        check((zeros, labels[::-1]), TRAIN)


def test_other_sizes_are_refused() -> None:
    """Nor is one that delivers less."""
    with pytest.raises(ValueError, match="not uint8 pictures of 224x224: uint8"):
        check((np.zeros((BATCH, 112, 112, 3), np.uint8), np.zeros(BATCH)), TRAIN)
