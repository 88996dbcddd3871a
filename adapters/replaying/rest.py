"""Which batch is meant in an epoch that was continued in its middle.

The rest of such an epoch is dealt out anew, where other shards or batches of another size go on:
its batches have an origin, see ``Continuation``. The sequence that has gone on knows it; in another
process the state tells it, with which it went on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adapters.arguments import batches_of, position_of, samples_of
from adapters.batch.key import WHOLE, BatchKey, Continuation
from adapters.batch.order import Order


def continued(rest: Continuation, order: Order, epoch: int, state: Any, kind: str) -> Continuation:
    """How an epoch went on that a batch of shall be replayed.

    Args:
        rest: Where the sequence, or loader, has itself gone on.
        order: Of it.
        epoch: Of the batch.
        state: With which the epoch went on in the training; None for what ``rest`` knows.
        kind: ``"sequence"`` or ``"loader"``, for messages.

    Raises:
        ValueError: No state of that epoch.
    """
    if state is None:
        return rest if rest.epoch == epoch else WHOLE
    at = samples_of(state, order.size, kind) if order.elastic else None
    told = at or batches_of(state, order.consumed(1), order.size, kind)
    own, _ = told or position_of(state, lambda epoch: len(order), kind)
    if own != epoch:
        raise ValueError(
            f"state must be of epoch {epoch}, which it was loaded in the middle of, got {state!r}: "
            "leave it out for an epoch that nobody interrupted"
        )
    goes_on = order.continuation(*at) if at else None
    return WHOLE if goes_on is None else goes_on._replace(others=True)


def key_of(
    rest: Continuation,
    order: Order,
    epoch: int,
    index: int,
    number: Callable[[int, int], int] | None = None,
) -> BatchKey:
    """The key of a batch of an epoch that may have gone on in its middle.

    Args:
        rest: What ``continued`` gave.
        order: Of the sequence, or loader.
        epoch: Of the batch.
        index: Of the batch, from 0.
        number: Which batch comes at that step, where ``index`` counts batches as they come.

    Raises:
        ValueError: Others have made that batch, nobody knows which.
    """
    if rest.epoch == epoch and (rest.origin or rest.others) and index < rest.step:
        consumed = order.consumed(rest.step, rest.origin)
        raise ValueError(
            f"batch must be >= {rest.step}, as the first {consumed} samples of epoch {epoch} were "
            "in batches of another size or number of shards: replay those with a "
            f"sequence or loader of that batch_size and shard, got {index}"
        )
    return rest.key(epoch, index, number)
