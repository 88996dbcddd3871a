"""What a test may leave behind: threads, child processes, shared memory."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from adapters.engine import pool
from tests.clusters import THREADS

# The standard library's helper process, which whoever uses its shared memory or locks starts; gone
# with the interpreter.
_TRACKER = "multiprocessing.resource_tracker"
# The OpenMP runtime of PyTorch and scikit-learn registers itself for the life of the process.
_RUNTIMES = ("__KMP_REGISTERED_LIB_",)
_MEMORY_FILE = "/memfd:loader-adapters"
_DEADLINE_SECONDS = 3.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Leftovers:
    """Everything of this process that outlives a test that doesn't clean up."""

    threads: frozenset[threading.Thread]
    processes: frozenset[psutil.Process]
    segments: frozenset[str]
    """Files in /dev/shm, perhaps also of other processes that run tests."""
    descriptors: frozenset[str]
    """Of our memory files; Python's mappings have one each, too."""

    @classmethod
    def now(cls) -> Leftovers:
        """Look around."""
        return cls(
            frozenset(filter(_counts, threading.enumerate())),
            frozenset(filter(_is_wanted, _children())),
            frozenset(filter(_may_be_ours, os.listdir("/dev/shm"))),
            _descriptors(),
        )

    def lasting(self) -> list[str]:
        """What came after this and stays, in words: threads and processes get time to end."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while (left := self.now().beyond(self)) and time.monotonic() < deadline:
            gc.collect()
            time.sleep(_POLL_SECONDS)
        return left

    def beyond(self, before: Leftovers) -> list[str]:
        """What is here and wasn't before, in words."""
        return [
            f"{kind}: {thing}"
            for kind, things in vars(self).items()
            for thing in things - getattr(before, kind)
            # Looked up for what is new alone: it takes milliseconds for each process that there is.
            if kind != "segments" or not _is_mapped_elsewhere(thing)
        ]


def _children() -> list[psutil.Process]:
    """This process's children, of any of its threads.

    Worth it: 0.3 ms with 30 threads, where psutil looks at all processes in 3, and pathlib opens
    the files in 1.4, twice for each of 10,000 tests.
    """
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # Linux may lack it.
        return psutil.Process().children()
    children = []
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError):  # It has ended since.
            for pid in _content(f"/proc/self/task/{task}/children").split():
                with suppress(psutil.Error):
                    children.append(psutil.Process(int(pid)))
    return children


def _content(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _counts(thread: threading.Thread) -> bool:
    if thread.name.startswith(THREADS):
        return False
    # A thread that TensorFlow or JAX made, and that has called Python once; Python never forgets
    # those.
    return not (isinstance(thread, threading._DummyThread) or thread in _idle().values())


def _idle() -> dict[int, threading.Thread]:
    """Worker processes that no executor has, kept for the next test, and their threads."""
    kept = pool.shared_pool()
    with kept._lock:
        workers = kept._workers.items()
        return {worker.pid: thread for worker, thread in workers if worker.lessee is None}


def idle_pids() -> set[int]:
    """Worker processes that no executor has."""
    return set(_idle())


def _is_wanted(process: psutil.Process) -> bool:
    """Whether it should be gone: it is neither a tracker nor kept for the next test."""
    return process.pid not in idle_pids() and not _is_tracker(process)


def _is_tracker(process: psutil.Process) -> bool:
    return _TRACKER in command_line(process)


def command_line(process: psutil.Process) -> str:
    """A process's arguments; empty for one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _may_be_ours(name: str) -> bool:
    return not name.startswith(_RUNTIMES)


def _is_mapped_elsewhere(name: str) -> bool:
    """Whether somebody has that file who is neither this process nor a child of it.

    Tests run in several processes, and the names of most shared memory don't tell whose it is.
    Inodes are compared, as a semaphore is mapped by a name that it had before its own.
    """
    try:
        inode = os.stat(f"/dev/shm/{name}").st_ino
    except FileNotFoundError:  # Whoever had it has removed it since.
        return True
    is_it = re.compile(rf" {inode} +/dev/shm/")
    family = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    for pid in set(psutil.pids()) - family:
        with suppress(OSError):  # It has ended, or is another user's.
            if is_it.search(Path(f"/proc/{pid}/maps").read_text()):
                return True
    return False


def _descriptors() -> frozenset[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # The descriptor of this very listing.
            continue
        if target.startswith(_MEMORY_FILE):
            found.add(f"{number} -> {target}")
    return frozenset(found)
