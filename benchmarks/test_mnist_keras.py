"""The MNIST worker sweep for Keras: how fast LeNet trains behind each loader."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.digits import find_digits
from benchmarks.sweeps import RowSpec, Session, our_failures

OURS = ("SafeSequence threads", "SafeSequence processes")
OTHERS = ("PyDataset threads", "PyDataset processes", "tf.data")


@dataclass(frozen=True)
class Size:
    """How large a sweep.

    Args:
        workers: The numbers of workers.
        train: Training digits.
        test: Test digits.
        repeats: How many times each row runs.
        limit_seconds: For each row.
        least_accuracy: What LeNet must reach behind every loader of this package, if its batches
            are what they should be.
    """

    workers: tuple[int, ...]
    train: int
    test: int
    repeats: int
    limit_seconds: float
    least_accuracy: float


SIZES = {
    "smoke": Size((2,), 1_000, 500, 1, 60, 0.0),
    "default": Size((0, 2), 6_000, 1_000, 1, 60, 0.7),
    "full": Size((0, 2, 4, 6, 8), 60_000, 10_000, 5, 600, 0.97),
}


def test_worker_sweep(session: Session) -> None:
    """Every row of this package's loaders ends well and learns; the others' rows are reported."""
    size = SIZES[session.size]
    with session.uncaptured():
        digits = find_digits(session.data_dir)
    experiment = session.experiment("mnist", "MNIST worker sweep: LeNet, one epoch")
    for note in (
        f"digits: {digits.name}; {size.train:,} to train on, {size.test:,} to test on",
        "train s: one epoch with the start of the workers, without compilation; "
        "waited: in the training loop, for batches; PSS and CPU: of all processes",
    ):
        if note not in experiment.notes:
            experiment.notes.append(note)
    options = {"digits": str(digits.path), "train": size.train, "test": size.test}
    rows: list[tuple[str, int | str]] = [(OURS[0], "auto")]
    rows += [
        (loader, workers)
        for loader in OURS + OTHERS
        for workers in size.workers
        # Without workers, both kinds are one, which only the published table shows twice.
        if workers or session.size == "full" or not loader.endswith("processes")
    ]
    specs = [
        RowSpec(
            framework="Keras",
            loader=loader,
            workers=workers,
            ours=loader in OURS,
            program="benchmarks.mnist_keras",
            options=options,
            limit_seconds=size.limit_seconds,
        )
        for loader, workers in rows
    ]
    runs = session.sweep(experiment, specs, size.repeats)
    assert our_failures(runs) == []
    # MNIST's own digits are as easy for LeNet as the stand-in's.
    accuracies = [(run.metrics["accuracy"], run.name) for run in runs if run.ours]
    assert [each for each in accuracies if each[0] < size.least_accuracy] == []
