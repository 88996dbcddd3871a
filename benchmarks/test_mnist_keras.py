"""The MNIST worker sweep for Keras: how fast LeNet trains behind each loader."""

from __future__ import annotations

from benchmarks.mnist_sweep import Contestants, worker_sweep
from benchmarks.sweeps import Session

KERAS = Contestants(
    framework="Keras",
    program="benchmarks.mnist_keras",
    ours=("SafeSequence threads", "SafeSequence processes"),
    others=("PyDataset threads", "PyDataset processes", "tf.data"),
    auto=("SafeSequence threads",),
    twin="processes",
)


def test_worker_sweep(session: Session) -> None:
    """Every row of this package's loaders ends well; behind all that end, LeNet learns."""
    worker_sweep(
        session,
        KERAS,
        "train s: one epoch with the start of the workers, without compilation; "
        "waited: in the training loop, for batches; PSS and CPU: of all processes",
    )
