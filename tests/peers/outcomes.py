"""What became of each test: a pytest plugin that writes it down, and what reads that.

The plugin runs in the process that runs a peer's tests. It also writes down that a test begins, so
that a process that hangs or is killed leaves the name of the test that it died of.
"""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

# Environment variables: the file to write to, and what is run, as a regular expression in
# ``file.py::Class::test``.
FILE, SELECTED = "ADAPTERS_PEERS_OUTCOMES", "ADAPTERS_PEERS_SELECTED"
# Stands among the outcomes in the place of a test.
REPLACED = "an object of ours has taken the place of one of the peer's"

PASSED, FAILED, SKIPPED, UNFINISHED = "passed", "failed", "skipped", "unfinished"


class Outcome(NamedTuple):
    """Of one test; it is unfinished if the process ended in it."""

    result: str
    message: str = ""  # The end of its traceback, or why it was skipped.


Outcomes = dict[str, Outcome]


@functools.cache
def note_replacement() -> None:
    """Write down that something of ours is tested."""
    _write(REPLACED, PASSED)


def _name_of(nodeid: str, location: tuple[str, int | None, str]) -> str:
    """``file.py::Class::test``, wherever the file lies; a node's id may be without its file."""
    return f"{Path(location[0]).name}::{nodeid.partition('::')[2]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Select by names; pytest's ``-k`` would look at the folders' names, too."""
    selected = re.compile(os.environ[SELECTED])
    items[:] = [item for item in items if selected.search(_name_of(item.nodeid, item.location))]


def pytest_runtest_logstart(nodeid: str, location: tuple[str, int | None, str]) -> None:
    """Write down that a test begins."""
    _write(_name_of(nodeid, location), UNFINISHED)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down what fails or skips the test, in any phase, and its end."""
    name = _name_of(report.nodeid, report.location)
    if report.outcome != PASSED:
        _write(name, report.outcome, _tail(report))
    elif report.when == "teardown":
        _write(name, PASSED)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that can't be imported is a test that fails."""
    if report.failed:
        _write(report.nodeid or "collection", FAILED, _tail(report))


def _tail(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    text = crash or (report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
    return (text or report.longreprtext)[-1000:]


def _write(test: str, result: str, message: str = "") -> None:
    with open(os.environ[FILE], "a") as file:
        file.write(json.dumps([test, result, message]) + "\n")


def read(path: Path) -> Outcomes:
    """The outcomes that were written to a file; none if there is none."""
    found: Outcomes = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        test, *outcome = json.loads(line)
        if test not in found or found[test].result == UNFINISHED:
            found[test] = Outcome(*outcome)
    return found
