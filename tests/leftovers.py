"""What a test may leave behind: threads, child processes, shared memory."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

import psutil

# Helper processes of loky and of the standard library: shared by all pools of this interpreter,
# started with its first pool, and gone with the interpreter.
_TRACKERS = ("loky.backend.resource_tracker", "multiprocessing.resource_tracker")
# The OpenMP runtime of PyTorch and scikit-learn registers itself for the life of the process.
_RUNTIMES = ("__KMP_REGISTERED_LIB_",)
_MEMORY_FILE = "/memfd:loader-adapters"


@dataclass(frozen=True)
class Leftovers:
    """Everything of this process that outlives a test that doesn't clean up."""

    threads: frozenset[threading.Thread]
    processes: frozenset[psutil.Process]
    segments: frozenset[str]
    """Files in /dev/shm, but for those that name another process as their owner."""
    descriptors: frozenset[str]
    """Of our memory files; Python's mappings have one each, too."""

    @classmethod
    def now(cls) -> Leftovers:
        """Look around."""
        return cls(
            frozenset(filter(_counts, threading.enumerate())),
            frozenset(child for child in psutil.Process().children() if not _is_tracker(child)),
            frozenset(filter(_is_ours, os.listdir("/dev/shm"))),
            _descriptors(),
        )

    def beyond(self, before: Leftovers) -> list[str]:
        """What is here and wasn't before, in words."""
        return [
            f"{kind}: {thing}"
            for kind, things in vars(self).items()
            for thing in things - getattr(before, kind)
        ]


def _counts(thread: threading.Thread) -> bool:
    # A thread that TensorFlow or JAX made, and that has called Python once; Python never forgets
    # those.
    return not isinstance(thread, threading._DummyThread)


def _is_tracker(process: psutil.Process) -> bool:
    return any(tracker in command_line(process) for tracker in _TRACKERS)


def command_line(process: psutil.Process) -> str:
    """A process's arguments; empty for one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _is_ours(name: str) -> bool:
    if name.startswith(_RUNTIMES):
        return False
    # sem.loky-1234-x5t1: of process 1234.
    owner = name.split("-")[1] if name.startswith("sem.loky-") else str(os.getpid())
    return owner == str(os.getpid())


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
