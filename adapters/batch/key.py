"""The name of a batch: what is asked for, from the stream down to the plan.

Stream --key--> Dispatcher --key--> Crew --key--> Plan.batch(key) -> arrays
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class BatchKey(NamedTuple):
    """Names one batch, for good: a plan makes the same batch of an equal key.

    ``samples`` and ``entropy`` are of passes whose order isn't known ahead, ``origin`` of epochs
    that go on in their middle.
    """

    epoch: int
    """The epoch that it is in."""
    index: int  # type: ignore[assignment]  # Of more use than tuple.index.
    """Its number in the epoch."""
    samples: Sequence[Any] | None = None
    """What a sampler has drawn for it: the numbers of its samples, or whatever the sampler names
    them by. None where the plan's order tells."""
    entropy: int | None = None
    """What random numbers depend on in the place of the epoch; below 2**64."""
    origin: int = 0
    """Where in the epoch's global order batch 0 would begin: not at 0, and perhaps below, where the
    epoch was begun with another batch size or number of shards."""

    @property
    def randomness(self) -> int:
        """The number that stands for the epoch where something is drawn."""
        return self.epoch if self.entropy is None else self.entropy

    @property
    def place(self) -> tuple[int, int, int]:
        """(epoch, index, origin), as an order is asked."""
        return self.epoch, self.index, self.origin


class Continuation(NamedTuple):
    """The rest of an epoch of which the first samples of the global order are consumed.

    Its batches have the last numbers of the epoch, so that it ends where a whole one does.
    """

    epoch: int
    """Which epoch."""
    step: int
    """The first batch of the rest."""
    origin: int
    """Of the keys of its batches."""
    others: bool = False
    """Whether it is known that others have had what is before: batches that nobody can name here,
    even where ``origin`` is 0, as their samples may be those of several of these."""

    def covers(self, epoch: int, step: int) -> bool:
        """Whether a batch belongs to the rest."""
        return epoch == self.epoch and step >= self.step

    def key(
        self, epoch: int, step: int, number: Callable[[int, int], int] | None = None
    ) -> BatchKey:
        """Of the batch at a step.

        Args:
            epoch: Any.
            step: In it.
            number: Which batch comes at a step of a whole epoch; None where they come in turn.
        """
        if self.covers(epoch, step):
            return BatchKey(epoch, step, origin=self.origin)
        return BatchKey(epoch, step if number is None else number(epoch, step))


WHOLE = Continuation(-1, 0, 0)
"""No epoch goes on: all are whole."""
