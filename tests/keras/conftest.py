"""Which backend of Keras the tests in this folder run on.

Keras fixes its backend when it is imported, so one process tests one backend: the one that
``KERAS_BACKEND`` names, TensorFlow if it doesn't. ``test_backends.py`` runs the folder again in a
process per further backend that is installed, so that plain ``pytest`` covers them all.

``ADAPTERS_KERAS_PYTHONS=/path/to/python:/path/to/another`` names further interpreters, with other
versions of Keras in them (and pytest, pytest-timeout, psutil and this package); every backend that
is installed beside each of them is run, too.

``report`` is for what a test finds out without judging it: its lines are printed when all is done,
also those of the other processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# TensorFlow's news about the processor.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Set in the processes that test_backends.py starts.
CHILD_VARIABLE = "ADAPTERS_KERAS_CHILD"
REPORT_MARK = "keras-report: "

collect_ignore = ["test_backends.py"] if os.environ.get(CHILD_VARIABLE) else []

_reported = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin an empty report."""
    config.stash[_reported] = []


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
