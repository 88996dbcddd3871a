"""Ablations of a plan: variants that do only part of its work, to find the cost of each part.

    fetch --> transform --> collate            the plan
    fetch                                      ``storage``
              transform --> collate            ``memory``: a few samples, fetched in advance
                            collate            ``collation``: the same, transformed in advance

An engine runs these plans like any other, but their batches aren't meant for training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.batch.order import Order
from adapters.batch.plan import Allocate, Assembled, BatchKey, Plan
from adapters.batch.sourceplan import SourcePlan
from adapters.sources import MapSource, SequenceSource, Source, Subset
from adapters.sources.concatenation import Concatenation
from adapters.sources.imagefiles import ImageSource

_KEPT_BATCHES = 4


@dataclass(frozen=True)
class Ablations:
    """A plan and its ablations.

    Args:
        whole: The plan itself; its batches are addressed by number.
        storage: Only fetches the samples.
        memory: Does everything except fetching.
        collation: Only collates; None if that can't be separated from the rest, because samples are
            written straight into their rows or the source gives whole batches.
        decodes: True if the samples are stored images.
        gathers: True if one gather from arrays both fetches and collates.
        store: ``"uncached"`` or ``"cached"`` if samples come from a remote store, else "".
        has_transform: True if a user function transforms each sample.
    """

    whole: Plan
    storage: Plan
    memory: Plan
    collation: Plan | None
    decodes: bool
    gathers: bool = False
    store: str = ""
    has_transform: bool = True


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

    def first(self, epoch: int, index: int, origin: int = 0) -> Any:
        """The first sample number of a batch."""
        return self.batch(epoch, index)[0]


class KeptSamples:
    """A data set that has only some of its samples, by number, in memory."""

    thread_safe = True

    def __init__(self, samples: dict[int, Any], size: int) -> None:
        self._samples = samples
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, number: int) -> Any:
        return self._samples[number]


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


def store_of(source: Any) -> str:
    """``"uncached"`` or ``"cached"`` if samples are fetched from a store, else ``""``."""
    if isinstance(source, Subset):
        return store_of(source.whole)
    if isinstance(source, Concatenation):
        found = {store_of(part) for part in source.parts}
        return next((each for each in ("uncached", "cached") if each in found), "")
    is_cached: bool | None = getattr(source, "store_is_cached", None)
    return "" if is_cached is None else ("cached" if is_cached else "uncached")


def held_of(source: Source, numbers: NDArray[np.int64]) -> Source:
    """Copy a source with these samples in memory, if it would fetch them from a store each time.

    Records read from a store stay in memory anyway.
    """
    if isinstance(source, Subset):
        whole = held_of(source.whole, source.numbers[numbers])
        return source if whole is source.whole else type(source)(whole, source.numbers)
    return source.held(numbers) if isinstance(source, ImageSource) else source


def ablations_of(plan: SourcePlan, epoch: int) -> Ablations:
    """Build the ablations of a plan, which repeat the first batches of an epoch."""
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
        again = SequenceSource(KeptSamples(whole, size), changes_between_epochs=False)
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
    return Ablations(
        plan,
        storage,
        kept,
        _collation(kept, epoch, batches),
        decodes=source.holds_images,
        gathers=source.gathers,
        store=store_of(source),
        has_transform=plan.transform is not None,
    )


def _made(
    plan: SourcePlan, batches: Sequence[Any], make: Callable[[int], Any]
) -> tuple[dict[int, Any], Sequence[Any]]:
    """The samples of some batches by number, and these batches without failed samples."""
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
