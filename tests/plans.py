"""Short ways to make plans and to read their batches without any engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters.alignment import aligned_empty
from adapters.batch.order import Order
from adapters.batch.plan import BatchKey
from adapters.batch.sourceplan import SourcePlan
from adapters.sources import SequenceSource, as_source


def plan_of(
    data: Any,
    batch_size: int = 4,
    *,
    shuffle: bool = False,
    seed: int = 0,
    drop_remainder: bool = False,
    shard: tuple[int, int] = (0, 1),
    **arguments: Any,
) -> SourcePlan:
    """The plan that a sequence over ``data`` has; a ``SequenceSource`` is taken as it is.

    What it runs is declared thread-safe, unless ``thread_safe`` says something else.
    """
    arguments.setdefault("thread_safe", True)
    source = data if isinstance(data, SequenceSource) else as_source(data)
    order = Order(len(source), batch_size, shuffle, seed, drop_remainder, shard)
    return SourcePlan(source, order, seed=seed, **arguments)


def batch_of(plan: SourcePlan, epoch: int = 0, index: int = 0) -> Any:
    """A batch, computed here and now."""
    return plan.batch(BatchKey(epoch, index), aligned_empty).batch


def epoch_of(plan: SourcePlan, epoch: int = 0) -> list[Any]:
    """All batches of an epoch."""
    return [batch_of(plan, epoch, index) for index in range(plan.num_batches)]


def samples_of(plan: SourcePlan, epoch: int = 0) -> list[Any]:
    """All samples of an epoch of a plan whose batches are single arrays."""
    return np.concatenate(epoch_of(plan, epoch)).tolist()


def notes_of(error: BaseException) -> str:
    """An exception's notes, a line each."""
    return "\n".join(getattr(error, "__notes__", ()))
