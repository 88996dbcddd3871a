"""How long the reader of batches waited for each: what a training run tells about its loader.

The thread that reads notes; any thread may look. What is noted for a batch costs a microsecond, and
is kept for the latest ten thousand.
"""

from __future__ import annotations

import collections
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_KEPT = 10_000


class Wait(NamedTuple):
    """What is known of the delivery of one batch."""

    epoch: int
    step: int
    """Of the batch in its epoch, from 0."""
    ready: float
    """When the reader had it, by ``time.perf_counter``, in seconds."""
    seconds: float
    """How long the reader stood and waited for it."""
    busy_seconds: float
    """How long the reader was away before it asked."""


class Waits:
    """The latest waits, and the sums over all.

    Example:
        >>> from adapters.engine import Waits
        >>> waits = Waits()
        >>> waits.note((0, 0), ready=7.5, seconds=0.25, busy_seconds=0.75)
        >>> waits.share
        0.25
    """

    def __init__(self) -> None:
        self._latest: collections.deque[tuple[tuple[int, int], float, float, float]]
        self._latest = collections.deque(maxlen=_KEPT)
        self.batches = 0
        """How many were delivered."""
        self.waited_seconds = 0.0
        """For all of them."""
        self.busy_seconds = 0.0
        """What the reader was away for between them."""

    def note(
        self, position: tuple[int, int], ready: float, seconds: float, busy_seconds: float
    ) -> None:
        """A batch was delivered."""
        self._latest.append((position, ready, seconds, busy_seconds))
        self.batches += 1
        self.waited_seconds += seconds
        self.busy_seconds += busy_seconds

    def latest(self) -> list[Wait]:
        """Up to ten thousand, the newest last."""
        return [Wait(*position, *times) for position, *times in list(self._latest)]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """The latest waits, float64 ``(batches,)``, in seconds."""
        return np.array([wait.seconds for wait in self.latest()], dtype=np.float64)

    @property
    def share(self) -> float:
        """Of its time, what the reader waited: 0 where every batch was ready."""
        return self.waited_seconds / max(self.waited_seconds + self.busy_seconds, 1e-9)

    def __str__(self) -> str:
        if not self.batches:
            return "no batches yet"
        median, most = 1000 * np.percentile(self.seconds, [50, 99])
        return (
            f"{self.batches:,} batches: waited {self.waited_seconds:.3g} s for them, "
            f"{self.share:.0%} of the time; median {median:.3g} ms, 99% within {most:.3g} ms"
        )
