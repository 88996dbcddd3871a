"""Several processes run the tests; what is marked ``serial`` is alone; limits and reruns hold."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.side_by_side import entered

pytest.importorskip("xdist", reason="without pytest-xdist, all tests run in one process")

SECONDS = 20
ROOT = Path(__file__).parent.parent
PLUGINS = ["-p", "xdist", "-p", "pytest_timeout", "-p", "pytest_rerunfailures"]
SETTINGS = "[pytest]\nreruns = 2\ntimeout = 3\n"
CONFTEST = 'pytest_plugins = ["tests.limits", "tests.side_by_side"]'
# Notes when it ran, and in which process.
COMMON = """
import json, os, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.fixture(autouse=True)
def noted(request):
    begin = time.monotonic()
    yield
    note = [request.node.originalname, os.getpid(), begin, time.monotonic()]
    with open(HERE / "notes", "a") as file:
        file.write(json.dumps(note) + "\\n")

@pytest.mark.parametrize("number", range(8))
def test_with_others(number):
    time.sleep(0.02)

@pytest.mark.serial
@pytest.mark.parametrize("number", range(2))
def test_alone(number):
    time.sleep(0.02)
"""
FAILING = """
def test_hangs():
    time.sleep(60)

def test_fails_twice():
    with open(HERE / "tries", "a") as file:
        print(file=file)
    assert (HERE / "tries").read_text().count("\\n") == 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suite")


@pytest.fixture(scope="module")
def ended(folder: Path) -> subprocess.CompletedProcess[str]:
    """A run over a folder of four files, without ``-n``."""
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "conftest.py").write_text(CONFTEST)
    for name in "abc":
        (folder / f"test_{name}.py").write_text(COMMON)
    (folder / "test_d.py").write_text(COMMON + FAILING)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "ADAPTERS_TESTS"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_folder_is_run_by_several_processes_and_what_is_alone_by_one_while_nobody_else_does(
    ended: Any, folder: Path
) -> None:
    notes = [json.loads(line) for line in (folder / "notes").read_text().splitlines()]
    alone = [note for note in notes if note[0] == "test_alone"]
    others = [note for note in notes if note[0] != "test_alone"]
    assert (len(alone), sum(note[0] == "test_with_others" for note in others)) == (8, 32)
    assert len({pid for _, pid, *_ in others}) > 1
    assert len({pid for _, pid, *_ in alone}) == 1
    for _, _, begin, end in alone:
        assert all(other[3] <= begin or end <= other[2] for other in others)


def test_limits_and_reruns_hold(ended: Any) -> None:
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "FAILED test_d.py::test_hangs - Failed: Timeout (>3.0s) from pytest-timeout." in (
        ended.stdout
    )
    # The one that hangs runs three times, and so does the one that then passes.
    assert "1 failed, 41 passed, 4 rerun" in ended.stdout


# --- the locks ---


def test_several_are_there_at_once(tmp_path: Path) -> None:
    with entered(tmp_path, alone=False), entered(tmp_path, alone=False):
        assert is_locked(tmp_path / "room")
    assert not is_locked(tmp_path / "room")


def test_nobody_overtakes_one_that_wants_to_be_alone(tmp_path: Path) -> None:
    order: list[str] = []

    def run(name: str, alone: bool) -> threading.Thread:
        def enter() -> None:
            with entered(tmp_path, alone):
                order.append(name)

        thread = threading.Thread(target=enter)
        thread.start()
        return thread

    with entered(tmp_path, alone=False):
        waiting = run("alone", alone=True)
        wait_for_lock(tmp_path / "door")
        late = run("with others", alone=False)
        late.join(0.2)
        assert order == []
    for thread in (waiting, late):
        thread.join(SECONDS)
    assert order == ["alone", "with others"]


def is_locked(path: Path) -> bool:
    """Whether somebody has the lock, with others or alone."""
    with open(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_for_lock(path: Path) -> None:
    """Come back as soon as somebody has it."""
    tick = threading.Event()
    for _ in range(100 * SECONDS):
        if is_locked(path):
            return
        tick.wait(0.01)
    raise TimeoutError(f"nobody has locked {path.name}")
