"""Start-up: short programs must not be slower with this package's loaders than without them."""

from __future__ import annotations

import importlib.util
import statistics
from dataclasses import dataclass

import pytest

from benchmarks.harness.backends import TITLES
from benchmarks.harness.results import Column
from benchmarks.harness.sweeps import RowSpec, Session, our_failures
from benchmarks.lab.experiments.startup import CALLS

COLUMNS = tuple(Column(call, f"{call} s", ".2f") for call in CALLS)
PANELS = tuple((call, f"{call} call, seconds") for call in CALLS)
REPEATS = {"smoke": 1, "default": 3, "full": 11}
LIMIT_SECONDS = 120


TIMES, MORE, SECONDS = "times as long", "seconds more", "seconds"


@dataclass(frozen=True)
class Program:
    """A program, and what is said of its calls.

    Args:
        case: Its name in `benchmarks.lab.experiments.startup`.
        backends: Of Keras, or "mxnet".
        ours: What it is called with this package's loader.
        stock: And without.
        figure: Of our median and the other's, which has a bar: `TIMES`, `MORE` or `SECONDS`.
        held: The calls that this is said of.
        full_backends: Those that the default size leaves out.
    """

    case: str
    backends: tuple[str, ...]
    ours: str
    stock: str
    figure: str
    held: tuple[str, ...]
    full_backends: tuple[str, ...] = ()

    def figure_of(self, ours: float, stock: float) -> float:
        """The figure of two medians in seconds."""
        return {TIMES: ours / stock, MORE: ours - stock, SECONDS: ours}[self.figure]


KERAS = ("SafeSequence", "PyDataset")
PROGRAMS = (
    Program("small fit", tuple(TITLES), *KERAS, TIMES, CALLS[:1]),
    Program("fit with 2 processes", ("jax",), *KERAS, MORE, CALLS, ("tensorflow", "torch")),
    Program("fit that reads", ("jax",), *KERAS, TIMES, CALLS),
    Program("fit that reads, undeclared", ("jax",), *KERAS, TIMES, CALLS[1:]),
    Program("loader for each fold", ("mxnet",), "gluon_loader", "DataLoader", SECONDS, CALLS[1:]),
    Program("import to first batch", ("jax",), *KERAS, TIMES, CALLS[1:]),
    Program(
        "import to first batch of tf.data",
        ("tensorflow",),
        "SafeSequence",
        "tf.data",
        TIMES,
        CALLS[1:],
    ),
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.case)
def test_startup(session: Session, program: Program) -> None:
    """Every row of this package's loaders ends well."""
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
        )
        for backend in installed
        for loader in (program.ours, program.stock)
    ]
    if not specs:
        pytest.skip(f"none of {', '.join(backends)} is installed")
    runs = session.sweep(experiment, specs, REPEATS[session.size])
    assert our_failures(runs) == []
    for framework in dict.fromkeys(spec.framework for spec in specs):
        for call in program.held:
            ours, stock = (
                [
                    run.metrics[call]
                    for run in runs
                    if (run.framework, run.ours) == (framework, own) and call in run.metrics
                ]
                for own in (True, False)
            )
            if ours and stock:
                here = program.figure_of(statistics.median(ours), statistics.median(stock))
                session.judge(experiment, f"start-up: {framework}: {call}, {program.figure}", here)
