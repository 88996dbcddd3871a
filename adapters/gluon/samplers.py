"""Which samples make which batch: MXNet's arguments, and what knows the order ahead."""

from __future__ import annotations

import abc
import copy
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
from mxnet.gluon.data import BatchSampler, RandomSampler, Sampler

from adapters.arguments import check_shard_size
from adapters.batch.arranging import order_of
from adapters.batch.order import Order
from adapters.bytecode import draws_unseeded
from adapters.sources import Source
from adapters.user_code import Gate

_END = object()


class EpochBatchSampler(Sampler, abc.ABC):  # type: ignore[misc]
    """The batches of an epoch as a function of its number; each ``iter`` is the next epoch.

    Args:
        order: The loader's own.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Have the next ``iter``, and ``len``, be of this epoch."""
        self._epoch = epoch

    @abc.abstractmethod
    def count(self, epoch: int) -> int:
        """Batches in an epoch."""

    @abc.abstractmethod
    def batches(self, epoch: int, first: int = 0) -> Iterator[list[int]]:
        """Sample numbers of the batches of an epoch, from batch ``first`` on."""

    def __iter__(self) -> Iterator[list[int]]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        yield from self.batches(epoch)

    def __len__(self) -> int:
        return self.count(self._epoch)

    @property
    def is_random(self) -> bool:
        """Whether the order depends on the seed."""
        arrangement = self.order.arrangement
        return self.order.shuffle if arrangement is None else arrangement.is_random


class OrderBatchSampler(EpochBatchSampler):
    """The batches of the loader's own order."""

    def count(self, epoch: int) -> int:
        """Batches in an epoch."""
        return len(self.order)

    def batches(self, epoch: int, first: int = 0) -> Iterator[list[int]]:
        """Sample numbers of the batches of an epoch, from batch ``first`` on."""
        for index in range(first, len(self.order)):
            yield self.order.batch(epoch, index).tolist()


