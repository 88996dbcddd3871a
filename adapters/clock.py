"""Time of a piece of work: on a CPU, queued for one, or waiting.

Wall time minus CPU time is not waiting: on a busy machine it is preemption. Linux reports for each
thread how long it was ready to run without a CPU (``/proc/thread-self/schedstat``: nanoseconds on
a CPU, nanoseconds in the queue, times it ran). Without that file, work that made no voluntary
context switch counts as not having waited.
"""

from __future__ import annotations

import resource
import time
from typing import NamedTuple

_SCHEDSTAT = "/proc/thread-self/schedstat"
# Above this share of its time in the queue, a thread's time says more about other processes.
_NOISY = 0.2


class Spent(NamedTuple):
    """Time that a piece of work took in the calling thread, in seconds."""

    seconds: float = 0.0
    """Wall time."""
    cpu_seconds: float = 0.0
    """CPU time of all threads of the process, because libraries use threads of their own."""
    queued_seconds: float = 0.0
    """Time ready to run, while other threads had the CPUs."""
    switches: int = 0
    """Number of voluntary context switches."""

    @classmethod
    def now(cls) -> Spent:
        """Read the calling thread's clocks, for ``until_now``."""
        return cls(
            time.perf_counter(),
            time.process_time(),
            _queued_seconds(),
            resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw,
        )

    def until_now(self) -> Spent:
        """Time since these clocks were read, in the same thread."""
        now = Spent.now()
        # Reading the queue time lets other threads run, after which this thread may queue again.
        asking = time.perf_counter() - now.seconds
        spent = Spent._make(late - early for late, early in zip(now, self))
        return spent._replace(queued_seconds=max(0.0, spent.queued_seconds - asking))

    @property
    def own_seconds(self) -> float:
        """Time that the work would have taken with a CPU to spare."""
        return max(1e-9, self.seconds - self.queued_seconds)

    @property
    def busy_seconds(self) -> float:
        """CPU time within ``own_seconds``; the rest was spent waiting."""
        if not self.switches:
            return self.own_seconds
        return min(self.own_seconds, self.cpu_seconds)

    @property
    def noisy(self) -> bool:
        """True if other threads had the CPUs for so long that the time says little."""
        return self.queued_seconds > _NOISY * self.seconds


def _queued_seconds() -> float:
    try:
        with open(_SCHEDSTAT, "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
