"""Consumer of batches: its time for one, and the time it loses by waiting."""

from __future__ import annotations


class Consumer:
    """Consumer of the batches of one engine."""

    def __init__(self) -> None:
        self.busy_seconds = 0.0
        """Usual time for one batch."""
        self.lost_seconds = 0.0
        """Total time spent waiting for batches that no process made."""
        self._latest_busy = 0.0
        self._losses = 0.0, 0.0

    def was_busy(self, seconds: float) -> None:
        """Record the time between two batches."""
        # Between two epochs, the consumer does other work than between batches.
        seconds, self._latest_busy = min(seconds, self._latest_busy), seconds
        if self.busy_seconds:
            self.busy_seconds += (seconds - self.busy_seconds) / 8
        else:
            self.busy_seconds = seconds

    def lost(self, seconds: float) -> None:
        """Record a wait for a batch that no process made."""
        self.lost_seconds += seconds
        self._losses = self._losses[1], seconds

    def is_worth_processes(self, batches_left: float, start_seconds: float) -> bool:
        """True if starting processes pays: past and future waits are longer than their start.

        Nothing waits for the start itself, but it takes CPUs from the consumer.

        Args:
            batches_left: Number of batches known to follow.
            start_seconds: Time that a process takes to start, until it has been measured.
        """
        from adapters.engine.pool import kept  # Here, because programs without processes need none.

        pool = kept()
        # A single batch may have waited for something else.
        ahead = min(self._losses) * batches_left
        start_seconds = pool.start_seconds or start_seconds
        return pool.idle > 0 or self.lost_seconds + ahead >= start_seconds
