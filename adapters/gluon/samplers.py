"""Batch samplers: MXNet's arguments for the order, and samplers with a known order."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from mxnet.gluon.data import BatchSampler, RandomSampler, Sampler

from adapters.batch.order import Order
from adapters.generator_search import draws_unseeded, is_generator
from adapters.user_code import Gate

_END = object()


class OrderBatchSampler(Sampler):  # type: ignore[misc]
    """Batch sampler of the loader's order: depends only on the epoch; each ``iter`` is the next."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._batch_size = order.batch_size  # Programs read it, as MXNet's.
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Use this epoch for the next ``iter``, and for ``len``."""
        self._epoch = epoch

    def count(self, epoch: int) -> int:
        """Return the number of batches in an epoch."""
        return len(self.order)

    def batches(self, epoch: int, first: int = 0) -> Iterator[list[int]]:
        """Iterate over the sample numbers of an epoch's batches, from batch ``first`` on."""
        for index in range(first, len(self.order)):
            yield self.order.batch(epoch, index).tolist()

    def __iter__(self) -> Iterator[list[int]]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        yield from self.batches(epoch)

    def __len__(self) -> int:
        return self.count(self._epoch)

    @property
    def is_random(self) -> bool:
        """True if the order depends on the seed."""
        arrangement = self.order.arrangement
        return self.order.shuffle if arrangement is None else arrangement.is_random


class RolloverBatchSampler(OrderBatchSampler):
    """Batch sampler that carries an incomplete batch over to the next epoch.

    All epochs form one sequence of samples, whose batch i starts at sample i * batch_size. So the
    samples carried into an epoch don't depend on how the previous pass went.
    """

    def count(self, epoch: int) -> int:
        """Return the number of batches in an epoch."""
        return self._batches_before(epoch + 1) - self._batches_before(epoch)

    def batches(self, epoch: int, first: int = 0) -> Iterator[list[int]]:
        """Iterate over the sample numbers of an epoch's batches, from batch ``first`` on."""
        order, size = self.order, self.order.shard_size
        start = (self._batches_before(epoch) + first) * order.batch_size
        stop = self._batches_before(epoch + 1) * order.batch_size
        if start >= stop:
            return
        whole = dataclasses.replace(order, batch_size=size, drop_remainder=False)
        # In a small data set, samples of several epochs are carried over.
        epochs = range(start // size, epoch + 1)
        samples = np.concatenate([whole.batch(each, 0) for each in epochs])
        for place in range(start - epochs[0] * size, stop - epochs[0] * size, order.batch_size):
            yield samples[place : place + order.batch_size].tolist()

    def _batches_before(self, epoch: int) -> int:
        return epoch * self.order.shard_size // self.order.batch_size


def given_sampler(
    batch_size: int | None,
    shuffle: Any,
    sampler: Any,
    last_batch: str | None,
    batch_sampler: Any,
    ours: dict[str, Any],
) -> Any:
    """Return the batch sampler that the user gives; None if the loader orders the samples.

    Checks which arguments exclude each other; a sampler also excludes ``ours``.
    """
    for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is not None and not _is_iterable(value):
            raise TypeError(
                f"{name} must be an iterable of sample numbers, or of lists of them, got {value!r}"
            )
    given = {"shuffle": shuffle or None, **ours} if sampler is not None else {}
    if batch_sampler is not None:
        given = {"batch_size": batch_size, "shuffle": shuffle or None, "sampler": sampler}
        given |= {"last_batch": last_batch, **ours}
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} must not be specified if sampler or batch_sampler is specified, got "
                f"{value!r:.100}: they say which samples come, so have them do what {name} would, "
                "or leave the order to shuffle and seed"
            )
    if batch_sampler is not None:
        return batch_sampler
    if batch_size is None:
        raise ValueError("batch_size must be specified unless batch_sampler is specified")
    if last_batch not in (None, "keep", "discard", "rollover"):
        raise ValueError(
            f"last_batch must be one of 'keep', 'discard', or 'rollover', got {last_batch!r}"
        )
    return None if sampler is None else BatchSampler(sampler, batch_size, last_batch or "keep")


def _is_iterable(value: Any) -> bool:
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


