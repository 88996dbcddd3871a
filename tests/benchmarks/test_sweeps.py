from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest

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
