"""The MNIST sweeps, whichever the framework: their sizes, their rows, what they must reach.

One goes over numbers of workers, on all cores; the other over cores, with a worker for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.data.digits import find_digits
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.results import Experiment, Run
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

WORKER_SWEEP = "mnist"  # The experiment over numbers of workers.
AUTO = " auto"  # Ends the names of loaders that choose their workers, where the axis is the cores.


@dataclass(frozen=True)
class Size:
    """How large a sweep.

    Args:
        workers: The numbers of workers.
        train: Training digits.
        test: Test digits.
        repeats: How many times each row of the worker sweep runs, with a seed each: so many make
            the spread of its accuracy.
        cpu_repeats: The same for the sweep over cores.
        limit_seconds: For each row.
        least_accuracy: What LeNet must reach behind every loader, if its batches are what they
            should be. MNIST's own digits are as easy for it as the substitute's.
    """

    workers: tuple[int, ...]
    train: int
    test: int
    repeats: int
    cpu_repeats: int
    limit_seconds: float
    least_accuracy: float


SIZES = {
    "smoke": Size((2,), 1_000, 500, 1, 1, 60, 0.0),
    "default": Size((0, 2), 6_000, 1_000, 3, 1, 60, 0.7),
    "full": Size((0, 2, 4, 6, 8), 60_000, 10_000, 5, 5, 600, 0.97),
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
        best: Of the framework's own, the one that the published size found fastest.
        keras: Whether the framework is Keras, with a backend.
    """

    framework: str
    program: str
    ours: tuple[str, ...]
    others: tuple[str, ...]
    auto: tuple[str, ...]
    twin: str
    best: str
    keras: bool = False

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
    experiment = session.experiment(
        WORKER_SWEEP,
        "MNIST worker sweep: LeNet, one epoch",
        "Which loader, with how many workers, trains LeNet soonest?",
    )
    options = _options(session, experiment, note)
    specs = [
        RowSpec(
            framework=contestants.framework,
            loader=loader,
            workers=workers,
            ours=loader in contestants.ours,
            program=contestants.program,
            options=options,
            limit_seconds=SIZES[session.size].limit_seconds,
            trains_keras=contestants.keras,
        )
        for loader, workers in contestants.rows(SIZES[session.size], session)
    ]
    return experiment, _sweep(session, experiment, specs, SIZES[session.size].repeats)


def cpu_sweep(session: Session, contestants: Contestants) -> list[Run]:
    """Run the rows on 1, 2, 4 ... cores, and check that every row of this package's ends well.

    The default size has this package's loaders, which choose their workers, and the framework's
    best with a worker for each core; the published size has all loaders.

    Args:
        session: What was asked for.
        contestants: Whose rows.

    Returns:
        The runs, which have learnt enough.
    """
    experiment = session.experiment(
        "mnist-cpus",
        "MNIST on so many cores: LeNet, one epoch",
        "What does the number of CPU cores change?",
    )
    experiment.axis = "CPU cores"
    note = (
        "a worker for each core, or as many as the loader chooses: auto; on all cores, rows of the "
        "worker sweep, where it ran"
    )
    options = _options(session, experiment, note)
    named = contestants.ours + contestants.others if session.size == "full" else (contestants.best,)
    counts = cpu_counts(usable_cpus(), session.size)
    asked = [(loader, "auto", cpus) for loader in contestants.auto for cpus in counts]
    asked += [(loader, cpus, cpus) for loader in named for cpus in counts]
    specs = []
    for loader, workers, cpus in asked:
        name = loader + AUTO if workers == "auto" else loader
        done = _done(session, contestants, loader, workers) if cpus == usable_cpus() else []
        experiment.runs += [replace(run, loader=name, workers=cpus) for run in done]
        if done:
            continue
        specs.append(
            RowSpec(
                framework=contestants.framework,
                loader=name,
                workers=cpus,
                ours=loader in contestants.ours,
                program="benchmarks.experiments.mnist_cpus",
                options={
                    **options,
                    "program": contestants.program,
                    "contestant": loader,
                    "asked": workers,
                },
                limit_seconds=SIZES[session.size].limit_seconds,
                cpus=cpus,
                trains_keras=contestants.keras,
            )
        )
    return _sweep(session, experiment, specs, SIZES[session.size].cpu_repeats)


def _done(session: Session, contestants: Contestants, loader: str, workers: int | str) -> list[Run]:
    """The worker sweep's runs of a row, which had all cores.

    None where rows were asked for, or may be asked to run again as they look slower than before.
    """
    if session.rows or session.least_repeats > 1 or WORKER_SWEEP not in session.experiments:
        return []
    return [
        run
        for run in session.experiments[WORKER_SWEEP].runs
        # Behind the framework may be a backend's name.
        if run.framework.startswith(contestants.framework)
        and (run.loader, run.workers) == (loader, workers)
    ]


def cpu_counts(usable: int, size: str) -> Sequence[int]:
    """1, 2, 4 and so on, and all of them; the smallest size has one core only."""
    if size == "smoke":
        return (1,)
    powers = [1 << place for place in range(usable.bit_length())]
    return sorted({*powers, usable})


def _options(session: Session, experiment: Experiment, note: str) -> dict[str, object]:
    """The rows' options; also notes them for the reader of the table."""
    size = SIZES[session.size]
    with session.uncaptured():
        digits = find_digits(session.data_dir)
    data = f"digits: {digits.name}; {size.train:,} to train on, {size.test:,} to test on"
    experiment.note(data, note)
    return {"digits": str(digits.path), "train": size.train, "test": size.test}


def _sweep(
    session: Session, experiment: Experiment, specs: list[RowSpec], repeats: int
) -> list[Run]:
    size = SIZES[session.size]
    runs = session.sweep(experiment, specs, repeats)
    assert our_failures(runs) == []
    learnt = [(run.metrics["accuracy"], run.name) for run in runs if run.failure is None]
    assert [each for each in learnt if each[0] < size.least_accuracy] == []
    return runs
