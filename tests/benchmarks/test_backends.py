from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import pytest

from benchmarks.harness import backends
from benchmarks.harness.backends import CPU, Backend, Backends, find_backends
from tests.benchmarks.made_up import open_session, sleeping_row

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


@pytest.fixture(autouse=True)
def nothing_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment and Keras's own file name no backend, and all three are found."""
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)


def say(monkeypatch: pytest.MonkeyPatch, devices: dict[str, str]) -> None:
    """What the backends answer."""
    monkeypatch.setattr(backends, "ASK", PROGRAM.format(devices=devices))


def test_backends_with_a_gpu_are_trained_with(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, EVERY)
    found = find_backends()
    assert found == Backends((Backend("jax", "H100"), Backend("torch", "H100")), {})
    assert all(each.on_gpu for each in found.chosen)


def test_without_a_gpu_keras_chooses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    say(monkeypatch, dict.fromkeys(EVERY, CPU))
    assert find_backends() == Backends((Backend("tensorflow", CPU),), {})
    assert not find_backends().chosen[0].on_gpu
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    assert find_backends().chosen == (Backend("torch", CPU),)
    (tmp_path / "keras.json").write_text("no JSON")
    assert find_backends().chosen == (Backend("tensorflow", CPU),)


@pytest.mark.parametrize("name", EVERY)
def test_what_the_environment_names_is_trained_with(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    say(monkeypatch, EVERY)
    monkeypatch.setenv("KERAS_BACKEND", name)
    assert find_backends().chosen == (Backend(name, EVERY[name]),)


def test_a_backend_that_is_broken_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, {"jax": CPU})
    found = find_backends()
    assert found.chosen == (Backend("jax", CPU),)
    assert found.notes() == [
        "not trained with, as it can't be imported: TensorFlow: KeyError: 'tensorflow'",
        "not trained with, as it can't be imported: PyTorch: KeyError: 'torch'",
    ]


def test_without_any_the_reasons_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, {})
    with pytest.raises(RuntimeError, match="got tensorflow: KeyError: 'tensorflow'; jax: KeyErr"):
        find_backends()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="KERAS_BACKEND may name; got none of them"):
        find_backends()


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
    assert runs[0].command.startswith("pytest tests/benchmarks/test_backends.py")
    assert runs[0].command.endswith("--rows 'Plain on JAX trained workers 0'")


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


def test_no_backend_is_looked_for_where_nothing_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, {})
    session = open_session(tmp_path)
    specs = [sleeping_row("other", 0.001)]
    assert len(session.sweep(session.experiment("sleeping", "Sleeping"), specs, 1)) == 1
