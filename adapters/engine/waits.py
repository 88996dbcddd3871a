"""Stall times: how long the reader waited for each batch, and whether processes would pay.

The reader's thread records; any thread may read. Recording takes a microsecond per batch, and the
latest ten thousand are kept.
"""

from __future__ import annotations

import collections
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_KEPT = 10_000
# Short batches count together: a reader ahead of the trainer may read several at once.
_STRETCH_SECONDS = 0.008


class Wait(NamedTuple):
    """Times of the delivery of one batch."""

    epoch: int
    step: int
    """Step of the batch in its epoch, from 0."""
    ready: float
    """Time when the reader got it, by ``time.perf_counter``, in seconds."""
    seconds: float
    """Time that the reader waited for it."""
    busy_seconds: float
    """Time between the reader's last batch and its request for this one."""


class Waits:
    """Latest waits, and the sums over all of them.

    Example:
        >>> from adapters.engine import Waits
        >>> waits = Waits()
        >>> waits.note((0, 0), ready=7.5, seconds=0.25, busy_seconds=0.75)
        >>> waits.share
        0.25
    """

    def __init__(self) -> None:
        self._latest: collections.deque[Wait] = collections.deque(maxlen=_KEPT)
        self.batches = 0
        """Number of delivered batches."""
        self.waited_seconds = 0.0
        """Time waited for all of them."""
        self.busy_seconds = 0.0
        """Time that the reader spent between them."""

    def note(
        self, position: tuple[int, int], ready: float, seconds: float, busy_seconds: float
    ) -> None:
        """Record the delivery of a batch."""
        self._latest.append(Wait(*position, ready, seconds, busy_seconds))
        self.batches += 1
        self.waited_seconds += seconds
        self.busy_seconds += busy_seconds

    def latest(self) -> list[Wait]:
        """Return up to ten thousand waits, the newest last."""
        return list(self._latest)

    @property
    def seconds(self) -> NDArray[np.float64]:
        """The latest waits, float64 ``(batches,)``, in seconds."""
        return np.array([wait.seconds for wait in self.latest()], dtype=np.float64)

    @property
    def share(self) -> float:
        """Share of the reader's time spent waiting: 0 if every batch was ready."""
        return self.waited_seconds / max(self.waited_seconds + self.busy_seconds, 1e-9)

    def __str__(self) -> str:
        if not self.batches:
            return "no batches yet"
        median, most = 1000 * np.percentile(self.seconds, [50, 99])
        return (
            f"{self.batches:,} batches: waited {self.waited_seconds:.3g} s for them, "
            f"{self.share:.0%} of the time; median {median:.3g} ms, 99% within {most:.3g} ms"
        )


class Losses:
    """Time that the trainer loses by waiting for batches that no process makes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Time lost so far."""
        self._per_batch = 0.0, 0.0
        self._latest: list[tuple[float, float]] = []

    def note(self, waited_seconds: float, spare_seconds: float) -> None:
        """Record a wait.

        Args:
            waited_seconds: Time that the reader waited for a batch.
            spare_seconds: Time that the reader had before, because it is ahead of the trainer; a
                reader that waits less than that costs the trainer nothing.
        """
        self._latest.append((waited_seconds, spare_seconds))
        waited, spare = map(sum, zip(*self._latest))
        if waited + spare < _STRETCH_SECONDS:
            return
        lost, count = max(0.0, waited - spare), len(self._latest)
        self.seconds += lost
        self._per_batch = self._per_batch[1], lost / count
        self._latest.clear()

    def outweigh_processes(self, batches_left: float, start_seconds: float) -> bool:
        """True if past and future waits together are longer than the start of a process.

        Nothing waits for the start itself, but it takes CPUs from the trainer. An idle process
        starts at once.

        Args:
            batches_left: Number of batches known to follow; may be infinite.
            start_seconds: Time that a process takes to start, until it has been measured.
        """
        from adapters.engine.pool import shared_pool  # Programs without processes need none.

        pool = shared_pool()
        # A single stretch may have waited for something else.
        usual = min(self._per_batch)
        ahead = usual * batches_left if usual else 0.0
        start_seconds = pool.start_seconds or start_seconds
        return bool(pool.idle) or self.seconds + ahead >= start_seconds
