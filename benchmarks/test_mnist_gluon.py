"""The MNIST sweeps for Gluon: the blog post's script behind each loader, on how many cores."""

from __future__ import annotations

import importlib.util

import pytest

from adapters.machine import gpu_names
from benchmarks.experiments.mnist_sweep import PACED_NOTE, Contestants, cpu_sweep, worker_sweep
from benchmarks.experiments.steps import LENET, PACED
from benchmarks.harness.results import Run
from benchmarks.harness.sweeps import Session

VERBATIM, TO_TENSOR = OURS = ("gluon_loader verbatim", "gluon_loader ToTensor")
PROCESSES, THREADS = ("DataLoader processes", "DataLoader threads")
GLUON = Contestants(
    framework="Gluon",
    program="benchmarks.experiments.mnist_gluon",
    ours=OURS,
    others=(PROCESSES, THREADS),
    auto=OURS,
    few={
        LENET: (
            *((VERBATIM, "auto"), (TO_TENSOR, "auto"), (VERBATIM, 0), (VERBATIM, 2)),
            *((PROCESSES, 0), (PROCESSES, 2), (THREADS, 2)),
        ),
        PACED: (
            (TO_TENSOR, "auto"),
            *((loader, workers) for loader in (VERBATIM, PROCESSES) for workers in (0, 2, 4, 6)),
        ),
    },
    best=THREADS,
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
    "published: 60,000 digits, MXNet 1.0 on a V100, which can't be repeated on a newer GPU than "
    "one of compute capability 8.6, as MXNet's wheels hold no code for it"
)


needs_mxnet = pytest.mark.skipif(
    importlib.util.find_spec("mxnet") is None, reason="MXNet has no wheels for this Python"
)


@needs_mxnet
def test_worker_sweep(session: Session) -> None:
    """Every row of this package's loaders ends well; behind all that end, LeNet learns."""
    experiment, runs = worker_sweep(session, GLUON, LENET, NOTE)
    if runs:
        experiment.runs += published("Gluon")
    if gpu_names() and any(run.device.startswith("CPU") for run in runs):
        experiment.note(
            f"Gluon's rows train on the CPU: MXNet's wheel can't use {' and '.join(gpu_names())}"
        )


@needs_mxnet
def test_paced_sweep(session: Session) -> None:
    """The same behind a step that lasts as long as the post's, beside the published column."""
    experiment, runs = worker_sweep(session, GLUON, PACED, PACED_NOTE)
    if runs:
        experiment.runs += published(f"Gluon, {PACED}")


@needs_mxnet
@pytest.mark.long
def test_cpu_sweep(session: Session) -> None:
    """On one core and on more, this package's loaders end well, and LeNet learns behind all."""
    cpu_sweep(session, GLUON)


def published(framework: str) -> list[Run]:
    """The blog post's own figures, beside the rows of this framework."""
    return [
        Run(
            framework=framework,
            loader="published, V100",
            workers=workers,
            ours=False,
            metrics={
                "epoch_seconds": train,
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
