"""The MNIST sweeps for Keras: how fast LeNet trains behind each loader, on how many cores."""

from __future__ import annotations

from benchmarks.mnist_sweep import Contestants, cpu_sweep, worker_sweep
from benchmarks.sweeps import Session

KERAS = Contestants(
    framework="Keras",
    program="benchmarks.mnist_keras",
    ours=("SafeSequence threads", "SafeSequence processes"),
    others=("PyDataset threads", "PyDataset processes", "tf.data"),
    auto=("SafeSequence threads",),
    twin="processes",
    best="PyDataset threads",
)


def test_worker_sweep(session: Session) -> None:
    """Every row of this package's loaders ends well; behind all that end, LeNet learns."""
    worker_sweep(
        session,
        KERAS,
        "train s: one epoch with the start of the workers, without compilation; "
        "waited: in the training loop, for batches; PSS and CPU: of all processes",
    )


def test_cpu_sweep(session: Session) -> None:
    """On one core and on more, this package's loaders end well, and LeNet learns behind all."""
    cpu_sweep(session, KERAS)
