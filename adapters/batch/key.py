"""Batch keys: names of batches, from the stream down to the plan.

Stream --key--> Dispatcher --key--> executor --key--> Plan.batch(key) -> arrays
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class BatchKey(NamedTuple):
    """Name of one batch: a plan makes the same batch for an equal key.

    ``samples`` is for passes whose order isn't known ahead, ``origin`` for epochs resumed in their
    middle.
    """

    epoch: int
    """Epoch of the batch."""
    index: int  # type: ignore[assignment]  # More useful than tuple.index.
    """Number of the batch in the epoch."""
    samples: Sequence[Any] | None = None
    """Sample numbers that a sampler has drawn for the batch, or the sampler's other names for them.
    None if the plan's order determines them."""
    origin: int = 0
    """Position in the epoch's global order at which batch 0 would begin. May be negative, if the
    epoch was started with another batch size or number of shards."""

    @property
    def order_arguments(self) -> tuple[int, int, int]:
        """Arguments of ``Order.batch``: (epoch, index, origin)."""
        return self.epoch, self.index, self.origin


class ResumedEpoch(NamedTuple):
    """The remaining part of an epoch that was resumed after some samples of the global order.

    Its batches have the last numbers of the epoch, so it ends where a whole epoch does.
    """

    epoch: int
    """Number of the epoch."""
    step: int
    """First batch of the remaining part."""
    origin: int
    """Value of ``BatchKey.origin`` for its batches."""
    others: bool = False
    """True if the earlier samples were consumed elsewhere, in batches that can't be named here.
    ``origin`` may be 0 all the same."""

    def covers(self, epoch: int, step: int) -> bool:
        """True if a batch belongs to the remaining part."""
        return epoch == self.epoch and step >= self.step

    def key(
        self, epoch: int, step: int, number: Callable[[int, int], int] | None = None
    ) -> BatchKey:
        """Return the key of the batch at a step.

        ``number`` maps a step of a whole epoch to a batch; None if they are the same.
        """
        if self.covers(epoch, step):
            return BatchKey(epoch, step, origin=self.origin)
        return BatchKey(epoch, step if number is None else number(epoch, step))


WHOLE = ResumedEpoch(-1, 0, 0)
"""No resumed epoch: all epochs are whole."""
