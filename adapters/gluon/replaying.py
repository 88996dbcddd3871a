"""``loader.replay``: one batch of a Gluon loader once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adapters.batch.key import Continuation
from adapters.batch.order import Order
from adapters.generators import DECODE, Place, generator
from adapters.gluon.plan import GluonPlan
from adapters.gluon.samplers import drawn_batches, length_of
from adapters.gluon.steps import FIRST_RUN
from adapters.replaying import Replay, key_of
from adapters.sources.origin import Origin


def replayed(
    plan: GluonPlan,
    batch_sampler: Any,
    epoch: int,
    index: int,
    rest: Continuation,
    batch: Callable[[int], Any],
) -> Replay:
    """A batch, and which samples are in it.

    Args:
        plan: Makes it.
        batch_sampler: Draws which samples, where the plan doesn't know.
        epoch: Of the batch.
        index: Of the batch.
        rest: Of the epoch, where it went on in its middle.
        batch: Computes the one of this number.

    Raises:
        IndexError: The pass has fewer batches.
        ValueError: The sampler names its samples by something else than numbers; or the batch came
            before the rest.
    """
    if isinstance(plan.order, Order):
        if not -len(plan.order) <= index < len(plan.order):
            size = len(plan.order)
            raise IndexError(f"batch must be in range({-size}, {size}), got {index}")
        index %= len(plan.order)
        names = plan.order.batch(*key_of(rest, plan.order, epoch, index).place)
    else:
        if index < 0:
            index = _from_the_end(index, length_of(batch_sampler, epoch))
        drawn: Any = next(drawn_batches(batch_sampler, epoch, index), None)
        if drawn is None:
            raise IndexError(f"batch must be one of the pass, got {index}: it has fewer")
        names = drawn
    try:
        numbers = np.array([int(name) for name in names], np.int64)
    except (TypeError, ValueError):
        raise ValueError(
            f"batch_sampler must give numbers for a batch to be replayed, got {names!r}"
        ) from None
    records = plan.recipe.records
    origins = [
        Origin()
        if records is None
        else records.origin(number, generator(plan.seed, epoch, number, DECODE))
        for number in numbers.tolist()
    ]

    def fetched(number: int) -> Any:
        with Place(plan.seed, epoch, index) as place:
            place.sample(number, FIRST_RUN)
            return plan.data[number]

    return Replay(epoch, index, batch(index), numbers, origins, fetched)


def _from_the_end(index: int, count: int | None) -> int:
    """The number of a batch that was counted from the end of ``count``."""
    if count is None:
        raise IndexError(
            f"batch must be >= 0 where the sampler of the loader has no length, got {index}"
        )
    if index < -count:
        raise IndexError(f"batch must be in range({-count}, {count}), got {index}")
    return index + count
