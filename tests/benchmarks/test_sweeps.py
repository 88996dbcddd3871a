"""A sweep runs the rows of an experiment, each in a process of its own."""

from __future__ import annotations

import dataclasses
import os
import platform
import shlex
from pathlib import Path

import pytest

from benchmarks.harness import backends
from benchmarks.harness.backends import CPU, Backend, Backends, find_backends
from benchmarks.harness.processes import run_row
from benchmarks.harness.results import Run
from tests.benchmarks.made_up import open_session, sleeping_row


def run_rows(out: Path, rows: str = "", **settings: int | None) -> list[Run]:
    session = open_session(out, rows=rows, **settings)
    experiment = session.experiment("sleeping", "Samples that take their time")
    specs = [sleeping_row("plain", 0.001), sleeping_row("another loader", 0.001)]
    return session.sweep(experiment, specs, 1)


def test_a_command_repeats_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    for run in run_rows(tmp_path):
        program, test, option, rows = shlex.split(run.command)
        assert (program, option) == ("pytest", "--rows")
        assert test == "tests/benchmarks/test_sweeps.py::test_a_command_repeats_its_row"
        assert {each.name for each in run_rows(tmp_path, rows)} == {run.name}


def test_a_command_names_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "benchmarks/test_it.py::test_it[a::b] (call)")
    session = open_session(tmp_path, repeats=2)
    session.size, session.data_dir = "full", Path("my data")
    assert session.command(sleeping_row("plain")) == (
        "KERAS_BACKEND=jax pytest 'benchmarks/test_it.py::test_it[a::b]' "
        "--rows 'Plain plain workers 0' --full --repeats 2 --data-dir 'my data'"
    )


def test_a_command_repeats_as_often_as_a_comparison_asks(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    session.least_repeats = 5
    assert session.command(sleeping_row("plain")).endswith(" --repeats 5")


def test_a_whole_name_is_no_part_of_another(tmp_path: Path) -> None:
    specs = [
        dataclasses.replace(sleeping_row("plain", 0.001), workers=workers) for workers in (1, 16)
    ]
    ran = {}
    for rows in ("plain plain workers 1", "workers 1"):
        session = open_session(tmp_path, rows=rows)
        runs = session.sweep(session.experiment("sleeping", "Sleeping"), specs, 1)
        ran[rows] = [run.workers for run in runs]
    assert ran == {"plain plain workers 1": [1], "workers 1": [1, 16]}


def test_rounds_follow_each_other(tmp_path: Path) -> None:
    runs = run_rows(tmp_path, repeats=2)
    assert [run.loader for run in runs] == ["plain", "another loader"] * 2


def test_a_comparison_asks_for_repeats_unless_the_command_line_does(tmp_path: Path) -> None:
    specs = [sleeping_row("plain", 0.001)]
    for repeats, expected in ((None, 3), (2, 2)):
        session = open_session(tmp_path, repeats=repeats)
        session.least_repeats = 3
        experiment = session.experiment("sleeping", "Samples that take their time")
        assert len(session.sweep(experiment, specs, 1)) == expected


def test_a_row_that_fails_says_why(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    experiment = session.experiment("sleeping", "Samples that take their time")
    (run,) = session.sweep(experiment, [sleeping_row("broken", error="no such thing")], 1)
    assert run.failure == "exit code 1: RuntimeError: no such thing"
    assert "Traceback" in run.log


def test_a_row_that_looks_slower_runs_as_often_once_more(tmp_path: Path) -> None:
    session = open_session(tmp_path, repeats=2)
    session.suspects = lambda experiment: {("Plain", "another loader", 0)}
    experiment = session.experiment("sleeping", "Samples that take their time")
    specs = [sleeping_row("plain", 0.001), sleeping_row("another loader", 0.001)]
    runs = session.sweep(experiment, specs, 1)
    assert [run.loader for run in runs] == [
        *["plain", "another loader"] * 2,
        *["another loader"] * 2,
    ]
    assert experiment.runs == runs


LIMIT_SECONDS = 4
MEBIBYTES = 200


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").is_file(), reason="the system doesn't tell memory"
)
def test_memory_is_looked_at_in_the_window_and_the_cpu_while_it_is_busy() -> None:
    options = {"does": "compute", "bytes": MEBIBYTES * 2**20, "seconds": 2.0}
    rounds = run_row("tests.benchmarks.rows", options, 30).rounds
    assert len(rounds["peak_pss_mib"]) > len(rounds["cpu_percent"]) >= 1
    assert MEBIBYTES < max(rounds["peak_pss_mib"]) < MEBIBYTES + 100
    # Other programs may take the CPU away for most of the time; the sleep, which takes none, is no
    # part of it.
    assert 0 < min(rounds["cpu_percent"]) <= max(rounds["cpu_percent"]) < 130


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir(), reason="shared memory is no folder on this system"
)
def test_a_row_that_hangs_leaves_no_shared_memory() -> None:
    name = f"hanging-row-{os.getpid()}"
    outcome = run_row("tests.benchmarks.rows", {"does": "hang", "name": name}, LIMIT_SECONDS)
    assert outcome.failure == "no result within 4 s"
    assert f"made {name}" in outcome.log
    assert not Path("/dev/shm", name).exists()


