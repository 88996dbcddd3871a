"""The MNIST sweeps, whichever the framework: their sizes, their rows, what they must reach.

One goes over numbers of workers, on all cores, with LeNet, with a paced step or with a simulated
device in its place; the other over cores, with a worker for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.data.digits import find_digits
from benchmarks.experiments.steps import EPOCH, LENET, PACED, SIMULATED
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.results import SPEED, TRAINING_COLUMNS, Column, Experiment, Run
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

WORKER_SWEEP = "mnist"  # The experiment over numbers of workers.
AUTO = " auto"  # Ends the names of loaders that choose their workers, if the axis is the cores.
COLUMNS = (Column("epoch_seconds", f"{EPOCH:,} digits s", ".2f"), *TRAINING_COLUMNS)
NUMBERS = (0, 2, 4, 6, 8)  # of workers, as published
LONG = (0, 2, 4)
# Of an epoch: 300 steps of 4.0 ms, and the published epoch, which takes a fraction of a second.
_DIGITS = {PACED: 19_200, SIMULATED: EPOCH}
PACED_NOTE = (
    f"{PACED}: a step of 4.0 ms in the place of LeNet's, as long as the article's V100 took for 64 "
    "digits at best"
)
SIMULATED_NOTE = (
    f"{SIMULATED}: Keras's own step of a network that computes next to nothing in the place of "
    "LeNet's, so that a row has what the loader and Keras cost"
)


@dataclass(frozen=True)
class Size:
    """How large a sweep.

    Args:
        train: Training digits.
        test: Test digits.
        repeats: How many times each row runs, with a seed each: so many make the spread of its
            accuracy.
        limit_seconds: For each row.
        least_accuracy: What LeNet must reach behind every loader, if its batches are what they
            should be. MNIST's own digits are as easy for it as the substitute's.
    """

    train: int
    test: int
    repeats: int
    limit_seconds: float
    least_accuracy: float


SIZES = {
    "smoke": Size(1_000, 500, 1, 180, 0.0),
    "default": Size(6_000, 1_000, 1, 180, 0.7),
    "full": Size(60_000, 10_000, 5, 600, 0.97),
}
Rows = tuple[tuple[str, int | str], ...]


@dataclass(frozen=True)
class Contestants:
    """The loaders of one framework.

    Args:
        framework: Its name in the table.
        program: The module whose `measure` a row calls.
        ours: This package's loaders.
        others: The framework's own, and the peers.
        auto: Those that also run with `"auto"` workers.
        few: By step, the loaders and workers that the default size has.
        best: Of the framework's own, the one that the published size found fastest.
        keras: Whether the framework is Keras, with a backend.
    """

    framework: str
    program: str
    ours: tuple[str, ...]
    others: tuple[str, ...]
    auto: tuple[str, ...]
    few: dict[str, Rows]
    best: str
    keras: bool = False

    def rows(self, session: Session, step: str) -> Rows:
        """Loaders and workers; the published size and `--rows` have all of them."""
        if session.size == "smoke":  # Each loader once.
            return tuple(dict(self.few[step]).items())
        if not session.all_rows:
            return self.few[step]
        numbers = NUMBERS if session.size == "full" or session.rows else LONG
        numbered = [(loader, n) for loader in self.ours + self.others for n in numbers]
        return (*((loader, "auto") for loader in self.auto), *numbered)


def worker_sweep(
    session: Session, contestants: Contestants, step: str, note: str
) -> tuple[Experiment, list[Run]]:
    """Run the sweep, and check that every row of this package's loaders ends well.

    Args:
        session: What was asked for.
        contestants: Whose rows.
        step: What is trained, as in `benchmarks.experiments.steps`.
        note: For the reader of the table.

    Returns:
        The experiment, and the runs that were added to it, which have learnt enough.
    """
    experiment = session.experiment(
        WORKER_SWEEP,
        "MNIST worker sweep: LeNet, one epoch",
        "Which loader, with how many workers, trains LeNet soonest?",
    )
    experiment.columns = COLUMNS
    options = _options(session, experiment, note)
    if session.size == "default" and step in _DIGITS:
        options["train"] = _DIGITS[step]
    specs = [
        RowSpec(
            framework=contestants.framework
            if step == LENET
            else f"{contestants.framework}, {step}",
            loader=loader,
            workers=workers,
            ours=loader in contestants.ours,
            program=contestants.program,
            options={**options, "step": step},
            limit_seconds=SIZES[session.size].limit_seconds,
            trains_keras=contestants.keras,
        )
        for loader, workers in contestants.rows(session, step)
    ]
    runs = _sweep(session, experiment, specs, SIZES[session.size].repeats)
    on_gpu = contestants.keras and step == LENET and session.backends.chosen[0].on_gpu
    if step == SIMULATED or on_gpu:
        for framework in dict.fromkeys(run.framework for run in runs):
            claims(session, experiment, framework)
    return experiment, runs


def claims(session: Session, experiment: Experiment, framework: str) -> None:
    """Hold the sweep's rows against its peers', whose bars the reference has.

    Args:
        session: Judges.
        experiment: Whose rows.
        framework: Of the rows, as the table has it.
    """
    rows = [row for row in experiment.rows() if row.framework == framework]
    speeds = {(row.loader, row.workers): row.medians[SPEED] for row in rows if SPEED in row.medians}
    ours = {row: speed for row, speed in speeds.items() if row[0].startswith("SafeSequence")}
    peers = {row: speed for row, speed in speeds.items() if row[0].startswith("PyDataset")}
    for (loader, workers), speed in ours.items():
        peer = peers.get((loader.replace("SafeSequence", "PyDataset"), workers))
        if peer is not None:
            of = f"{framework}, {loader}, {workers}"
            session.judge(experiment, "mnist: to PyDataset of that kind", speed / peer, of=of)
    for kind in ("vectorised", "threads"):
        auto = speeds.get((f"SafeSequence {kind}", "auto"))
        alike = [
            speed
            for (loader, _), speed in speeds.items()
            if loader != "tf.data" and loader.endswith("vectorised") == (kind == "vectorised")
        ]
        if auto is not None:
            of = f"{framework}, {kind}"
            best = auto / max(alike)
            session.judge(experiment, "mnist: auto to the best row of its work", best, of=of)
    vectorised = speeds.get(("SafeSequence vectorised", "auto"))
    if vectorised is not None and peers:
        times = vectorised / max(peers.values())
        row = "mnist: vectorised auto to PyDataset's best row"
        session.judge(experiment, row, times, of=framework)


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
    experiment.axis, experiment.columns = "CPU cores", COLUMNS
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
                    "step": LENET,
                    "program": contestants.program,
                    "contestant": loader,
                    "asked": workers,
                },
                limit_seconds=SIZES[session.size].limit_seconds,
                cpus=cpus,
                trains_keras=contestants.keras,
            )
        )
    return _sweep(session, experiment, specs, SIZES[session.size].repeats)


def _done(session: Session, contestants: Contestants, loader: str, workers: int | str) -> list[Run]:
    """The worker sweep's runs of a row, which had all cores.

    None where rows were asked for, or may be asked to run again as they look slower than before.
    """
    if session.rows or session.least_repeats > 1 or WORKER_SWEEP not in session.experiments:
        return []
    return [
        run
        for run in session.experiments[WORKER_SWEEP].runs
        # Behind the framework may be a backend's name, or another step's behind a comma.
        if run.framework.partition(" on ")[0] == contestants.framework
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
    learnt = [(run.metrics["accuracy"], run.name) for run in runs if "accuracy" in run.metrics]
    assert [each for each in learnt if each[0] < size.least_accuracy] == []
    return runs
