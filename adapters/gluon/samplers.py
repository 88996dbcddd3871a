"""Which samples make which batch: MXNet's arguments, and what knows the order ahead."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from mxnet.gluon.data import BatchSampler, RandomSampler, Sampler

from adapters.batch.order import Order


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


class ShuffledBatchSampler(Sampler):  # type: ignore[misc]
    """The order that MXNet's loader draws from ``numpy.random``, drawn when that does it.

    It takes 8 bytes for each sample, as MXNet's does.

    Args:
        size: Samples in the data set.
        batch_size: Samples in a batch.
        drop_remainder: Leave out the last batch when it isn't full.
        generators: ``numpy.random``, or a ``RandomState`` in its place.
    """

    def __init__(
        self, size: int, batch_size: int, drop_remainder: bool, generators: Any = np.random
    ) -> None:
        self._order = Order(size, batch_size, drop_remainder=drop_remainder)
        self.generators = generators

    def __iter__(self) -> Iterator[Any]:
        samples = np.arange(self._order.size)
        self.generators.shuffle(samples)
        for index in range(len(self._order)):
            yield samples[index * self._order.batch_size :][: self._order.batch_size]

    def __len__(self) -> int:
        return len(self._order)


def sampler_twin(batch_sampler: Any) -> Any:
    """One that goes on by itself from where this one stands; itself where that can't be had.

    Samplers count their passes, and keep what is left over of one for the next. A shuffle by
    NumPy's global generator goes on by another one.
    """
    try:
        twin = _own(batch_sampler)
        if isinstance(twin, ShuffledBatchSampler):
            twin.generators = np.random.RandomState(0)
        if hasattr(twin, "_sampler"):
            inner = twin._sampler
            own = type(inner) is RandomSampler
            twin._sampler = OrderSampler(Order(len(inner), 1, True)) if own else _own(inner)
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
    seed: int | None,
) -> Any:
    """The batch sampler that these arguments of MXNet's mean.

    An ``OrderBatchSampler`` where the order can be known ahead. Without a seed, an order that is
    shuffled is MXNet's own.

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
        own = Order(size, 1, shuffle, seed or 0)
        drawn = shuffle and seed is None
        return BatchSampler(
            RandomSampler(size) if drawn else OrderSampler(own), batch_size, last_batch
        )
    if shuffle and seed is None:
        return ShuffledBatchSampler(size, batch_size, last_batch == "discard")
    return OrderBatchSampler(Order(size, batch_size, shuffle, seed or 0, last_batch == "discard"))