class RolloverBatchSampler(EpochBatchSampler):
    """The same where what doesn't fill a batch begins the next epoch.

    The epochs, one after the other, are one row of samples, and batch i of it begins at sample
    i * batch_size: so what is carried into an epoch doesn't depend on how the one before went.
    """

    def count(self, epoch: int) -> int:
        """Batches in an epoch."""
        return self._before(epoch + 1) - self._before(epoch)

    def batches(self, epoch: int, first: int = 0) -> Iterator[list[int]]:
        """Sample numbers of the batches of an epoch, from batch ``first`` on."""
        order, size = self.order, self.order.shard_size
        start = (self._before(epoch) + first) * order.batch_size
        stop = self._before(epoch + 1) * order.batch_size
        if start >= stop:
            return
        # Of small data sets, several epochs are carried over.
        epochs = range(start // size, epoch + 1)
        samples = np.concatenate([self._samples(each) for each in epochs])
        for place in range(start - epochs[0] * size, stop - epochs[0] * size, order.batch_size):
            yield samples[place : place + order.batch_size].tolist()

    def _before(self, epoch: int) -> int:
        """Batches in all epochs before this one."""
        return epoch * self.order.shard_size // self.order.batch_size

    def _samples(self, epoch: int) -> Any:
        whole = max(1, self.order.shard_size)
        return dataclasses.replace(self.order, batch_size=whole, drop_remainder=False).batch(
            epoch, 0
        )


def fitted(batch_sampler: Any, batchify: Any) -> Any:
    """A function that pads, told what lengths it shall pad to where samples are in buckets."""
    order = getattr(batch_sampler, "order", None)
    return order.fitted(batchify) if isinstance(order, Order) else batchify


def sampler_twin(batch_sampler: Any) -> Any:
    """One that advances by itself; itself if there is none.

    MXNet's batch samplers keep what is left over for the next pass, and ``RandomSampler`` shuffles
    with ``numpy.random``: the twin has a list of its own, and another order.
    """
    try:
        twin = copy.copy(batch_sampler)
    except TypeError:  # An iterator of the user's, such as a generator.
        return batch_sampler
    if isinstance(twin, BatchSampler):
        twin._prev = list(twin._prev)
        if type(twin._sampler) is RandomSampler:
            twin._sampler = np.random.default_rng(0).permutation(len(twin._sampler)).tolist()
        else:
            twin._sampler = sampler_twin(twin._sampler)
    return twin


def drawn_batches(
    batch_sampler: Any, epoch: int, first: int, thread_safe: bool | None = None
) -> Iterator[Any]:
    """The batches of a pass, from batch ``first`` on, drawn when they are asked for.

    Those of a batch sampler of the user's own, which may be anything that can be iterated over
    once, are drawn from its start, and the first ones let go.
    """
    if isinstance(batch_sampler, EpochBatchSampler):
        yield from batch_sampler.batches(epoch, first)
        return
    drawn = 0
    # It may read the data set that workers read meanwhile.
    gate = Gate([("sampler", batch_sampler)], thread_safe)
    with gate:
        batches = iter(batch_sampler)
    while True:
        with gate:
            samples: Any = next(batches, _END)
        if samples is _END:
            break
        drawn += 1
        if drawn > first:
            # It may fill the same list again.
            yield samples.copy() if isinstance(samples, np.ndarray) else list(samples)
    if drawn < first:
        raise ValueError(
            f"load_state_dict: the pass was to go on at batch {first}, and the sampler gave "
            f"{drawn} batches: it belongs to another data set, or can be iterated over only once"
        )


def length_of(batch_sampler: Any, epoch: int) -> int | None:
    """Batches in a pass; None where nobody knows."""
    if isinstance(batch_sampler, EpochBatchSampler):
        return batch_sampler.count(epoch)
    try:
        return len(batch_sampler)
    except Exception:  # MXNet never asks; some know it once they are iterated over.
        return None


def tell_epoch(batch_sampler: Any, epoch: int) -> None:
    """Tell samplers that have a ``set_epoch`` which pass is the next one."""
    for sampler in _with_epochs(batch_sampler):
        sampler.set_epoch(epoch)


def _with_epochs(batch_sampler: Any) -> Iterator[Any]:
    for sampler in (batch_sampler, getattr(batch_sampler, "_sampler", None)):
        if callable(set_epoch := getattr(sampler, "set_epoch", None)) and _takes_one(set_epoch):
            yield sampler


def _takes_one(function: Any) -> bool:
    try:
        inspect.signature(function).bind(0)
    except TypeError:
        return False
    except ValueError:  # A function in C.
        pass
    return True


def batch_sampler_of(
    size: int,
    batch_size: int | None,
    shuffle: Any,
    sampler: Any,
    last_batch: str | None,
    batch_sampler: Any,
    *,
    seed: int,
    shard: tuple[int, int] | None,
    seeded: bool = True,
    source: Source | None = None,
    weights: Any = None,
    bucket_by: Any = None,
    tolerant: bool = False,
) -> Any:
    """The batch sampler that these arguments mean.

    An ``EpochBatchSampler``, unless the user gives a sampler.

    ``seeded`` says whether the user has given the seed. ``source`` is the data set, if it is a
    source whose samples have the data set's numbers. ``tolerant`` says whether samples that can't
    be read have others in their place.

    Raises:
        ValueError: Arguments that exclude each other, as MXNet has it, or out of range.
    """
    if shard is not None and (sampler is not None or batch_sampler is not None):
        raise ValueError(
            f"shard must not be specified if sampler or batch_sampler is specified, got {shard}: "
            "they say which samples come, so have them give this shard's, or leave the order to "
            "shuffle and seed"
        )
    for name, value in {"weights": weights, "bucket_by": bucket_by}.items():
        if value is not None and (sampler is not None or batch_sampler is not None):
            raise ValueError(
                f"{name} must not be specified if sampler or batch_sampler is specified: they say "
                "which samples come"
            )
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
    if shard is not None:
        check_shard_size(size, shard)
    order = order_of(
        size,
        batch_size,
        shuffle,
        seed,
        last_batch == "discard",
        shard or (0, 1),
        source=source,
        weights=weights,
        bucket_by=bucket_by,
        tolerant=tolerant,
    )
    made = (RolloverBatchSampler if last_batch == "rollover" else OrderBatchSampler)(order)
    if shard is not None and not seeded and made.is_random:
        raise ValueError(
            f"shard needs a seed with a random order, got shard={shard} and seed=None: without "
            "one, each process shuffles in an order of its own; give all of them the same seed"
        )
    return made


def obstacle_to_replay(batch_sampler: Any, seeded: bool) -> str | None:
    """Why a pass can't be started in its middle, with the remedy; None if it can.

    Samplers of the user's own are taken to give the same batches again, unless their code draws
    from global generators and neither seeds them nor is told the epoch.
    """
    if isinstance(batch_sampler, EpochBatchSampler):
        drawn = batch_sampler.is_random and not seeded
        return "the seed of its order is drawn from numpy.random: give seed=..." if drawn else None
    sampler = getattr(batch_sampler, "_sampler", None)
    if type(sampler) is RandomSampler:
        given = ", which seed has no say in" if seeded else ""
        return (
            f"its order is drawn from numpy.random{given}: give batch_size=..., shuffle=True and "
            "seed=... in its place"
        )
    if any(draws_unseeded(each) for each in (batch_sampler, sampler)):
        return (
            "its order is drawn from a generator of the whole process by a sampler of your own: "
            "have it seed one of its own by the epoch, which set_epoch(epoch) would tell it"
        )
    if isinstance(batch_sampler, Iterator):
        return "its batch_sampler is an iterator, which nobody can read again: give a list"
    if rolls_over(batch_sampler):
        return (
            "what rolls over depends on how the passes before have ended: leave the order to "
            'shuffle and seed, or give "keep"'
        )
    return None


def rolls_over(batch_sampler: Any) -> bool:
    """Whether it is MXNet's own batch sampler that keeps samples for its next pass."""
    return isinstance(batch_sampler, BatchSampler) and batch_sampler._last_batch == "rollover"