def sampler_twin(batch_sampler: Any) -> Any:
    """Copy a batch sampler so that it advances independently; return it if it can't be copied.

    MXNet's batch samplers keep left-over samples for the next pass, so the copy has its own list.
    ``RandomSampler`` shuffles with ``numpy.random``, so the copy has a different fixed order.
    """
    try:
        twin = copy.copy(batch_sampler)
    except TypeError:  # A user's iterator, such as a generator.
        return batch_sampler
    for name, value in vars(twin).items() if hasattr(twin, "__dict__") else ():
        if is_generator(value):
            setattr(twin, name, copy.deepcopy(value))
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
    """Draw the batches of a pass lazily, from batch ``first`` on.

    A user's batch sampler may be any iterable. It is iterated from its start, and the first batches
    are dropped.
    """
    if isinstance(batch_sampler, OrderBatchSampler):
        yield from batch_sampler.batches(epoch, first)
        return
    drawn = 0
    # The sampler may read the data set while workers do.
    gate = Gate([("sampler", batch_sampler)], thread_safe)
    with gate:
        batches = iter(batch_sampler)
    while True:
        with gate:
            samples: Any = next(batches, _END)
        if samples is _END:
            break
        if not _is_iterable(samples):
            raise TypeError(
                f"batch_sampler must give a list of sample numbers for each batch, got {samples!r}"
            )
        drawn += 1
        if drawn > first:
            # The sampler may reuse the list.
            yield samples.copy() if isinstance(samples, np.ndarray) else list(samples)
    if drawn < first:
        raise ValueError(
            f"load_state_dict: the pass was to resume at batch {first}, and the sampler gave "
            f"{drawn} batches: it belongs to another data set, or can be iterated over only once"
        )


def count_of(batch_sampler: Any, epoch: int) -> int | None:
    """Return the number of batches in a pass; None if unknown."""
    known = isinstance(batch_sampler, OrderBatchSampler)
    return batch_sampler.count(epoch) if known else length_of(batch_sampler)


def length_of(sampler_or_dataset: Any) -> int | None:
    """Return a length; None if unknown: some samplers know it only after iterating."""
    try:
        return len(sampler_or_dataset)
    except Exception:
        return None


def set_epoch(batch_sampler: Any, epoch: int) -> None:
    """Call ``set_epoch`` with the next epoch on samplers that have it."""
    for sampler in (batch_sampler, getattr(batch_sampler, "_sampler", None)):
        set_epoch = getattr(sampler, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)


def obstacle_to_replay(batch_sampler: Any, seeded: bool, draws: bool) -> str | None:
    """Reason why a pass can't be resumed within an epoch, with the remedy; None if it can.

    With ``draws``, transforms draw random numbers. A user's sampler is assumed to repeat its
    batches, unless its code draws from global generators without seeding them and without
    ``set_epoch``.
    """
    sampler = getattr(batch_sampler, "_sampler", None)
    if isinstance(batch_sampler, OrderBatchSampler):
        if batch_sampler.is_random and not seeded:
            return "the seed of its order is drawn from numpy.random: give seed=..."
    elif type(sampler) is RandomSampler or any(map(draws_unseeded, (batch_sampler, sampler))):
        kind = type(batch_sampler if sampler is None else sampler).__name__
        return (
            f"its order is drawn from the process's generators by {kind}, which seed has no "
            "say in: give batch_size=..., shuffle=True and seed=... in its place, or have it seed "
            "one of its own by the epoch that its set_epoch(epoch) gets"
        )
    elif isinstance(batch_sampler, Iterator):
        return "its batch_sampler is an iterator, which can be read only once: give a list"
    elif rolls_over(batch_sampler):
        return (
            "what rolls over depends on how the passes before have ended: leave the order to "
            'shuffle and seed, or give "keep"'
        )
    if draws and not seeded:
        return "the seed of what transforms draw is drawn from numpy.random: give seed=..."
    return None


def rolls_over(batch_sampler: Any) -> bool:
    """True for MXNet's batch sampler with ``last_batch="rollover"``."""
    return isinstance(batch_sampler, BatchSampler) and batch_sampler._last_batch == "rollover"
