"""What became of each test: a pytest plugin that writes it down, and what reads that.

The plugin runs in the process that runs a peer's tests. It writes a line when a test begins and one
when it has ended, so that a process that hangs or is killed leaves the name of the test that it
died of.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

FILE = "ADAPTERS_PEERS_OUTCOMES"
"""The environment variable that names the file to write to."""
SELECTED, LEFT_OUT = "ADAPTERS_PEERS_SELECTED", "ADAPTERS_PEERS_LEFT_OUT"
"""Those with the regular expressions of what is run, and of what of that isn't."""

PASSED, FAILED, SKIPPED, UNFINISHED = "passed", "failed", "skipped", "unfinished"


@dataclass(frozen=True)
class Outcome:
    """Of one test."""

    result: str
    """``"passed"``, ``"failed"``, ``"skipped"``, or ``"unfinished"`` if the process ended in it."""
    message: str = ""
    """The end of its traceback, or why it was skipped."""
    replaced: int = 0
    """How many objects of ours it was given in the place of the peer's."""

    @property
    def failed(self) -> bool:
        """Also of a test that has never ended."""
        return self.result in (FAILED, UNFINISHED)


Outcomes = dict[str, Outcome]

_replaced = 0


def count_replacement() -> None:
    """An object of ours has taken the place of one of the peer's."""
    global _replaced
    _replaced += 1


def name_of(item: pytest.Item) -> str:
    """``file.py::Class::test``, wherever the file lies."""
    return f"{item.path.name}::{item.nodeid.split('::', 1)[1]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Select by what ``name_of`` gives; pytest's ``-k`` would look at the folders' names, too."""
    selected, left_out = (os.environ.get(variable, "") for variable in (SELECTED, LEFT_OUT))
    items[:] = [
        item
        for item in items
        if re.search(selected, name_of(item))
        and not (left_out and re.search(left_out, name_of(item)))
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write down that a test begins, and how it ended."""
    global _replaced
    _replaced = 0
    _write({"test": name_of(item)})
    result = yield
    phases = item.stash.get(_phases, [])
    decisive = next((phase for phase in phases if phase.outcome != PASSED), None)
    line = {"test": name_of(item), "result": decisive.outcome if decisive else PASSED}
    _write({**line, "message": _message(decisive), "replaced": _replaced})
    return result


_phases = pytest.StashKey[list[pytest.TestReport]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Keep the reports of setup, call and teardown together."""
    report = yield
    item.stash.setdefault(_phases, []).append(report)
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that can't be imported is a test that fails."""
    if report.failed:
        _write({"test": report.nodeid or "collection", "result": FAILED, "message": _tail(report)})


def _message(report: pytest.TestReport | None) -> str:
    return "" if report is None else _tail(report)


def _tail(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    text = crash or (report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
    return (text or report.longreprtext)[-1000:]


def _write(line: dict[str, object]) -> None:
    path = os.environ.get(FILE)
    if path is None:
        raise pytest.UsageError(f"{FILE} must name the file that outcomes are written to")
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path) -> Outcomes:
    """The outcomes that were written to a file; none if there is none."""
    found: Outcomes = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        fields = json.loads(line)
        test = fields.pop("test")
        found[test] = Outcome(**{"result": UNFINISHED, **fields})
    return found
