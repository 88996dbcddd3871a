"""The MNIST sweeps for Keras: how fast LeNet trains behind each loader, on how many cores."""

from __future__ import annotations

import importlib.util

from benchmarks.experiments.mnist_sweep import Contestants, cpu_sweep, worker_sweep
from benchmarks.harness.sweeps import Session

TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
NOTE = (
    "train s: one epoch with the start of the workers, without compilation; "
    "waited: in the training loop, for batches; PSS and CPU: of all processes; "
    "accuracy: mean ± standard deviation over n seeds"
)
KERAS = Contestants(
    framework="Keras",
    program="benchmarks.experiments.mnist_keras",
    ours=("SafeSequence threads", "SafeSequence processes"),
    others=("PyDataset threads", "PyDataset processes", *(["tf.data"] if TENSORFLOW else [])),
    auto=("SafeSequence threads",),
    twin="processes",
    best="PyDataset threads",
    keras=True,
)


def test_worker_sweep(session: Session) -> None:
    """Every row of this package's loaders ends well; behind all that end, LeNet learns."""
    absent = "" if TENSORFLOW else "; not run, as tensorflow isn't installed: tf.data"
    worker_sweep(session, KERAS, NOTE + absent)


def test_cpu_sweep(session: Session) -> None:
    """On one core and on more, this package's loaders end well, and LeNet learns behind all."""
    cpu_sweep(session, KERAS)
