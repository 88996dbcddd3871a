"""The consumer of batches: how long it is busy with one, and what it loses by waiting."""

from __future__ import annotations

import sys

# What that takes, as long as none has been started, on two cores: a process that imports Keras took
# 1.8 s with JAX, 3.2 s with TensorFlow and 4 s with PyTorch, and 0.5 s if it needs no framework.
_START_SECONDS, _SLOW_START_SECONDS, _SLOW = 1.0, 3.0, ("tensorflow", "torch")


class Consumer:
    """Whoever takes the batches of one engine."""

    def __init__(self) -> None:
        self.busy_seconds = 0.0
        """With one batch, usually."""
        self.lost_seconds = 0.0
        """Waited for batches that no process made, in all."""
        self._latest_busy = 0.0
        self._losses = 0.0, 0.0

    def was_busy(self, seconds: float) -> None:
        """Between two batches."""
        # Between two epochs, it has other things to do than what it does with each batch.
        seconds, self._latest_busy = min(seconds, self._latest_busy), seconds
        if self.busy_seconds:
            self.busy_seconds += (seconds - self.busy_seconds) / 8
        else:
            self.busy_seconds = seconds

    def lost(self, seconds: float) -> None:
        """Waited for a batch that no process made."""
        self.lost_seconds += seconds
        self._losses = self._losses[1], seconds

    def is_worth_processes(self, batches_left: float) -> bool:
        """Whether starting some pays: the waits, past and to come, are longer than their start.

        Nothing waits for that start, which only takes CPUs from the consumer.

        Args:
            batches_left: Batches that are known to come.
        """
        from adapters.engine.pool import kept  # Programs without processes do without it.

        pool = kept()
        # One batch alone may have waited for something else.
        ahead = min(self._losses) * batches_left
        start_seconds = pool.start_seconds or _guessed_start_seconds()
        return pool.idle > 0 or self.lost_seconds + ahead >= start_seconds


def _guessed_start_seconds() -> float:
    return _SLOW_START_SECONDS if any(name in sys.modules for name in _SLOW) else _START_SECONDS
