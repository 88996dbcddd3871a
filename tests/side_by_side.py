"""Files of tests run side by side, in several processes; what is marked ``serial`` runs alone.

pytest-xdist starts the processes and gives each one file after the other, and what is marked
``spread`` test by test. A test that is marked ``serial`` holds a clock against what it measures: all
of them go to one process, last, and each waits until no other test runs. Two locks see to that,
which every process of the run takes, also those that a test starts (``tests/keras/conftest.py``).
Whoever enters waits at the door first, so that nobody overtakes a test that wants the room for
itself. A process that dies leaves its locks with its files. The time that a test waits is no part
of its time limit.

``-n 0`` runs all of them in one process, as do a single file, ``-s`` and the debugger.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from adapters.cpus import usable_cpus

# The folder with the locks, for all processes of a run.
_ROOM = "ADAPTERS_TESTS_ROOM"
_GROUPS = "groups.json"
# Two thirds of the time of these tests is waiting, for processes that start and for sleeps.
_WORKERS_PER_CPU = 3
# Each may come to import TensorFlow, JAX, PyTorch and MXNet: 1 GB.
_MOST_WORKERS = 12
_MARKERS = (
    "serial: runs while no other test does, as it holds a clock against something",
    "xdist_group(name): runs in the same process as others of that name",  # Without pytest-xdist.
    "runs_tests: the tests that it runs enter the room, it doesn't itself",
    "spread: takes long by itself, and nothing is made for its file; any process may run it",
)


@contextmanager
def entered(folder: Path, alone: bool) -> Iterator[None]:
    """Be in the room of this folder with others, or alone."""
    with open(folder / "room", "ab") as room:
        with open(folder / "door", "ab") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            # What a test has forked has the file, too.
            fcntl.flock(room, fcntl.LOCK_UN)


def wanted_workers(config: pytest.Config) -> int | None:
    """How many processes a command line without ``-n`` gets; None: as pytest would do it."""
    option = config.option
    several = any(Path(name.split("::")[0]).is_dir() for name in config.args)
    if not several or option.usepdb or option.collectonly or option.capture == "no":
        return None
    return min(_WORKERS_PER_CPU * usable_cpus(), _MOST_WORKERS)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Choose the processes, unless the command line does."""
    option = config.option
    if hasattr(config, "workerinput") or not config.pluginmanager.hasplugin("xdist"):
        return
    if option.dist == "no" and option.numprocesses is None:
        option.numprocesses = wanted_workers(config)
    if option.dist == "no" and option.numprocesses:
        option.dist, option.loadscopereorder = "loadfile", False
        # OpenMP's threads, PyTorch's and MXNet's, wait for each other by spinning, and take CPUs
        # that others need: ResNet-50's example took 141 s beside five busy processes, not 42.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a process whole files, as their fixtures are made once, or whole groups."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrGroup(LoadFileScheduling):
        @cached_property
        def groups(self) -> dict[str, str]:
            return dict(json.loads(Path(os.environ[_ROOM], _GROUPS).read_text()))

        def _split_scope(self, nodeid: str) -> str:
            return self.groups.get(nodeid) or str(super()._split_scope(nodeid))

    return ByFileOrGroup(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Make the room, unless this run shares another's."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if getattr(config.option, "dist", "no") != "no" and _ROOM not in os.environ:
        folder = tempfile.mkdtemp(prefix="adapters-tests-")
        os.environ[_ROOM] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder))
        config.add_cleanup(lambda: os.environ.pop(_ROOM))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put those first that run other tests, for minutes, and those last that run alone."""
    items.sort(key=lambda item: (_is(item, "serial"), not _is(item, "runs_tests")))
    if hasattr(config, "workerinput"):
        # For the scheduler, in another process. Every worker writes the same.
        path = Path(os.environ[_ROOM], config.workerinput["workerid"])
        path.write_text(json.dumps({each.nodeid: _group(each) for each in items}))
        path.replace(path.with_name(_GROUPS))


def _group(item: pytest.Item) -> str | None:
    """Of tests that one process runs, whatever file they are in."""
    if _is(item, "serial"):
        return "serial"
    if _is(item, "spread"):
        return item.nodeid
    marker = item.get_closest_marker("xdist_group")
    return None if marker is None else str(marker.args[0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Enter the room before any time limit begins."""
    if _ROOM not in os.environ or _is(item, "runs_tests"):
        return (yield)
    with entered(Path(os.environ[_ROOM]), _is(item, "serial")):
        return (yield)


def _is(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None
