"""Where a sequence stands: which epoch is current, and how far the latest pass has come.

The epoch advances when a pass has delivered its last batch; a pass that was abandoned changes
nothing, so the next one starts where it started. No class here knows a worker or a framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from adapters.batch.key import WHOLE, Continuation


def place_after(epoch: int, step: int, count: int, num_batches: int | None) -> tuple[int, int]:
    """(epoch, step) so many batches further; None is the length of an epoch without an end."""
    if num_batches is None:
        return epoch, step + count
    epochs, step = divmod(step + count, num_batches)
    return epoch + epochs, step


def place_of(epoch: int, step: int, num_batches: int | None) -> int:
    """Of a batch among those of all epochs, or among those of one without an end."""
    return epoch * (num_batches or 0) + step


def left_after(step: int, num_batches: int | None) -> float:
    """Batches from this one to the end of its epoch; infinite if it has none."""
    return math.inf if num_batches is None else num_batches - step


class Account:
    """The account of one walk through batches, over the ends of epochs if it is endless.

    Args:
        num_batches: In an epoch; None if it has no end.
        epoch: Of the first batch.
        step: Of the first batch in its epoch.
        aside: It moves nothing, see ``Progress``.
    """

    def __init__(self, num_batches: int | None, epoch: int, step: int, aside: bool = False) -> None:
        self._num_batches = num_batches
        self._most = left_after(step, num_batches)
        self.epoch = epoch
        self.step = step
        self.aside = aside
        self.shuffled = False
        """Whether the batches of an epoch are permuted as wholes."""
        self.taken = 0
        """Batches that have been handed out."""
        self.lag = 0
        """Batches that the framework keeps before it gives one to the trainer."""
        self.count: Callable[[], int] | None = None
        """Counts the batches that have reached the trainer, where the framework can tell."""
        self.stamp = 0
        """Of the ``Progress``, when the walk began."""
        self.seen = 0
        """What that had counted when it was last looked."""

    @property
    def left(self) -> float:
        """Batches to hand out until the end of the first epoch; infinite if it has none."""
        return self._most - self.taken

    @property
    def place(self) -> int:
        """Of the batch that is handed out next, see ``place_of``."""
        return place_of(self.epoch, self.step + self.taken, self._num_batches)

    @property
    def consumed(self) -> int:
        """Batches that have reached the trainer."""
        return self.count() if self.count is not None else max(0, self.taken - self.lag)

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, step) of the batch that the trainer needs next."""
        return place_after(self.epoch, self.step, self.consumed, self._num_batches)

    @property
    def start_of_next(self) -> tuple[int, int]:
        """Where the pass after this one starts."""
        epoch = self.position[0]
        return (epoch, 0) if epoch > self.epoch else (self.epoch, self.step)

    def forget(self) -> None:
        """What was handed out was looked at, and is the next again."""
        self.taken = 0


class Progress:
    """The state of a sequence: two integers, and the pass that moves them.

    Whoever reads the sequence within a call of Keras's that does so, as a validation of the same
    may, or a callback, reads aside, see ``calls``: that moves nothing.

    Args:
        num_batches: In an epoch; None if it has no end.
        on_advance: Called with the new epoch whenever it advances.
    """

    def __init__(self, num_batches: int | None, on_advance: Callable[[int], None]) -> None:
        self._num_batches = num_batches
        self._on_advance = on_advance
        self._start = 0, 0
        self.continuation = WHOLE
        """The rest of the epoch that somebody has moved it into, if it isn't a whole one."""
        self._latest: Account | None = None
        self._followed: list[Account] = []
        self._just_advanced = False
        self.stamp = 0
        """Changes when somebody moves the sequence by hand."""

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._start[0]

    @property
    def start(self) -> tuple[int, int]:
        """(epoch, step) at which the next pass begins."""
        self.settle()
        return self._start

    def settle(self) -> None:
        """Nobody goes on with the latest pass: advance the epoch if it has come to its end."""
        self.look()
        if self._latest is not None:
            self.advance_past(self._latest)

    def begin(self, start: tuple[int, int] | None = None, aside: bool = False) -> Account:
        """Start a pass, at the start of the current epoch or at ``start``."""
        self.look()
        account = Account(self._num_batches, *(start or self.start), aside)
        account.stamp = self.stamp
        if not aside:
            self._latest, self._just_advanced = account, False
        return account

    def hand_out(self, account: Account) -> None:
        """The pass has delivered a batch; it is the one that ``position`` is about.

        But where that is read ahead, by a framework that counts what reaches the trainer.
        """
        account.taken += 1
        if account.count is None and not account.aside:
            if self._followed:
                self.look()
            self._latest = account

    def follow(self, account: Account) -> None:
        """``position`` is about this pass, which counts, once a batch of it reaches the trainer."""
        if not account.aside:
            self._followed.append(account)

    def finish(self, account: Account) -> None:
        """The pass is over; how far it has come is asked of nobody any more."""
        self.look()
        consumed = account.consumed
        account.count = lambda: consumed
        self.leave(account)

    def leave(self, account: Account) -> None:
        """Whoever reads the pass is gone."""
        if account in self._followed:
            self._followed.remove(account)

    def look(self) -> None:
        """Find out which of the passes that count has come further since the last look.

        That is asked before another one begins or ends, so that it is one.
        """
        for account in tuple(self._followed):
            consumed = account.consumed
            if consumed != account.seen:
                account.seen = consumed
                self._latest = account

    def go_on(self, account: Account) -> None:
        """Another epoch of the pass begins: it is the one that ``position`` is about."""
        self.look()
        if not account.aside:
            self._latest = account

    def advance_past(self, account: Account) -> None:
        """Advance the epoch if the pass has come to the end of one, and nobody has moved it."""
        start = account.start_of_next
        moved = account.aside or account.stamp != self.stamp
        if not moved and start[0] > max(account.epoch, self._start[0]):
            self._start = start
            self._just_advanced = True
            self.advanced()

    def read_by_number(self) -> None:
        """A loop of the program's own reads the current epoch, and will say when it is over."""
        self._just_advanced = False

    def end_epoch(self) -> None:
        """Advance the epoch, unless a pass that came to its end has just done so."""
        self.settle()
        if not self._just_advanced:
            self.advance()
        self._just_advanced = False

    def advance(self) -> None:
        """Make the next epoch the current one."""
        self.move(self.epoch + 1, 0)
        self._just_advanced = True
        self.advanced()

    def advanced(self) -> None:
        """Say that another epoch is the current one."""
        self._on_advance(self.epoch)

    def position(self) -> tuple[int, int]:
        """(epoch, step) behind the last batch that was delivered."""
        self.look()
        return self._latest.position if self._latest is not None else self._start

    @property
    def counts_samples(self) -> bool:
        """Whether what was delivered is the beginning of the epoch's order."""
        epoch, step = self.position()
        shuffled = self._latest is not None and self._latest.shuffled
        return not (shuffled and step) or self.continuation.covers(epoch, step)

    def move(self, epoch: int, step: int, continuation: Continuation = WHOLE) -> None:
        """Make this the place where the next pass starts."""
        self.look()
        self._start, self.continuation = (epoch, step), continuation
        self._latest, self._just_advanced = None, False
        self.stamp += 1
