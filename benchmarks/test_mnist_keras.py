"""The MNIST sweeps for Keras: how fast LeNet trains behind each loader, on how many cores."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.experiments.mnist_sweep import (
    PACED_NOTE,
    SIMULATED_NOTE,
    Contestants,
    cpu_sweep,
    worker_sweep,
)
from benchmarks.experiments.steps import LENET, PACED, SIMULATED
from benchmarks.harness.sweeps import Session

TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
NOTE = (
    "train s: one epoch with the start of the workers, without compilation; waited: in the "
    "training loop, for batches; PSS and CPU: of all processes; accuracy: mean ± standard "
    "deviation over n seeds; vectorised: a whole batch is scaled at once, not sample by sample"
)
VECTORISED, THREADS, PROCESSES = (
    f"SafeSequence {kind}" for kind in ("vectorised", "threads", "processes")
)
PEER_VECTORISED, PEER_THREADS, PEER_PROCESSES = (
    f"PyDataset {kind}" for kind in ("vectorised", "threads", "processes")
)
SIMULATED_ROWS = (
    *((loader, workers) for loader in (VECTORISED, THREADS) for workers in ("auto", 0, 2)),
    *((loader, workers) for loader in (PEER_VECTORISED, PEER_THREADS) for workers in (0, 2)),
)
KERAS = Contestants(
    framework="Keras",
    program="benchmarks.experiments.mnist_keras",
    ours=(VECTORISED, THREADS, PROCESSES),
    others=(
        PEER_VECTORISED,
        PEER_THREADS,
        PEER_PROCESSES,
        *(["tf.data"] if TENSORFLOW else []),
    ),
    auto=(VECTORISED, THREADS),
    few={
        LENET: (
            *((VECTORISED, "auto"), (THREADS, "auto"), (THREADS, 0), (THREADS, 2)),
            *((PROCESSES, 2), (PEER_VECTORISED, 0), (PEER_THREADS, 0), (PEER_THREADS, 2)),
            *((PEER_PROCESSES, 2), *([("tf.data", 2)] if TENSORFLOW else [])),
        ),
        PACED: ((VECTORISED, "auto"), (THREADS, 0), (PEER_THREADS, 0)),
        SIMULATED: SIMULATED_ROWS,
    },
    best=PEER_THREADS,
    keras=True,
)


def test_worker_sweep(session: Session) -> None:
    """Every row of this package's loaders ends well; behind all that end, LeNet learns."""
    absent = "" if TENSORFLOW else "; not run, as tensorflow isn't installed: tf.data"
    worker_sweep(session, KERAS, LENET, NOTE + absent)


def test_paced_sweep(session: Session) -> None:
    """The same behind a step that lasts as long as the article's."""
    worker_sweep(session, KERAS, PACED, PACED_NOTE)


@pytest.mark.long
def test_simulated_device(session: Session) -> None:
    """The same behind a step that computes next to nothing: what is tuned without a GPU."""
    worker_sweep(session, KERAS, SIMULATED, SIMULATED_NOTE)


@pytest.mark.long
def test_cpu_sweep(session: Session) -> None:
    """On one core and on more, this package's loaders end well, and LeNet learns behind all."""
    cpu_sweep(session, KERAS)
