"""Where a loader stands: which pass is the next one, and how far the latest has come.

Each pass over a Gluon loader is an epoch of its own, one that is abandoned too. The state is that
of the latest pass, so that whoever loads it elsewhere goes on with just that pass. No class here
knows a worker, and one thread at a time may use a ``Progress``.
"""

from __future__ import annotations


class Account:
    """Of one pass.

    Args:
        epoch: Its number.
        first: Of its first batch.
        count: Behind its last batch; None where nobody knows.
    """

    def __init__(self, epoch: int, first: int, count: int | None) -> None:
        self.epoch = epoch
        self.first = first
        self.count = count
        self.fetched = self.given = first
        """Behind the last batch that was fetched, and the last that the loop was given."""

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, batch) behind the last one that the loop was given."""
        return (self.epoch + 1, 0) if self.given == self.count else (self.epoch, self.given)


class Progress:
    """The state of a loader: two integers, and the pass that moves them."""

    def __init__(self) -> None:
        self.next = 0, 0
        """(epoch, batch) at which the next pass begins."""
        self._latest: Account | None = None

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, batch) of the batch that comes after the last one of the latest pass."""
        return self._latest.position if self._latest is not None else self.next

    def begin(self, count: int | None) -> Account:
        """Draw the next pass, which nobody asks for yet; the one after it is whole."""
        account = Account(*self.next, count)
        self.next = account.epoch + 1, 0
        if self._latest is None:
            self._latest = account
        return account

    def give_back(self, account: Account) -> None:
        """Nobody has asked for this pass: the next one is it again, unless that was moved."""
        if self.next == (account.epoch + 1, 0):
            self.next = account.epoch, account.first
            if self._latest is account:
                self._latest = None

    def enter(self, account: Account) -> None:
        """The loop reads from this pass, which is the latest one from now on."""
        self._latest = account

    def hand_out(self, account: Account) -> None:
        """The loop is given a batch of it."""
        account.given += 1
        self._latest = account

    def move(self, epoch: int, batch: int) -> None:
        """Have the next pass begin there; those that are under way are not changed."""
        self.next = epoch, batch
        self._latest = None
