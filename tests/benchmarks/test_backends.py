from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import pytest

from benchmarks import backends
from benchmarks.backends import CPU, Backend, find_backends
from tests.benchmarks.made_up import open_session, sleeping_row

# What a backend says it trains on; one that isn't in here can't be imported.
PROGRAM = """
import os
print("noise")
print({devices}[os.environ["KERAS_BACKEND"]])
"""
PYTHON = f"Python {platform.python_version()}"
EVERY = {"tensorflow": CPU, "jax": "H100", "torch": "H100"}


def devices(monkeypatch: pytest.MonkeyPatch, devices: dict[str, str]) -> None:
    """All three are found here, and say this."""
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(backends, "ASK", PROGRAM.format(devices=devices))


def test_backends_with_a_gpu_are_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch, EVERY)
    assert find_backends() == [Backend("jax", "H100"), Backend("torch", "H100")]
    assert all(each.on_gpu for each in find_backends())


def test_without_a_gpu_the_choice_is_left_to_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch, dict.fromkeys(EVERY, CPU))
    assert find_backends() == [Backend(None, CPU)]
    assert not find_backends()[0].on_gpu


@pytest.mark.parametrize("name", EVERY)
def test_what_the_environment_names_is_trained_on(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    devices(monkeypatch, EVERY)
    monkeypatch.setenv("KERAS_BACKEND", name)
    assert find_backends() == [Backend(name, EVERY[name])]


def test_a_backend_that_is_broken_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch, {"torch": "H100"})
    assert find_backends() == [Backend("torch", "H100")]


def test_without_any_the_reasons_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch, {})
    with pytest.raises(RuntimeError, match="got tensorflow: KeyError: 'tensorflow'; jax: KeyErr"):
        find_backends()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="got none of them"):
        find_backends()


def test_a_row_that_trains_runs_on_each_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices(monkeypatch, EVERY)
    session = open_session(tmp_path)
    specs = [
        dataclasses.replace(sleeping_row("trained", 0.001), trains_keras=True),
        sleeping_row("other", 0.001),
    ]
    runs = session.sweep(session.experiment("sleeping", "Sleeping"), specs, 1)
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
    devices(monkeypatch, {"tensorflow": CPU, "jax": "H100", "torch": CPU})
    session = open_session(tmp_path)
    specs = [dataclasses.replace(sleeping_row("trained", 0.001), trains_keras=True)]
    (run,) = session.sweep(session.experiment("sleeping", "Sleeping"), specs, 1)
    assert (run.framework, run.software) == ("Plain", "jax")


def test_no_backend_is_looked_for_where_nothing_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices(monkeypatch, {})
    session = open_session(tmp_path)
    specs = [sleeping_row("other", 0.001)]
    assert len(session.sweep(session.experiment("sleeping", "Sleeping"), specs, 1)) == 1
