"""Files of tests run side by side, in several processes; what is marked ``alone`` runs alone.

pytest-xdist starts the processes and gives each one file after the other, as they lie in their
folders, and what is marked ``spread`` test by test. A test that is marked ``alone`` holds a clock
against what it measures: all of them go to one process, last, and each waits until no other test
runs. Two locks see to that, which every process of the run takes, also those that a test starts
(``tests/keras/conftest.py``). Whoever enters waits at the door first, so that nobody overtakes a
test that wants the room for itself; then it shares the room or takes it. A process that dies leaves
its locks with its files. The time that a test waits is no part of its time limit.

``-n 0`` runs all of them in one process, as do a single file, ``-s`` and the debugger.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import pytest

from adapters.cpus import usable_cpus

# The folder with the locks, for all processes of a run.
_ROOM = "ADAPTERS_TESTS_ROOM"
# Two thirds of the time of these tests is waiting, for processes that start and for sleeps.
_WORKERS_PER_CPU = 3
# Each may come to import TensorFlow, JAX, PyTorch and MXNet: 1 GB.
_MOST_WORKERS = 12
# Where a process has crashed, its tests come last, and one that is alone gets no other until they
# have run.
_STAYS_SECONDS = 1.0


class Room:
    """Where tests run, in any number of processes.

    Args:
        folder: With the locks.
    """

    def __init__(self, folder: Path) -> None:
        self._door, self._room = (self._opened(folder / name) for name in ("door", "room"))
        self._stays = False
        self._timer: threading.Timer | None = None
        # A lock is held as long as anybody has the file, also what a test forks and leaves.
        os.register_at_fork(after_in_child=self.close)

    @staticmethod
    def _opened(path: Path) -> IO[bytes]:
        return open(path, "ab")

    @contextmanager
    def entered(self, alone: bool, stays: bool) -> Iterator[None]:
        """Be there with others, or alone.

        Args:
            alone: Which of the two.
            stays: Whether this process comes again at once, to be alone; it then keeps the room,
                for a second if it doesn't come.
        """
        if not self._has_stayed():
            fcntl.flock(self._door, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            finally:
                fcntl.flock(self._door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            if alone and stays:
                self._stays, self._timer = True, threading.Timer(_STAYS_SECONDS, self._leave)
                self._timer.daemon = True
                self._timer.start()
            else:
                fcntl.flock(self._room, fcntl.LOCK_UN)

    def _has_stayed(self) -> bool:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()
        stays, self._stays = self._stays, False
        return stays

    def _leave(self) -> None:
        self._stays = False
        fcntl.flock(self._room, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave, and close the files."""
        if self._timer is not None:
            self._timer.cancel()
        self._door.close()
        self._room.close()


_GROUPS = "adapters_groups"
_groups = pytest.StashKey[Path]()
_room = pytest.StashKey[Room]()
_MARKERS = (
    "alone: runs while no other test does, as it holds a clock against something",
    "xdist_group(name): runs in the same process as others of that name",  # Without pytest-xdist.
    "runs_tests: the tests that it runs enter the room, it doesn't itself",
    "spread: takes long by itself, and nothing is made for its file; any process may run it",
)


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
def pytest_configure_node(node: Any) -> None:
    """Tell a process where to write which tests belong together."""
    node.workerinput[_GROUPS] = str(node.config.stash[_groups])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a process whole files, as their fixtures are made once, or whole groups."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrGroup(LoadFileScheduling):
        @cached_property
        def groups(self) -> dict[str, str]:
            return dict(json.loads(config.stash[_groups].read_text()))

        def _split_scope(self, nodeid: str) -> str:
            return self.groups.get(nodeid) or str(super()._split_scope(nodeid))

    return ByFileOrGroup(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Open the room that this run shares with others, or make it."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if getattr(config.option, "dist", "no") != "no":
        folder = Path(tempfile.mkdtemp(prefix="adapters-tests-"))
        config.add_cleanup(lambda: shutil.rmtree(folder))
        config.stash[_groups] = folder / "groups.json"
        if _ROOM not in os.environ:
            os.environ[_ROOM] = str(folder)
            config.add_cleanup(lambda: os.environ.pop(_ROOM))
    elif _ROOM in os.environ:
        config.stash[_room] = room = Room(Path(os.environ[_ROOM]))
        config.add_cleanup(room.close)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put those first that run other tests, for minutes, and those last that run alone."""
    items.sort(key=lambda item: (_is(item, "alone"), not _is(item, "runs_tests")))
    if hasattr(config, "workerinput"):
        path = Path(config.workerinput[_GROUPS])
        # Every process writes the same.
        written = path.with_name(config.workerinput["workerid"])
        written.write_text(json.dumps({each.nodeid: _group(each) for each in items}))
        written.replace(path)


def _group(item: pytest.Item) -> str | None:
    """Of tests that one process runs, whatever file they are in."""
    if _is(item, "alone"):
        return "alone"
    if _is(item, "spread"):
        return item.nodeid
    marker = item.get_closest_marker("xdist_group")
    return None if marker is None else str(marker.args[0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Enter the room before any time limit begins."""
    room = item.config.stash.get(_room, None)
    if room is None or _is(item, "runs_tests"):
        return (yield)
    with room.entered(_is(item, "alone"), nextitem is not None and _is(nextitem, "alone")):
        return (yield)


def _is(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None
