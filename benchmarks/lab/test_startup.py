"""Start-up: short programs must not be slower with this package's loaders than without them."""

from __future__ import annotations

import importlib.util
import statistics
from dataclasses import dataclass

import pytest

from benchmarks.lab.experiments.startup import CALLS
from benchmarks.harness.backends import TITLES
from benchmarks.harness.results import Column, Run
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

COLUMNS = tuple(Column(call, f"{call} s", ".2f") for call in CALLS)
PANELS = tuple((call, f"{call} call, seconds") for call in CALLS)
REPEATS = {"smoke": 1, "default": 3, "full": 11}
LIMIT_SECONDS = 120


@dataclass(frozen=True)
class Program:
    """A program, and what it may take.

    Args:
        case: Its name in `benchmarks.lab.experiments.startup`.
        backends: Of Keras, or "mxnet".
        ours: What it is called with this package's loader.
        stock: And without.
        ratio: Of our median to the other's, for the calls that are `held`; None leaves it to
            `seconds`.
        seconds: That our median may be above the other's; None leaves it to `ratio`.
        most_seconds: Of ours, whatever the other takes.
        held: The calls that this is said of.
        full_backends: Those that the default size leaves out.
    """

    case: str
    backends: tuple[str, ...]
    ours: str
    stock: str
    held: tuple[str, ...]
    ratio: float | None = None
    seconds: float | None = None
    most_seconds: float | None = None
    full_backends: tuple[str, ...] = ()

    def allowed(self, stock_seconds: float) -> float:
        """What ours may take where the other takes so long."""
        limits = [
            None if self.ratio is None else self.ratio * stock_seconds,
            None if self.seconds is None else self.seconds + stock_seconds,
            self.most_seconds,
        ]
        return min(limit for limit in limits if limit is not None)


KERAS = ("SafeSequence", "PyDataset")
PROGRAMS = (
    Program("small fit", tuple(TITLES), *KERAS, held=CALLS[:1], ratio=1.2),
    Program(
        "fit with 2 processes",
        ("jax",),
        *KERAS,
        held=CALLS[1:],
        seconds=0.2,
        full_backends=("tensorflow", "torch"),
    ),
    Program("fit that reads", ("jax",), *KERAS, held=CALLS, ratio=1.0),
    Program(
        "loader for each fold",
        ("mxnet",),
        "gluon_loader",
        "DataLoader",
        held=CALLS[1:],
        most_seconds=0.3,
    ),
    # A twentieth is what two runs of one program differ by.
    Program("import to first batch", ("jax",), *KERAS, held=CALLS[1:], ratio=1.05),
    Program(
        "import to first batch of tf.data",
        ("tensorflow",),
        "SafeSequence",
        "tf.data",
        held=CALLS[1:],
        ratio=1.05,
    ),
)


@pytest.mark.flaky(reruns=0)  # Measuring until it is right would prove nothing.
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.case)
def test_startup(session: Session, program: Program) -> None:
    """Our median of each call that is held is within what the program may take."""
    experiment = session.experiment(
        "startup",
        "Start-up: three calls of a short program",
        "Are short programs slower, start included?",
    )
    experiment.columns, experiment.panels = COLUMNS, PANELS
    experiment.better, experiment.lower_is_better = CALLS[0], True
    backends = program.backends + (program.full_backends if session.size == "full" else ())
    installed = [name for name in backends if importlib.util.find_spec(name)]
    missing = [name for name in backends if name not in installed]
    experiment.note(*(f"not run, as {name} isn't installed: {program.case}" for name in missing))
    specs = [
        RowSpec(
            framework=f"{program.case}, {TITLES.get(backend, 'MXNet')}",
            loader=loader,
            workers="",
            ours=loader == program.ours,
            program="benchmarks.lab.experiments.startup",
            options={
                "case": program.case,
                "backend": backend,
                "ours": loader == program.ours,
                "calls": 1 if session.size == "smoke" else len(CALLS),
            },
            limit_seconds=LIMIT_SECONDS,
            shares="ours" if loader == program.ours else "stock",
        )
        for backend in installed
        for loader in (program.ours, program.stock)
    ]
    if not specs:
        pytest.skip(f"none of {', '.join(backends)} is installed")
    runs = session.sweep(experiment, specs, REPEATS[session.size])
    assert our_failures(runs) == []
    if session.size != "smoke":  # A single round says nothing.
        for framework in dict.fromkeys(spec.framework for spec in specs):
            assert slow_calls([run for run in runs if run.framework == framework], program) == []


def slow_calls(runs: list[Run], program: Program) -> list[str]:
    """The calls that took longer than they may, in words."""
    found = []
    for call in program.held:
        ours, stock = (
            [run.metrics[call] for run in runs if run.ours == own and run.metrics]
            for own in (True, False)
        )
        if ours and stock:
            taken, allowed = statistics.median(ours), program.allowed(statistics.median(stock))
            if taken > allowed:
                found.append(
                    f"{runs[0].framework}: the {call} call took {taken:.2f} s, "
                    f"{allowed:.2f} s are allowed"
                )
    return found
