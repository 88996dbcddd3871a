"""Stall times: how long the reader waited for each batch.

The reader's thread records; any thread may read. Recording takes a microsecond per batch, and the
latest ten thousand are kept.
"""

from __future__ import annotations

import collections
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_KEPT = 10_000


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
