"""The name of a batch: what is asked for, from the stream down to the plan.

Stream --key--> Dispatcher --key--> Crew --key--> Plan.batch(key) -> arrays
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class BatchKey(NamedTuple):
    """Names one batch, for good: a plan makes the same batch of an equal key.

    Two of its four fields are of passes whose order isn't known ahead.
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

    @property
    def randomness(self) -> int:
        """The number that stands for the epoch where something is drawn."""
        return self.epoch if self.entropy is None else self.entropy
