"""``WaitReport``: a callback that reports how long the trainer waited for batches."""

from __future__ import annotations

import copy
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from adapters.keras.progress import position_after
from adapters.keras.sequence import SafeSequence

log = logging.getLogger("adapters")


class WaitReport(keras.callbacks.Callback):  # type: ignore[misc]
    """Logs a line per epoch: the share of time that the trainer waited for batches.

    On TensorFlow, a batch that was ready when the trainer requested it counts as no wait, even if
    the thread that reads ahead had to wait for it.

    Args:
        sequence: The sequence that ``fit`` trains on.

    Raises:
        TypeError: The data set is no ``SafeSequence``.

    Attributes:
        waits_seconds: Waits in the latest epoch, float64 ``(batches,)``, of at most its last ten
            thousand batches.
        shares: Share of time that the trainer waited in each epoch so far, 0 to 1.

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
        self._start = 0, 0  # Position of the epoch's first batch.
        self._began = 0.0
        self._ended: float | None = None
        self._requests: list[tuple[int, float]] = []
        """Numbers of this epoch's executions in Keras, and when they were requested."""
        self.waits_seconds: NDArray[np.float64] = np.empty(0)
        self.shares: list[float] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._sequence!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> WaitReport:
        """Copy the report but not the sequence, as tuners copy callbacks and not the data."""
        memo[id(self._sequence)] = self._sequence
        memo[id(self)] = twin = copy.copy(self)
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the position of the epoch's first batch, and the time."""
        self._start, self._requests = self._sequence._with_shard()._progress.position(), []
        self._began, self._ended = time.perf_counter(), None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Note the time at which the trainer requests a batch; on PyTorch, it already has it."""
        self._requests.append((batch, time.perf_counter()))

    def on_test_begin(self, logs: Any = None) -> None:
        """Stop the time, as validation is no part of the epoch's training."""
        self._ended = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compute the waits of this epoch's batches, and log their sum."""
        seconds = (self._ended or time.perf_counter()) - self._began
        self.waits_seconds = waits = np.fromiter(self._waits(), np.float64)
        self.shares.append(float(waits.sum()) / max(seconds, 1e-9))
        if len(waits):
            log.info(
                "epoch %d: waited %.3g s of %.3g s for batches (%.0f%%), 99%% of them within "
                "%.3g ms",
                epoch,
                waits.sum(),
                seconds,
                100 * self.shares[-1],
                1000 * np.percentile(waits, 99),
            )

    def _waits(self) -> Iterator[float]:
        """Waits for the batches of this epoch; a sequence keeps only the latest ten thousand."""
        latest = {(wait.epoch, wait.step): wait for wait in self._sequence.waits.latest()}
        together = getattr(self.model, "steps_per_execution", 1)
        end = (self.params or {}).get("steps") or sys.maxsize
        for place, requested in self._requests:
            # With several steps in one execution, each batch is requested after the previous one.
            for number in range(place, min(place + together, end)):
                count = number - self._requests[0][0]
                position = position_after(*self._start, count, self._sequence.num_batches)
                if (wait := latest.get(position)) is not None:
                    on_tensorflow = keras.backend.backend() == "tensorflow"
                    since_request = max(0.0, wait.ready - requested)
                    # There, the reader may not be the trainer.
                    yield min(since_request, wait.seconds) if on_tensorflow else wait.seconds
                    requested = max(requested, wait.ready)
