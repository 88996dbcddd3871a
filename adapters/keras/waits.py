"""What the trainer waited for batches in each epoch of ``fit``: a callback."""

from __future__ import annotations

import copy
import logging
import sys
import time
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from adapters.engine import Wait
from adapters.keras.progress import place_after
from adapters.keras.sequence import SafeSequence

log = logging.getLogger("adapters")

# Batches after which their waits are looked up: a sequence keeps the latest ten thousand.
_LOOKED_UP = 1000


class WaitReport(keras.callbacks.Callback):  # type: ignore[misc]
    """Logs a line per epoch: how much of it the trainer waited for its batches.

    On TensorFlow, a batch that was there before the trainer asked cost it no wait, however long the
    thread that reads ahead had stood for it.

    Args:
        sequence: What ``fit`` trains on.

    Raises:
        TypeError: Another kind of data set.

    Attributes:
        waits_seconds: Of the latest epoch, float64 ``(batches,)``.
        shares: Of each epoch so far, the part that the trainer waited, 0 to 1.

    Example:
        >>> import numpy as np
        >>> from adapters import SafeSequence
        >>> from adapters.keras import WaitReport
        >>> report = WaitReport(SafeSequence(np.zeros((10, 3))))
        >>> report.shares
        []
    """

    def __init__(self, sequence: SafeSequence) -> None:
        super().__init__()
        if not isinstance(sequence, SafeSequence):
            raise TypeError(
                "sequence must be the SafeSequence that fit trains on, got "
                f"{type(sequence).__name__}"
            )
        self._sequence = sequence
        self._asked: list[tuple[int, float]] = []
        self._waits: list[float] = []
        self._ended: float | None = None
        self._start = 0, 0
        self._first: int | None = None
        """Number of the batch of Keras's that is the start."""
        self._began = 0.0
        self.waits_seconds: NDArray[np.float64] = np.empty(0)
        self.shares: list[float] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> WaitReport:
        """A report on the same sequence, as a tuner copies callbacks and not the data."""
        memo[id(self._sequence)] = self._sequence
        memo[id(self)] = twin = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """An epoch begins: its first batch is the one that the sequence says comes next."""
        self._start = self._sequence._settled()._progress.position()
        self._asked, self._waits, self._ended, self._first = [], [], None, None
        self._began = time.perf_counter()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """The trainer is about to ask for a batch; on PyTorch, it has it."""
        if len(self._asked) >= _LOOKED_UP:
            self._look_up()
        self.begin_at(batch)
        self._asked.append((batch, time.perf_counter()))

    def begin_at(self, batch: int) -> None:
        """Take the number of an epoch's first batch, also where it isn't to be counted itself."""
        if self._first is None:
            self._first = batch

    def on_test_begin(self, logs: Any = None) -> None:
        """Validation is no part of the epoch's training."""
        self._ended = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Work out the waits of this epoch's batches, and log their sum."""
        seconds = (self._ended or time.perf_counter()) - self._began
        waits = self.waits_of_epoch()
        self.waits_seconds = np.array(waits)
        self.shares.append(float(self.waits_seconds.sum()) / max(seconds, 1e-9))
        if waits:
            log.info(
                "epoch %d: waited %.3g s of %.3g s for batches (%.0f%%), 99%% of them within "
                "%.3g ms",
                epoch,
                self.waits_seconds.sum(),
                seconds,
                100 * self.shares[-1],
                1000 * np.percentile(waits, 99),
            )

    def waits_of_epoch(self) -> list[float]:
        """What the trainer waited for each batch that it asked for since the epoch began."""
        self._look_up()
        return self._waits

    def _look_up(self) -> None:
        """What became of the batches that were asked for since the last time."""
        latest = {(wait.epoch, wait.step): wait for wait in self._sequence.waits.latest()}
        num_batches = self._sequence.num_batches
        together = getattr(self.model, "steps_per_execution", 1)
        most = (self.params or {}).get("steps") or sys.maxsize
        for place, asked in self._asked:
            # Of several in one execution, each is asked for when the one before is there.
            for number in range(place, min(place + together, most)):
                count = number - (self._first or 0)
                wait = latest.get(place_after(*self._start, count, num_batches))
                if wait is not None:
                    self._waits.append(_of_the_trainer(wait, asked))
                    asked = max(asked, wait.ready)
        self._asked = []


def _of_the_trainer(wait: Wait, asked: float) -> float:
    """What the trainer waited, of what the reader did."""
    if keras.backend.backend() != "tensorflow":
        return wait.seconds  # They are one.
    return min(max(0.0, wait.ready - asked), wait.seconds)
