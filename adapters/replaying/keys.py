"""Batch keys of epochs that were resumed in the middle.

If an epoch resumes with other shards or another batch size, its remaining samples are distributed
again: the keys of its later batches have an origin, see ``ResumedEpoch``. The sequence that resumed
the epoch knows this. Another process computes it from the state that was loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adapters.arguments import batches_of, position_of, samples_of
from adapters.batch.key import WHOLE, BatchKey, ResumedEpoch
from adapters.batch.order import Order


def resumed_epoch_of(
    own: ResumedEpoch, order: Order, epoch: int, state: Any, kind: str
) -> ResumedEpoch:
    """The resumed epoch to replay from: that of the state, or ``own`` without one.

    ``kind`` is ``"sequence"`` or ``"loader"``, for messages.
    """
    if state is None:
        return own if own.epoch == epoch else WHOLE
    at = samples_of(state, order.size, kind) if order.elastic else None
    position = at or batches_of(state, order.consumed(1), order.size, kind)
    saved_epoch, _ = position or position_of(state, lambda epoch: len(order), kind)
    if saved_epoch != epoch:
        raise ValueError(
            f"state must be of epoch {epoch}, which it was loaded in the middle of, got {state!r}: "
            "leave it out for an epoch that wasn't interrupted"
        )
    resumed = order.resumed(*at) if at else None
    return WHOLE if resumed is None else resumed._replace(others=True)


def key_of(
    resumed: ResumedEpoch,
    order: Order,
    epoch: int,
    index: int,
    number: Callable[[int, int], int] | None = None,
) -> BatchKey:
    """The key of a batch of an epoch that may have been resumed in the middle.

    ``number`` maps a step to a batch, if ``index`` counts batches as ``fit`` consumes them.
    """
    differs = resumed.epoch == epoch and (resumed.origin or resumed.others)
    if differs and index < resumed.step:
        consumed = order.consumed(resumed.step, resumed.origin)
        raise ValueError(
            f"batch must be >= {resumed.step}, as the first {consumed} samples of epoch "
            f"{epoch} were in batches of another size or number of shards: replay those with a "
            f"sequence or loader of that batch_size and shard, got {index}"
        )
    return resumed.key(epoch, index, number)
