"""Position of a sequence: the current epoch, and the cursor of the latest pass.

The epoch advances when a pass has delivered its last batch; an abandoned pass is replayed. While a
``fit`` reads a sequence, only the training moves its position: a validation over the same sequence,
or a callback that evaluates it or loops over it, is a secondary pass. So the running calls are
registered here.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable
from typing import Any

from adapters.batch.plan import WHOLE, ResumedEpoch


def position_after(epoch: int, step: int, count: int, num_batches: int | None) -> tuple[int, int]:
    """Position ``(epoch, step)`` after ``count`` more batches; an epoch may be endless (None)."""
    if num_batches is None:
        return epoch, step + count
    epochs, step = divmod(step + count, num_batches)
    return epoch + epochs, step


@dataclasses.dataclass(eq=False)
class Cursor:
    """Cursor of one pass. An endless pass runs over the ends of epochs."""

    num_batches: int | None  # In an epoch; None if it is endless.
    epoch: int
    step: int
    stamp: int  # ``Progress.stamp`` at the start of the pass.
    secondary: bool
    shuffled: bool  # True if the order of the batches in an epoch is permuted.
    taken: int = 0  # Batches handed out.
    trained: int | None = None  # Batches that the trainer has reported; None if it doesn't.

    @property
    def left(self) -> float:
        """Number of batches left in the first epoch; infinite if it is endless."""
        return (math.inf if self.num_batches is None else self.num_batches) - self.step - self.taken

    @property
    def position(self) -> tuple[int, int]:
        """``(epoch, step)`` of the batch that the trainer needs next."""
        consumed = self.taken if self.trained is None else self.trained
        return position_after(self.epoch, self.step, consumed, self.num_batches)

    @property
    def start_of_next(self) -> tuple[int, int]:
        """``(epoch, step)`` at which the pass after this one starts."""
        epoch = self.position[0]
        return (epoch, 0) if epoch > self.epoch else (self.epoch, self.step)


class Progress:
    """Position of a sequence: two integers, and the pass that moves them.

    ``on_advance`` is called with the new epoch whenever it advances.
    """

    def __init__(self, num_batches: int | None, on_advance: Callable[[int], None]) -> None:
        self._num_batches = num_batches
        self._on_advance = on_advance
        self._start = 0, 0
        self.resumed = WHOLE
        """Rest of an epoch to resume, from ``move``; ``WHOLE`` for whole epochs."""
        self._latest: Cursor | None = None
        self._just_advanced = False
        self.stamp = 0
        """Number of calls of ``move``, to notice that the position was changed."""

    @property
    def epoch(self) -> int:
        """Current epoch."""
        return self._start[0]

    def next_start(self) -> tuple[int, int]:
        """Advance if that is due, which may call the user's hooks; ``(epoch, step)`` from there."""
        self.advance_if_finished()
        return self._start

    def advance_if_finished(self) -> None:
        """Advance the epoch if the latest pass has reached its end."""
        if self._latest is not None:
            self.advance_past(self._latest)

    def begin(
        self, start: tuple[int, int] | None = None, secondary: bool = False, shuffled: bool = False
    ) -> Cursor:
        """Start a pass, at the start of the current epoch or at ``start``."""
        epoch, step = start or self.next_start()
        cursor = Cursor(self._num_batches, epoch, step, self.stamp, secondary, shuffled)
        if not secondary:
            self._latest, self._just_advanced = cursor, False
        return cursor

    def hand_out(self, cursor: Cursor) -> None:
        """Count a delivered batch. ``position`` reports this pass, unless its trainer reports."""
        cursor.taken += 1
        if cursor.trained is None:
            self.follow(cursor)

    def consume(self, cursor: Cursor, batches: int) -> None:
        """Count batches that the trainer reports, up to those that were delivered."""
        cursor.trained = min(cursor.taken, (cursor.trained or 0) + batches)
        self.follow(cursor)

    def follow(self, cursor: Cursor) -> None:
        """Make ``position`` report this pass, unless it is secondary or ``move`` was called."""
        if not cursor.secondary and cursor.stamp == self.stamp:
            self._latest = cursor

    def advance_past(self, cursor: Cursor) -> None:
        """Advance the epoch if the pass has reached its end and ``move`` wasn't called since."""
        start = cursor.start_of_next
        moved = cursor.secondary or cursor.stamp != self.stamp
        if not moved and start[0] > max(cursor.epoch, self._start[0]):
            self._start = start
            self._advanced()

    def read_by_number(self) -> None:
        """Note a read by ``seq[i]``, in a loop that reports the end of its epoch itself."""
        self._just_advanced = False

    def end_epoch(self) -> None:
        """Advance the epoch, unless a pass that reached its end has just done so."""
        self.advance_if_finished()
        if not self._just_advanced:
            self.advance()
        self._just_advanced = False

    def advance(self) -> None:
        """Make the next epoch the current one."""
        self.move(self.epoch + 1, 0)
        self._advanced()

    def _advanced(self) -> None:
        self._just_advanced = True
        self._on_advance(self.epoch)

    def position(self) -> tuple[int, int]:
        """``(epoch, step)`` of the batch after the last delivered one."""
        return self._latest.position if self._latest is not None else self._start

    @property
    def counts_samples(self) -> bool:
        """True if the delivered batches are the start of the epoch's order of samples."""
        epoch, step = self.position()
        shuffled = self._latest is not None and self._latest.shuffled
        return not (shuffled and step) or self.resumed.covers(epoch, step)

    def move(self, epoch: int, step: int, resumed: ResumedEpoch = WHOLE) -> None:
        """Make the next pass start here."""
        self._start, self.resumed = (epoch, step), resumed
        self._latest, self._just_advanced = None, False
        self.stamp += 1


running: list[Any] = []
"""Running calls of all threads, ``patches.Call``, the latest last."""


def calls_here() -> list[Any]:
    """Running calls of this thread, innermost last."""
    here = threading.get_ident()  # Other than ``current_thread``, it leaves no trace of the thread.
    return [call for call in list(running) if call.thread.ident == here]


def is_read_by_a_call(progress: Progress) -> bool:
    """True if a running call of this thread reads the sequence with this ``Progress``."""
    return any(each.reads(progress) for call in calls_here() for each in call.readers)
