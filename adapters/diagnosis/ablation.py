"""Ablations of a plan: variants that do only part of its work, to find the cost of each part.

    fetch --> transform --> collate            the plan
    fetch                                      ``storage``
              transform --> collate            ``memory``: a few samples, fetched in advance
                            collate            ``collation``: the same, transformed in advance

An engine runs these plans like any other, but their batches aren't meant for training.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adapters.batch.order import Order
from adapters.batch.plan import Allocate, Assembled, BatchKey, Plan
from adapters.batch.sourceplan import SourcePlan
from adapters.sources import MapSource, SequenceSource

_KEPT_BATCHES = 4


@dataclass(frozen=True)
class Ablations:
    """A plan (``whole``), its ablations, and facts about it."""

    whole: Plan
    storage: Plan
    memory: Plan
    collation: Plan | None
    """None if samples are written straight into their rows, or the source gives whole batches."""
    decodes: bool
    """True if the samples are stored images."""
    gathers: bool = False
    """True if one gather from arrays both fetches and collates."""
    store_is_cached: bool | None = None
    """True if a cache keeps what comes from a remote store; None if nothing does."""
    has_transform: bool = True
    """True if a user function transforms each sample."""


# Compared by identity: ``==`` on arrays isn't a bool.
@dataclass(frozen=True, eq=False)
class Repeated(Order):
    """An endless order that repeats a few batches."""

    batches: Sequence[Any] = field(kw_only=True)

    @classmethod
    def of(cls, batches: Sequence[Any]) -> Repeated:
        """Make an order of these batches."""
        return cls(None, max(map(len, batches)), batches=batches)

    def batch(self, epoch: int, index: int, origin: int = 0) -> Any:
        """The sample numbers of a batch."""
        return self.batches[index % len(self.batches)]


class Fetching(SourcePlan):
    """Fetches the samples of a batch and discards them."""

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Fetch a batch, and return a single number in its place."""
        try:
            self.source.read_and_discard(self.order.batch(*key.order_arguments))
        except Exception:
            if self.on_error == "raise":
                raise
        return Assembled((np.zeros(1),), 0)


def ablations_of(plan: SourcePlan, epoch: int) -> Ablations:
    """Build the ablations of a plan, which repeat the first batches of an epoch."""
    order, source = plan.order, plan.source
    count = _KEPT_BATCHES if order.num_batches is None else min(_KEPT_BATCHES, order.num_batches)
    batches = [order.batch(epoch, index).tolist() for index in range(count)]
    storage = Fetching(
        source, order, seed=plan.seed, on_error=plan.on_error, thread_safe=plan.thread_safe
    )
    kept = dataclasses.replace(plan, order=_repeated(batches))
    if isinstance(source, SequenceSource):
        whole = {number: source.batch(number) for (number,) in batches}
        again = SequenceSource(whole, changes_between_epochs=False)
        kept = dataclasses.replace(kept, source=again)
        return Ablations(plan, storage, kept, None, False, has_transform=False)
    if source.stored:
        fetched, left = made_of(batches, source.sample, plan.on_error)
        if left:
            kept = dataclasses.replace(kept, source=MapSource(fetched), order=_repeated(left))
            batches = left
    else:
        kept = dataclasses.replace(
            kept,
            source=source.in_memory(np.array([number for batch in batches for number in batch])),
        )
    return Ablations(
        plan,
        storage,
        kept,
        _collation(kept, epoch, batches),
        decodes=source.holds_images,
        gathers=source.gathers,
        store_is_cached=source.store_is_cached,
        has_transform=plan.transform is not None,
    )


def made_of(
    batches: Sequence[Sequence[Any]], make: Callable[[Any], Any], on_error: Any
) -> tuple[dict[Any, Any], list[list[Any]]]:
    """The samples of some batches by number, and these batches without failed samples."""
    made = {}
    for number in dict.fromkeys(itertools.chain(*batches)):
        try:
            made[number] = make(number)
        except Exception:
            if on_error == "raise":
                raise
    whole = [[number for number in batch if number in made] for batch in batches]
    return made, [batch for batch in whole if batch]


def _repeated(batches: list[list[int]]) -> Repeated:
    return Repeated.of([np.array(batch, np.int64) for batch in batches])


def _collation(kept: SourcePlan, epoch: int, batches: list[list[int]]) -> SourcePlan | None:
    alone = kept.transform is None and kept.collate is None
    if kept.source.leaves is not None and alone:
        return None
    if kept.source.gathers and alone:
        return dataclasses.replace(kept, batch_transform=None)
    made, batches = made_of(batches, lambda number: kept.sample(epoch, number), kept.on_error)
    if not batches:
        return None
    return SourcePlan(
        MapSource(made),
        _repeated(batches),
        seed=kept.seed,
        collate=kept.collate,
        thread_safe=kept.thread_safe,
    )
