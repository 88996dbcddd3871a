"""The MNIST sweeps for Gluon: the blog post's script behind each loader, on how many cores."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.experiments.mnist_sweep import Contestants, cpu_sweep, worker_sweep
from benchmarks.harness.results import Run
from benchmarks.harness.sweeps import Session

OURS = ("gluon_loader verbatim", "gluon_loader ToTensor")
GLUON = Contestants(
    framework="Gluon",
    program="benchmarks.experiments.mnist_gluon",
    ours=OURS,
    others=("DataLoader processes", "DataLoader threads"),
    auto=OURS,
    twin="threads",
    best="DataLoader threads",
)
# Workers: seconds of training and of evaluation, as published for 60,000 and 10,000 digits.
PUBLISHED = {
    0: (12.96, 4.154),
    2: (6.167, 2.499),
    4: (4.04, 2.589),
    6: (3.765, 2.61),
    8: (3.94, 2.666),
}
PUBLISHED_ACCURACY = 0.98
NOTE = (
    "accuracy: mean ± standard deviation over n seeds; "
    "published: 60,000 digits, MXNet 1.0 on a V100"
)


needs_mxnet = pytest.mark.skipif(
    importlib.util.find_spec("mxnet") is None, reason="MXNet has no wheels for this Python"
)


@needs_mxnet
def test_worker_sweep(session: Session) -> None:
    """Every row of this package's loaders ends well; behind all that end, LeNet learns."""
    experiment, runs = worker_sweep(session, GLUON, NOTE)
    if runs:
        experiment.runs += published()


@needs_mxnet
def test_cpu_sweep(session: Session) -> None:
    """On one core and on more, this package's loaders end well, and LeNet learns behind all."""
    cpu_sweep(session, GLUON)


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
