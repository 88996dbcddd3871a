"""A session of the benchmarks from its command line to its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.processes import ROOT
from benchmarks.harness.results import Experiment, write_json
from tests.benchmarks.made_up import MACHINE, made_up_run

pytest.importorskip("matplotlib", reason="the extra bench brings matplotlib, the extra test not")

LIMIT_SECONDS = 60
BENCHMARK = """
import pytest

from tests.benchmarks.made_up import sleeping_row


def test_sleeping(session):
    experiment = session.experiment("sleeping", "Samples that take their time")
    session.sweep(experiment, [sleeping_row("plain", 0.01)], 1)


def test_skipped(session):
    pytest.skip("its peer isn't installed")
"""


FAILING = """
from tests.benchmarks.made_up import sleeping_row


def test_sleeping(session):
    experiment = session.experiment("sleeping", "Samples that take their time")
    session.sweep(experiment, [sleeping_row("plain", 0.01)], 1)
    assert False
"""


JUDGED = BENCHMARK.replace(
    "    session.sweep(experiment",
    """    from benchmarks.harness.reference import Reference
    session.reference = Reference({}, {"row": {"least": 2}})
    session.judge(experiment, "row", 1.5)
    session.sweep(experiment""",
)


def benchmark(
    folder: Path, *options: str, text: str = BENCHMARK
) -> subprocess.CompletedProcess[str]:
    """Run a benchmark of one row, with the harness's own conftest."""
    test = folder / "test_sleeping.py"
    test.write_text(text)
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "benchmarks.conftest",
                "-p",
                "no:cacheprovider",
            ),
            *("--rootdir", str(folder), "--out", str(folder / "out"), str(test), *options),
        ],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def earlier(folder: Path, speed: float, size: str = "") -> str:
    """The file of an earlier session, in which the row had this speed."""
    runs = [made_up_run("plain", 0, framework="Plain", samples_per_second=speed) for _ in range(3)]
    content = Experiment("sleeping", "Sleeping", runs=runs, size=size).content()
    path = folder / "earlier.json"
    return str(write_json({"machine": MACHINE, "experiments": [content]}, path))


def test_a_session_writes_its_report(tmp_path: Path) -> None:
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


def test_a_missed_bar_is_information_unless_it_is_held(tmp_path: Path) -> None:
    for option, code in (([], 0), (["--hold"], pytest.ExitCode.TESTS_FAILED)):
        done = benchmark(tmp_path, *option, text=JUDGED)
        assert done.returncode == code, done.stdout + done.stderr
        assert "row: 1.5 here; bar: at least 2, missed" in done.stdout
        assert "bars missed: 1" in done.stdout


def test_a_session_fails_where_a_row_got_slower(tmp_path: Path) -> None:
    done = benchmark(tmp_path, "--compare", earlier(tmp_path, 1_000_000))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "slower: 1 of 1 rows" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    content = json.loads((tmp_path / "out" / "run.json").read_text())
    (change,) = content["comparison"]["changes"]
    assert (change["verdict"], change["now"]["runs"]) == ("slower", 10)
    assert "Against earlier results" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.full
def test_a_session_passes_where_nothing_got_slower(tmp_path: Path) -> None:
    done = benchmark(tmp_path, "--compare", earlier(tmp_path, 1))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing got slower, of 1 rows compared" in done.stdout


@pytest.mark.full
def test_a_bad_file_ends_the_session_before_it_begins(tmp_path: Path) -> None:
    done = benchmark(tmp_path, "--compare", str(tmp_path / "none.json"))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--compare" in done.stderr
    assert "can't be read: No such file" in done.stderr
    other = benchmark(tmp_path, "--compare", earlier(tmp_path, 1, size="full"))
    assert other.returncode == pytest.ExitCode.USAGE_ERROR
    assert "choose the same by --full" in other.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_an_earlier_session_is_not_written_over(tmp_path: Path) -> None:
    assert benchmark(tmp_path).returncode == 0
    for name in ("run.json", "sleeping.json"):
        done = benchmark(tmp_path, "--compare", str(tmp_path / "out" / name))
        assert done.returncode == pytest.ExitCode.USAGE_ERROR
        assert "would write over" in done.stderr


@pytest.mark.full
def test_no_row_of_that_name_is_no_success(tmp_path: Path) -> None:
    done = benchmark(tmp_path, "--rows", "plian", "--compare", earlier(tmp_path, 1))
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
    assert "none of this size has a name that contains 'plian'" in done.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_a_failed_sweep_does_not_run_again(tmp_path: Path) -> None:
    done = benchmark(tmp_path, "--reruns", "2", text=FAILING)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    content = json.loads((tmp_path / "out" / "run.json").read_text())
    assert len(content["experiments"][0]["runs"]) == 1


@pytest.mark.full
def test_folders_are_looked_at_before_the_session_begins(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for option, path, reason in (
        ("--data-dir", tmp_path / "none", "--data-dir must be a folder"),
        ("--out", tmp_path / "file", "--out must be a folder that can be written to"),
        ("--out", tmp_path / "file" / "below", "--out must be a folder that can be written to"),
    ):
        done = benchmark(tmp_path, option, str(path))
        assert done.returncode == pytest.ExitCode.USAGE_ERROR
        assert reason in done.stderr


@pytest.mark.full
def test_a_data_dir_is_the_same_folder_for_rows(tmp_path: Path) -> None:
    """They run in the repository's root, wherever the session does."""
    data = os.path.relpath(tmp_path, ROOT)
    done = benchmark(tmp_path, "--data-dir", data)
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((tmp_path / "out" / "run.json").read_text())
    command = content["experiments"][0]["runs"][0]["command"]
    assert command.endswith(f"--data-dir {tmp_path.resolve()}")
