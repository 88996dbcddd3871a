"""The consumer of batches: how long it is busy with one, and what it loses by waiting."""

from __future__ import annotations

import sys

# Processes are started where what is waited for without them is that many times their start.
_WORTH = 2.0
# Where they start beside the consumer, they only take CPUs from it.
_WORTH_BESIDE = 1.0
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

    def is_worth_processes(self, batches_left: float, beside: bool = False) -> bool:
        """Whether starting some pays, in what is left, or by what was lost before.

        Args:
            batches_left: That are known to come.
            beside: Nobody waits for their start.
        """
        from adapters.engine.pool import kept  # Programs without processes do without it.

        pool = kept()
        # One batch alone may have waited for something else.
        ahead = min(self._losses) * batches_left
        worth = _WORTH_BESIDE if beside else _WORTH
        return pool.idle > 0 or self.lost_seconds + ahead >= worth * (
            pool.start_seconds or _guessed_start_seconds()
        )


def _guessed_start_seconds() -> float:
    return _SLOW_START_SECONDS if any(name in sys.modules for name in _SLOW) else _START_SECONDS
