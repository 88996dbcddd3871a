from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.experiments import mnist_sweep
from benchmarks.experiments.mnist_sweep import Contestants, claims, cpu_sweep, worker_sweep
from benchmarks.experiments.steps import LENET, SIMULATED
from benchmarks.harness.sweeps import Session
from tests.benchmarks.made_up import made_up_run, open_session

PLAIN = Contestants(
    framework="Plain",
    program="tests.benchmarks.learning",
    ours=("ours",),
    others=("theirs",),
    auto=("ours",),
    few={LENET: (("ours", "auto"), ("theirs", 0)), SIMULATED: (("ours", 0),)},
    best="theirs",
)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """After a worker sweep on one core, with made-up digits."""
    digits = SimpleNamespace(name="none", path=tmp_path / "none")
    monkeypatch.setattr(mnist_sweep, "find_digits", lambda folder: digits)
    monkeypatch.setattr(mnist_sweep, "usable_cpus", lambda: 1)
    session = open_session(tmp_path)
    session.experiment("mnist", "MNIST").runs += [
        made_up_run("ours", "auto", framework="Plain", accuracy=1, samples_per_second=10),
        made_up_run("theirs", 1, framework="Plain on JAX", accuracy=1, samples_per_second=20),
        made_up_run("theirs", 2, framework="Plain", accuracy=1, samples_per_second=30),
        made_up_run("theirs", 1, framework="Other", accuracy=1, samples_per_second=40),
    ]
    return session


def test_rows_that_had_all_cores_are_not_run_again(session: Session) -> None:
    assert cpu_sweep(session, PLAIN) == []
    assert [
        (run.framework, run.loader, run.workers, run.metrics["samples_per_second"])
        for run in session.experiments["mnist-cpus"].runs
    ] == [("Plain", "ours auto", 1, 10), ("Plain on JAX", "theirs", 1, 20)]


@pytest.mark.parametrize("least_repeats", [1, 2])
def test_rows_that_are_asked_for_run(session: Session, least_repeats: int) -> None:
    session.rows, session.least_repeats = "Plain ours auto workers 1", least_repeats
    run, *others = cpu_sweep(session, PLAIN)
    assert len(others) == least_repeats - 1
    assert (run.failure, run.name) == (None, "Plain ours auto, workers 1")
    assert session.experiments["mnist-cpus"].runs == [run, *others]


def test_a_comparison_runs_all_rows(session: Session) -> None:
    """As those that look slower run again."""
    session.least_repeats = 2
    assert [run.loader for run in cpu_sweep(session, PLAIN)] == ["ours auto", "theirs"] * 2


def test_each_repeat_of_a_row_has_another_seed(session: Session) -> None:
    session.rows, session.repeats = "Plain ours auto workers 1", 3
    cpu_sweep(session, PLAIN)
    experiment = session.experiments["mnist-cpus"]
    assert [run.seed for run in experiment.runs] == [1, 2, 3]
    (row,) = experiment.rows()
    assert row.over_seeds["accuracy"].seeds == 3


def test_a_row_that_looks_slower_runs_again_with_new_seeds(session: Session) -> None:
    session.rows, session.repeats = "Plain ours auto workers 1", 2
    session.suspects = lambda experiment: {("Plain", "ours auto", 1)}
    assert [run.seed for run in cpu_sweep(session, PLAIN)] == [1, 2, 3, 4]


def test_the_default_has_few_rows_and_long_has_all(session: Session) -> None:
    assert PLAIN.rows(session, LENET) == (("ours", "auto"), ("theirs", 0))
    session.long = True
    assert len(PLAIN.rows(session, LENET)) == 1 + 2 * 3
    session.size = "full"
    assert len(PLAIN.rows(session, LENET)) == 1 + 2 * 5
    session.size = "smoke"
    assert PLAIN.rows(session, SIMULATED) == (("ours", 0),)


def test_another_step_has_a_name_of_its_own(session: Session) -> None:
    _, (run,) = worker_sweep(session, PLAIN, SIMULATED, "")
    assert run.framework == "Plain, simulated device"


def test_rows_are_held_against_those_of_their_kind(session: Session) -> None:
    experiment = session.experiments["mnist"]
    speeds = {
        ("SafeSequence vectorised", "auto"): 90,
        ("SafeSequence vectorised", 2): 100,
        ("PyDataset vectorised", 2): 50,
        ("PyDataset threads", 0): 60,
    }
    experiment.runs = [
        made_up_run(loader, workers, samples_per_second=speed)
        for (loader, workers), speed in speeds.items()
    ]
    claims(session, experiment, "Keras")
    found = {name: (each.here, each.met) for name, each in experiment.verdicts.items()}
    assert found == {
        "mnist: to PyDataset of that kind, Keras, SafeSequence vectorised, 2": (2, True),
        "mnist: auto to the best row of its work, Keras, vectorised": (0.9, False),
        "mnist: vectorised auto to PyDataset's best row, Keras": (1.5, True),
    }
