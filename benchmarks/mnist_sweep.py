"""The MNIST worker sweep, whichever the framework: its sizes, its rows, what they must reach."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.digits import find_digits
from benchmarks.results import Experiment, Run
from benchmarks.sweeps import RowSpec, Session, our_failures


@dataclass(frozen=True)
class Size:
    """How large a sweep.

    Args:
        workers: The numbers of workers.
        train: Training digits.
        test: Test digits.
        repeats: How many times each row runs.
        limit_seconds: For each row.
        least_accuracy: What LeNet must reach behind every loader, if its batches are what they
            should be. MNIST's own digits are as easy for it as the stand-in's.
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


@dataclass(frozen=True)
class Contestants:
    """The loaders of one framework.

    Args:
        framework: Its name in the table.
        program: The module whose `measure` a row calls.
        ours: This package's loaders.
        others: The framework's own, and the peers.
        auto: Those that also run with `"auto"` workers.
        twin: The end of the names that differ from another's only where there are workers.
    """

    framework: str
    program: str
    ours: tuple[str, ...]
    others: tuple[str, ...]
    auto: tuple[str, ...]
    twin: str

    def rows(self, size: Size, session: Session) -> list[tuple[str, int | str]]:
        """Loaders and workers; only the published table shows twins twice without workers."""
        rows: list[tuple[str, int | str]] = [(loader, "auto") for loader in self.auto]
        return rows + [
            (loader, workers)
            for loader in self.ours + self.others
            for workers in size.workers
            if workers or session.size == "full" or not loader.endswith(self.twin)
        ]


def worker_sweep(
    session: Session, contestants: Contestants, note: str
) -> tuple[Experiment, list[Run]]:
    """Run the sweep, and check that every row of this package's loaders ends well.

    Args:
        session: What was asked for.
        contestants: Whose rows.
        note: For the reader of the table.

    Returns:
        The experiment, and the runs that were added to it, which have learnt enough.
    """
    size = SIZES[session.size]
    with session.uncaptured():
        digits = find_digits(session.data_dir)
    experiment = session.experiment("mnist", "MNIST worker sweep: LeNet, one epoch")
    data = f"digits: {digits.name}; {size.train:,} to train on, {size.test:,} to test on"
    experiment.notes += [each for each in (data, note) if each not in experiment.notes]
    specs = [
        RowSpec(
            framework=contestants.framework,
            loader=loader,
            workers=workers,
            ours=loader in contestants.ours,
            program=contestants.program,
            options={"digits": str(digits.path), "train": size.train, "test": size.test},
            limit_seconds=size.limit_seconds,
        )
        for loader, workers in contestants.rows(size, session)
    ]
    runs = session.sweep(experiment, specs, size.repeats)
    assert our_failures(runs) == []
    learnt = [(run.metrics["accuracy"], run.name) for run in runs if run.failure is None]
    assert [each for each in learnt if each[0] < size.least_accuracy] == []
    return experiment, runs
