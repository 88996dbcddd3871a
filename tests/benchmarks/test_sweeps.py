"""A sweep runs rows in processes of their own; a session, from command line to exit status."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.processes import ROOT, run_row
from benchmarks.harness.results import Experiment, Run, write_json
from tests.benchmarks.made_up import MACHINE, made_up_run, open_session, sleeping_row


def run_rows(out: Path, rows: str = "") -> list[Run]:
    session = open_session(out, rows=rows)
    experiment = session.experiment("sleeping", "Samples that take their time")
    specs = [sleeping_row("plain", 0.001), sleeping_row("another loader", 0.001)]
    return session.sweep(experiment, specs, 1)


def test_command_repeats_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    for run in run_rows(tmp_path):
        program, test, option, rows = shlex.split(run.command)
        assert (program, option) == ("pytest", "--rows")
        assert test == "tests/benchmarks/test_sweeps.py::test_command_repeats_its_row"
        assert {each.name for each in run_rows(tmp_path, rows)} == {run.name}


def test_row_that_fails_says_why(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    experiment = session.experiment("sleeping", "Samples that take their time")
    (run,) = session.sweep(experiment, [sleeping_row("broken", error="no such thing")], 1)
    assert run.failure == "exit code 1: RuntimeError: no such thing"
    assert "Traceback" in run.log


LIMIT_SECONDS = 4


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory is no folder here")
def test_row_that_hangs_leaves_no_shared_memory() -> None:
    name = f"hanging-row-{os.getpid()}"
    outcome = run_row("tests.benchmarks.rows", {"does": "hang", "name": name}, LIMIT_SECONDS)
    assert outcome.failure == "no result within 4 s"
    assert f"made {name}" in outcome.log
    assert not Path("/dev/shm", name).exists()


BENCHMARK = """
import pytest

from tests.benchmarks.made_up import sleeping_row


def test_sleeping(session):
    experiment = session.experiment("sleeping", "Samples that take their time")
    session.sweep(experiment, [sleeping_row("plain", 0.01)], 1)


def test_skipped(session):
    pytest.skip("its peer isn't installed")
"""


def benchmark(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark of one row, with the harness's own conftest."""
    pytest.importorskip("matplotlib", reason="the extra bench brings it, the extra test not")
    test = folder / "test_sleeping.py"
    test.write_text(BENCHMARK)
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    plugins = ["-p", "benchmarks.conftest", "-p", "no:cacheprovider"]
    places = ["--rootdir", str(folder), "--out", str(folder / "out"), str(test)]
    command = [sys.executable, "-m", "pytest", *plugins, *places, *options]
    found = {"cwd": ROOT, "env": {**environment, "PYTHONPATH": str(ROOT)}}
    return subprocess.run(command, **found, capture_output=True, text=True, timeout=60)


def earlier(folder: Path, speed: float, size: str = "") -> str:
    """The file of an earlier session, in which the row had this speed."""
    runs = [made_up_run("plain", 0, framework="Plain", samples_per_second=speed) for _ in range(3)]
    content = Experiment("sleeping", "Sleeping", runs=runs, size=size).content()
    path = folder / "earlier.json"
    return str(write_json({"machine": MACHINE, "experiments": [content]}, path))


def test_session_writes_its_report(tmp_path: Path) -> None:
    done = benchmark(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"sleeping.json", "sleeping.md", "sleeping.png", "run.json", "report.html"}
    content = json.loads((tmp_path / "out" / "run.json").read_text())
    (experiment,) = content["experiments"]
    assert experiment["runs"][0]["command"].endswith("--rows 'Plain plain workers 0'")
    assert content["comparison"] is None
    assert content["machine"]["usable_cpus"] >= 1
    assert done.stdout.startswith(f"report: {tmp_path / 'out' / 'report.html'}, written after")
    assert done.stdout.index("samples/s") < done.stdout.index("summary")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Samples that take their time" in page
    assert "http-equiv" not in page
    assert "not run, 1: its peer isn&#x27;t installed" in page


@pytest.mark.full
def test_session_fails_if_a_row_got_slower(tmp_path: Path) -> None:
    done = benchmark(tmp_path, "--compare", earlier(tmp_path, 1_000_000))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "slower: 1 of 1 rows" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    content = json.loads((tmp_path / "out" / "run.json").read_text())
    (change,) = content["comparison"]["changes"]
    assert (change["verdict"], change["now"]["runs"]) == ("slower", 10)
    assert "Against earlier results" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.full
def test_session_without_rows_is_no_success(tmp_path: Path) -> None:
    done = benchmark(tmp_path, "--rows", "plian", "--compare", earlier(tmp_path, 1))
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
    assert "none of this size has a name that contains 'plian'" in done.stdout
    assert not (tmp_path / "out").exists()
