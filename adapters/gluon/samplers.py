"""Which samples make which batch: MXNet's arguments, and what knows the order ahead."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from mxnet.gluon.data import BatchSampler, Sampler

from adapters.order import Order


class OrderSampler(Sampler):  # type: ignore[misc]
    """The samples of one epoch after the other, in the loader's own order.

    Args:
        order: Of batches of one sample.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._epoch = 0

    def __iter__(self) -> Iterator[int]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        for index in range(len(self._order)):
            yield int(self._order.batch(epoch, index)[0])

    def __len__(self) -> int:
        return len(self._order)


class OrderBatchSampler(Sampler):  # type: ignore[misc]
    """The batches of the loader's own order, as a batch sampler; each pass is the next epoch."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._epoch = 0

    def __iter__(self) -> Iterator[list[int]]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        for index in range(len(self.order)):
            yield self.order.batch(epoch, index).tolist()

    def __len__(self) -> int:
        return len(self.order)


def sampler_twin(batch_sampler: Any) -> Any:
    """One that goes on by itself from where this one stands; itself where that can't be had.

    Samplers count their passes, and keep what is left over of one for the next.
    """
    try:
        twin = _own(batch_sampler)
        if hasattr(twin, "_sampler"):
            twin._sampler = _own(twin._sampler)
    except TypeError:  # An iterator of the user's, such as a generator.
        return batch_sampler
    return twin


def _own(sampler: Any) -> Any:
    """A copy with lists of its own, such as that of what was left over; arrays are shared."""
    twin = copy.copy(sampler)
    for name, value in getattr(twin, "__dict__", {}).items():
        if isinstance(value, list):
            setattr(twin, name, value.copy())
    return twin


def batch_sampler_of(
    size: int,
    batch_size: int | None,
    shuffle: bool,
    sampler: Any,
    last_batch: str | None,
    batch_sampler: Any,
    seed: int,
) -> Any:
    """The batch sampler that these arguments of MXNet's mean.

    An ``OrderBatchSampler`` where the order can be known ahead.

    Raises:
        ValueError: Arguments that exclude each other, as MXNet has it, or out of range.
    """
    if batch_sampler is not None:
        if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ValueError(
                "batch_size, shuffle, sampler and last_batch must not be specified if "
                "batch_sampler is specified"
            )
        return batch_sampler
    if batch_size is None:
        raise ValueError("batch_size must be specified unless batch_sampler is specified")
    if sampler is not None and shuffle:
        raise ValueError("shuffle must not be specified if sampler is specified")
    if last_batch not in (None, "keep", "discard", "rollover"):
        raise ValueError(
            f"last_batch must be one of 'keep', 'discard', or 'rollover', got {last_batch!r}"
        )
    if sampler is not None:
        return BatchSampler(sampler, batch_size, last_batch or "keep")
    if last_batch == "rollover":
        # What is left over depends on how the pass before has ended.
        return BatchSampler(OrderSampler(Order(size, 1, shuffle, seed)), batch_size, last_batch)
    return OrderBatchSampler(Order(size, batch_size, shuffle, seed, last_batch == "discard"))
