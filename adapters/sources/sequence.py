"""A sequence of whole batches that may not be thread-safe, such as a Keras ``PyDataset``."""

from __future__ import annotations

import threading
from typing import Any


class SequenceSource:
    """Batches by number, one at a time in a process unless the sequence says it is thread-safe.

    Args:
        sequence: An object with ``__len__`` or ``num_batches``, and ``__getitem__`` that returns a
            whole batch. ``sequence.thread_safe = True`` lets several threads ask at once.
        own_epochs: Whether ``on_epoch_begin`` or ``on_epoch_end`` of the sequence do something:
            its batches then depend on how often they have been called, so that a pass must not
            read beyond its own epoch.

    Pickled copies (one in every worker process) carry their own lock.
    """

    def __init__(self, sequence: Any, own_epochs: bool) -> None:
        self._sequence = sequence
        self._lock = threading.Lock()
        self.own_epochs = own_epochs
        if len(self) < 1:
            raise ValueError("source must hold at least one batch, got 0")

    def __len__(self) -> int:
        count = getattr(self._sequence, "num_batches", None)
        if count is None and hasattr(self._sequence, "__len__"):
            count = len(self._sequence)
        if count is None:
            raise ValueError(
                f"source {type(self._sequence).__name__} must have a finite length, got "
                "num_batches = None; an epoch of an endless sequence has no end"
            )
        return int(count)

    @property
    def thread_safe(self) -> bool:
        """Whether several threads may ask at once."""
        return bool(getattr(self._sequence, "thread_safe", False))

    def batch(self, number: int) -> Any:
        """The whole batch of this number."""
        if self.thread_safe:
            return self._sequence[number]
        with self._lock:
            return self._sequence[number]

    def begin_epoch(self) -> None:
        """Call the sequence's own hook, while nobody reads."""
        if hasattr(self._sequence, "on_epoch_begin"):
            with self._lock:
                self._sequence.on_epoch_begin()

    def end_epoch(self) -> None:
        """Call the sequence's own hook, while nobody reads."""
        if hasattr(self._sequence, "on_epoch_end"):
            with self._lock:
                self._sequence.on_epoch_end()

    def renew_lock(self) -> None:
        """In a forked process, where whoever held the lock is not."""
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())
