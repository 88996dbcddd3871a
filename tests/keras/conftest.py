"""Which backend of Keras the tests in this folder run on.

Keras fixes its backend when it is imported, so one process tests one backend: the one that
``KERAS_BACKEND`` names, TensorFlow if it doesn't. Beside it, a second process runs the folder again
on one further backend after the other, as far as they are installed, and ``test_backends.py`` looks
at how that went, last of all: plain ``pytest`` covers them all.

``ADAPTERS_KERAS_PYTHONS=/path/to/python:/path/to/another`` names further interpreters, with other
versions of Keras in them (and pytest, pytest-rerunfailures, pytest-timeout, psutil, scipy and this
package); every backend that is installed beside each of them is run, too.

``report`` is for what a test finds out without judging it: its lines are printed when all is done,
also those of the other processes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from tests.keras.programs import Program

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# TensorFlow's news about the processor.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

BACKENDS = ("tensorflow", "jax", "torch")
REPORT_MARK = "keras-report: "
# Set for the second process, which must not start a third.
_CHILD = "ADAPTERS_KERAS_CHILD"
_LOOK_SECONDS = 0.2

collect_ignore = ["test_backends.py"] if os.environ.get(_CHILD) else []

_reported = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin an empty report."""
    config.stash[_reported] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Look at the other runs when there is nothing else left to do."""
    items.sort(key=lambda item: item.path.name == "test_backends.py")


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line when all tests are done."""

    def add(line: str) -> None:
        request.node.user_properties.append(("keras", line))
        request.config.stash[_reported].append(line)

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was reported."""
    lines = terminalreporter.config.stash[_reported]
    if lines:
        terminalreporter.section("Keras")
    for line in lines:
        terminalreporter.write_line(REPORT_MARK + line)


@dataclass(frozen=True)
class OtherRun:
    """This folder's tests, elsewhere."""

    python: str
    backend: str

    @property
    def name(self) -> str:
        """For people and files."""
        place = Path(self.python).parents[1].name
        return self.backend if self.python == sys.executable else f"{place}-{self.backend}"

    @cached_property
    def installed(self) -> bool:
        """Whether it can be."""
        if self.python == sys.executable:
            return importlib.util.find_spec(self.backend) is not None
        look = f"import importlib.util as u, sys; sys.exit(u.find_spec({self.backend!r}) is None)"
        return subprocess.run([self.python, "-c", look], check=False).returncode == 0

    @property
    def absence(self) -> str:
        """Why it may be absent."""
        return "it is in no extra" if self.backend == "torch" else "it is in the extra test"


def other_runs() -> list[OtherRun]:
    """The other backends of this interpreter, and all of further ones."""
    pythons = filter(None, os.environ.get("ADAPTERS_KERAS_PYTHONS", "").split(":"))
    own = [OtherRun(sys.executable, b) for b in BACKENDS if b != os.environ["KERAS_BACKEND"]]
    return own + [OtherRun(python, backend) for python in pythons for backend in BACKENDS]


class RunsOfOthers:
    """The process that does the other runs, one after the other."""

    def __init__(self, folder: Path, runs: list[OtherRun]) -> None:
        self._folder = folder
        lines = [
            json.dumps([str(folder / f"{run.name}.txt"), run.python, run.backend])
            for run in runs
            if run.installed
        ]
        self.program = Program("backends", *lines, environment={_CHILD: "1"})

    def outcome(self, run: OtherRun) -> tuple[int, str]:
        """Exit code and output, once there are both."""
        code = self._folder / f"{run.name}.code"
        wait = threading.Event().wait
        while not code.exists():
            if self.program.process.poll() is not None and not code.exists():
                raise AssertionError(f"the other runs ended early:\n{self.program.end().errors}")
            wait(_LOOK_SECONDS)
        return int(code.read_text()), (self._folder / f"{run.name}.txt").read_text()


@pytest.fixture(scope="session")
def runs_of_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsOfOthers]:
    """The other runs, which begin beside the first test of this folder."""
    runs = RunsOfOthers(tmp_path_factory.mktemp("keras"), other_runs())
    yield runs
    runs.program.kill()


@pytest.fixture(scope="session", autouse=True)
def begin_other_runs(request: pytest.FixtureRequest) -> None:
    """Begin them if anybody is going to look."""
    if any(item.path.name == "test_backends.py" for item in request.session.items):
        request.getfixturevalue("runs_of_others")