# --- the backends of Keras ---


# What a backend says it trains on; one that isn't in here can't be imported.
PROGRAM = """
import ctypes, os
# Written at exit, as into any pipe.
ctypes.CDLL(None).printf(b"a library: version \\xff\\n")
print("noise")
print("\\ntrains on: " + {devices}[os.environ["KERAS_BACKEND"]])
"""
PYTHON = f"Python {platform.python_version()}"
EVERY = {"tensorflow": CPU, "jax": "H100", "torch": "H100"}


@pytest.fixture
def nothing_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment and Keras's own file name no backend, and all three are found."""
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)


def say(monkeypatch: pytest.MonkeyPatch, devices: dict[str, str]) -> None:
    """What the backends answer."""
    monkeypatch.setattr(backends, "ASK", PROGRAM.format(devices=devices))


@pytest.mark.usefixtures("nothing_asked")
def test_backends_with_a_gpu_are_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, EVERY)
    found = find_backends()
    assert found == Backends((Backend("jax", "H100"), Backend("torch", "H100")), {})
    assert all(each.on_gpu for each in found.chosen)


@pytest.mark.usefixtures("nothing_asked")
def test_without_a_gpu_keras_chooses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    say(monkeypatch, dict.fromkeys(EVERY, CPU))
    assert find_backends() == Backends((Backend("tensorflow", CPU),), {})
    assert not find_backends().chosen[0].on_gpu
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    assert find_backends().chosen == (Backend("torch", CPU),)
    (tmp_path / "keras.json").write_text("no JSON")
    assert find_backends().chosen == (Backend("tensorflow", CPU),)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.usefixtures("nothing_asked")
def test_what_the_environment_names_is_trained_with(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    say(monkeypatch, EVERY)
    monkeypatch.setenv("KERAS_BACKEND", name)
    assert find_backends().chosen == (Backend(name, EVERY[name]),)


@pytest.mark.usefixtures("nothing_asked")
def test_a_backend_that_is_broken_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, {"jax": CPU})
    found = find_backends()
    assert found.chosen == (Backend("jax", CPU),)
    assert found.notes() == [
        "not trained with, as it can't be imported: TensorFlow: KeyError: 'tensorflow'",
        "not trained with, as it can't be imported: PyTorch: KeyError: 'torch'",
    ]


@pytest.mark.usefixtures("nothing_asked")
def test_without_any_the_reasons_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, {})
    with pytest.raises(RuntimeError, match="got tensorflow: KeyError: 'tensorflow'; jax: KeyErr"):
        find_backends()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="KERAS_BACKEND may name; got none of them"):
        find_backends()


@pytest.mark.usefixtures("nothing_asked")
def test_a_row_that_trains_runs_on_each_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, EVERY)
    session = open_session(tmp_path)
    specs = [
        dataclasses.replace(sleeping_row("trained", 0.001), trains_keras=True),
        sleeping_row("other", 0.001),
    ]
    experiment = session.experiment("sleeping", "Sleeping")
    runs = session.sweep(experiment, specs, 1)
    assert experiment.notes == []
    assert [(run.framework, run.loader, run.software) for run in runs] == [
        ("Plain on JAX", "trained", "jax"),
        ("Plain on PyTorch", "trained", "torch"),
        ("Plain", "other", PYTHON),
    ]
    # On this machine, the same backends are found for it again.
    assert runs[0].command.startswith("pytest tests/benchmarks/test_sweeps.py")
    assert runs[0].command.endswith("--rows 'Plain on JAX trained workers 0'")


@pytest.mark.usefixtures("nothing_asked")
def test_the_only_backend_with_a_gpu_needs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, {"tensorflow": CPU, "jax": "H100"})
    session = open_session(tmp_path)
    specs = [dataclasses.replace(sleeping_row("trained", 0.001), trains_keras=True)]
    experiment = session.experiment("sleeping", "Sleeping")
    (run,) = session.sweep(experiment, specs, 1)
    assert "it can't be imported: PyTorch: KeyError" in experiment.notes[0]
    assert (run.framework, run.software) == ("Plain", "jax")
