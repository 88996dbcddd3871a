"""The MNIST worker sweep for Gluon: how fast the blog post's script trains behind each loader."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import pytest

from benchmarks.digits import find_digits
from benchmarks.results import Run
from benchmarks.sweeps import RowSpec, Session, our_failures

OURS = ("gluon_loader verbatim", "gluon_loader ToTensor")
OTHERS = ("DataLoader processes", "DataLoader threads")
# Workers: seconds of training and of evaluation, as published for 60,000 and 10,000 digits.
PUBLISHED = {
    0: (12.96, 4.154),
    2: (6.167, 2.499),
    4: (4.04, 2.589),
    6: (3.765, 2.61),
    8: (3.94, 2.666),
}
PUBLISHED_ACCURACY = 0.98


@dataclass(frozen=True)
class Size:
    """How large a sweep; as in the Keras half."""

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


@pytest.mark.skipif(
    importlib.util.find_spec("mxnet") is None, reason="MXNet has no wheels for this Python"
)
def test_worker_sweep(session: Session) -> None:
    """Every row of this package's loaders ends well and learns; the others' rows are reported."""
    size = SIZES[session.size]
    with session.uncaptured():
        digits = find_digits(session.data_dir)
    experiment = session.experiment("mnist", "MNIST worker sweep: LeNet, one epoch")
    for note in (
        f"digits: {digits.name}; {size.train:,} to train on, {size.test:,} to test on",
        "published: 60,000 digits, MXNet 1.0 on a V100",
    ):
        if note not in experiment.notes:
            experiment.notes.append(note)
    options = {"digits": str(digits.path), "train": size.train, "test": size.test}
    rows: list[tuple[str, int | str]] = [(loader, "auto") for loader in OURS]
    rows += [
        (loader, workers)
        for loader in OURS + OTHERS
        for workers in size.workers
        # Without workers, both kinds are one, which only the published table shows twice.
        if workers or session.size == "full" or not loader.endswith("threads")
    ]
    specs = [
        RowSpec(
            framework="Gluon",
            loader=loader,
            workers=workers,
            ours=loader in OURS,
            program="benchmarks.mnist_gluon",
            options=options,
            limit_seconds=size.limit_seconds,
        )
        for loader, workers in rows
    ]
    runs = session.sweep(experiment, specs, size.repeats)
    if runs:
        experiment.runs += published()
    assert our_failures(runs) == []
    accuracies = [(run.metrics["accuracy"], run.name) for run in runs if run.ours]
    assert [each for each in accuracies if each[0] < size.least_accuracy] == []


def published() -> list[Run]:
    """The blog post's own figures, beside ours."""
    return [
        Run(
            framework="Gluon",
            loader="published, V100",
            workers=workers,
            ours=False,
            metrics={
                "train_seconds": train,
                "eval_seconds": evaluation,
                "accuracy": PUBLISHED_ACCURACY,
                "samples_per_second": 60_000 / train,
            },
            software="",
            device="",
            failure=None,
            log="",
        )
        for workers, (train, evaluation) in PUBLISHED.items()
    ]
