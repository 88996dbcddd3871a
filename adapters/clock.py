"""Where the time of a piece of work went: on a CPU, in the queue for one, or waiting.

Wall time less CPU time is not waiting: on a busy machine it is preemption. Linux says for each
thread how long it was ready to run and had no CPU (``/proc/thread-self/schedstat``: nanoseconds on
a CPU, nanoseconds in the queue, times it ran). Where it doesn't, work that never gave its CPU away
of its own accord, by its voluntary context switches, is taken not to have waited.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_SCHEDSTAT = "/proc/thread-self/schedstat"
# RUSAGE_THREAD is Linux's.
_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
# Above this share of its time in the queue, what a thread took tells more about others than of it.
_NOISY = 0.2


class Spent(NamedTuple):
    """What a piece of work in the calling thread has taken, in seconds."""

    seconds: float = 0.0
    """Wall time."""
    cpu_seconds: float = 0.0
    """On CPUs, over all threads of the process, as libraries compute in threads of their own."""
    queued_seconds: float = 0.0
    """Ready to run, while others had the CPUs."""
    switches: int = 0
    """How often the thread gave its CPU away of its own accord."""

    @classmethod
    def now(cls) -> Spent:
        """The clocks of the calling thread, to be asked ``until_now``; they stop for ``once``."""
        clocks = cls(
            time.perf_counter(),
            time.process_time(),
            _queued_seconds(),
            resource.getrusage(_THREAD).ru_nvcsw,
        )
        return clocks.beyond(_once.spent)

    def beyond(self, other: Spent) -> Spent:
        """What is left of it without the other."""
        return Spent(
            self.seconds - other.seconds,
            self.cpu_seconds - other.cpu_seconds,
            self.queued_seconds - other.queued_seconds,
            self.switches - other.switches,
        )

    def until_now(self) -> Spent:
        """What has gone by since, in the same thread."""
        now = Spent.now()
        # To ask for the queue lets other threads run, for which this one may queue once more.
        asking = time.perf_counter() - now.seconds - _once.spent.seconds
        spent = now.beyond(self)
        return spent._replace(queued_seconds=max(0.0, spent.queued_seconds - asking))

    @property
    def own_seconds(self) -> float:
        """What it would have taken on a machine with a CPU to spare."""
        return max(1e-9, self.seconds - self.queued_seconds)

    @property
    def busy_seconds(self) -> float:
        """On a CPU, of ``own_seconds``; the rest went by waiting."""
        if not self.switches:
            return self.own_seconds
        return min(self.own_seconds, self.cpu_seconds)

    @property
    def noisy(self) -> bool:
        """Whether others had the CPUs for so much of it that it says little."""
        return self.queued_seconds > _NOISY * self.seconds


class _Once(threading.local):
    """Of each thread: what is counted by no clock."""

    spent = Spent()


_once = _Once()


@contextmanager
def once() -> Iterator[None]:
    """Do what is done the first time only, which says nothing of what later batches take."""
    started = Spent.now()
    try:
        yield
    finally:
        _once.spent = _once.spent.beyond(Spent().beyond(started.until_now()))


def _queued_seconds() -> float:
    try:
        with open(_SCHEDSTAT, "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
