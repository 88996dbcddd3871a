"""A plan with a part of its work taken away: what is left tells what the part costs.

    fetch --> transform --> collate            the plan
    fetch                                      ``storage``
              transform --> collate            ``memory``: the same few samples, fetched before
                            collate            ``collation``: the same few, transformed before
              transform --> collate            ``packed``: some pictures, packed at 256 pixels

What these plans give are no batches to train on, and they are asked for by an engine like any other
plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.batch.key import BatchKey
from adapters.batch.order import Order
from adapters.batch.plan import Allocate, Assembled, Plan
from adapters.batch.sourceplan import SourcePlan
from adapters.diagnosis.remoteness import held_of, store_of
from adapters.diagnosis.repacked import repacked
from adapters.sources import MapSource, SequenceSource

_KEPT_BATCHES = 4


@dataclass(frozen=True)
class Ablations:
    """What is left of a plan.

    Args:
        whole: The plan itself, whose batches are known by number.
        storage: Only its samples are fetched.
        memory: All but that.
        collation: Only a batch is made of samples; None where that can't be told from the rest, as
            samples are written straight into their rows, or batches come whole.
        decodes: Whether the samples are images out of records.
        gathers: Whether fetching is collating at once, as rows are gathered out of arrays.
        packed: As ``memory``, of a few pictures that were packed at 256 pixels; None where that
            makes none of them smaller, or can't be tried.
        store: ``"uncached"`` or ``"cached"`` where samples come from a store behind URLs.
        has_transform: Whether a function of the user's makes something of each sample.
    """

    whole: Plan
    storage: Plan
    memory: Plan
    collation: Plan | None
    decodes: bool
    gathers: bool = False
    packed: Plan | None = None
    store: str = ""
    has_transform: bool = True


# Two of them are equal if they are one: arrays can't be compared as a whole.
@dataclass(frozen=True, eq=False)
class Repeated(Order):
    """The same few batches again and again, without an end.

    Args:
        batches: The numbers of the samples of each, or whatever names them.
    """

    batches: Sequence[Any] = field(kw_only=True)

    @classmethod
    def of(cls, batches: Sequence[Any]) -> Repeated:
        """An order of these batches alone."""
        return cls(None, max(map(len, batches)), batches=batches)

    def batch(self, epoch: int, index: int, origin: int = 0) -> Any:
        """The numbers of one of the batches."""
        return self.batches[index % len(self.batches)]

    def first(self, epoch: int, index: int, origin: int = 0) -> Any:
        """The first of them."""
        return self.batch(epoch, index)[0]

    def shuffled_batch(self, epoch: int, step: int) -> int:
        """The batches come in turn."""
        return step


class KeptSamples:
    """Samples that are kept, by number, in the place of a data set.

    Args:
        samples: Those that will be asked for.
        size: Of the data set.
    """

    thread_safe = True

    def __init__(self, samples: dict[int, Any], size: int) -> None:
        self._samples = samples
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, number: int) -> Any:
        return self._samples[number]


class Fetching(SourcePlan):
    """Fetches the samples of a batch, and forgets them."""

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """One number, as there must be something to deliver."""
        try:
            self.source.fetch(self.order.batch(*key.place))
        except Exception:
            if self.on_error == "raise":
                raise
        return Assembled((np.zeros(1),), 0)


def ablations_of(plan: SourcePlan, epoch: int) -> Ablations:
    """Take a plan apart.

    Args:
        plan: Whose source is fetched from; a few batches are fetched and transformed here.
        epoch: Whose first batches are kept.
    """
    order, source = plan.order, plan.source
    count = _KEPT_BATCHES if order.num_batches is None else min(_KEPT_BATCHES, order.num_batches)
    batches: Sequence[Any] = [order.batch(epoch, index) for index in range(count)]
    storage = Fetching(
        source, order, seed=plan.seed, on_error=plan.on_error, thread_safe=plan.thread_safe
    )
    kept = dataclasses.replace(plan, order=Repeated.of(batches))
    if source.whole_batches:
        whole = {int(numbers[0]): source.batch(int(numbers[0])) for numbers in batches}
        size = max(whole) + 1 if source.endless else len(source)
        again = SequenceSource(KeptSamples(whole, size), own_epochs=False)
        kept = dataclasses.replace(kept, source=again)
        return Ablations(plan, storage, kept, None, False, has_transform=False)
    if source.stored:
        fetched, left = _made(plan, batches, source.sample)
        if left:
            known = MapSource(KeptSamples(fetched, len(source)))
            kept = dataclasses.replace(kept, source=known, order=Repeated.of(left))
            batches = left
    else:
        kept = dataclasses.replace(kept, source=held_of(source, np.concatenate(batches)))
    collation = _collation(kept, epoch, batches)
    packed = None
    if (smaller := repacked(plan, batches)) is not None:
        pictures, batches = smaller
        same = Repeated.of(batches)
        packed = dataclasses.replace(plan, source=pictures, order=same)
    decodes, gathers = source.holds_images, source.gathers
    store = store_of(source)
    has_transform = plan.transform is not None
    return Ablations(plan, storage, kept, collation, decodes, gathers, packed, store, has_transform)


def _made(
    plan: SourcePlan, batches: Sequence[Any], make: Callable[[int], Any]
) -> tuple[dict[int, Any], Sequence[Any]]:
    """The samples of some batches by number, and these batches without what can't be made.

    Raises:
        Exception: Of a sample, where ``on_error`` doesn't take its place.
    """
    made = {}
    for number in np.concatenate(batches).tolist():
        try:
            made[number] = make(number)
        except Exception:
            if plan.on_error == "raise":
                raise
    whole = [batch[np.isin(batch, list(made))] for batch in batches]
    return made, [batch for batch in whole if len(batch)]


def _collation(
    kept: SourcePlan, epoch: int, batches: Sequence[NDArray[np.int64]]
) -> SourcePlan | None:
    alone = kept.transform is None and kept.collate is None
    if kept.source.leaves is not None and alone:
        return None
    if kept.source.gathers and alone:
        return dataclasses.replace(kept, batch_transform=None)
    made, batches = _made(kept, batches, lambda number: kept.sample(epoch, number))
    if not batches:
        return None
    source = MapSource(KeptSamples(made, len(kept.source)))
    order = Repeated.of(batches)
    return SourcePlan(
        source, order, seed=kept.seed, collate=kept.collate, thread_safe=kept.thread_safe
    )
