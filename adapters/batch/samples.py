"""Samples of one batch: fetched and transformed one after another, with ``on_error``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adapters.batch.key import BatchKey
from adapters.batch.replacement import OnError, Replacements, for_a_generator
from adapters.errors import note
from adapters.generators import GLOBAL, GLOBAL_BATCH, current_place
from adapters.seeding import seed
from adapters.sources import Source
from adapters.structure import private


class Maker(Protocol):
    """The part of a plan that makes single samples."""

    source: Source
    transform: Callable[..., Any] | None
    seed: int
    on_error: OnError
    draws: frozenset[str]
    _generator_arguments: tuple[str | None, str | None, str | None]

    def fetched(self, epoch: int, number: int) -> Any:
        """Fetch one sample."""

    def sample(self, epoch: int, number: int) -> Any:
        """Fetch and transform one sample."""

    def _transformed_sample(self, sample: Any, epoch: int, number: int) -> Any:
        """Transform one sample."""


def collate_for(plan: Maker, collate: Any, numbers: Any) -> Any:
    """Bind a collate to the numbers of a batch's samples, if it has ``for_samples``.

    It may also request another single sample, which is made as in epoch 0.
    """
    told = getattr(collate, "for_samples", None)
    return collate if told is None else told(numbers, functools.partial(_alone, plan))


def _alone(plan: Maker, number: int) -> Any:
    seed(plan.draws, plan.seed, 0, number, GLOBAL)
    return plan.sample(0, number)


class Samples:
    """Samples of one batch, made during iteration.

    Args:
        plan: Makes the samples.
        key: Key of the batch.
        numbers: Numbers of the samples.
    """

    def __init__(self, plan: Maker, key: BatchKey, numbers: NDArray[np.int64]) -> None:
        self._plan = plan
        self._epoch = epoch = key.epoch
        self._index = index = key.index
        self._numbers = numbers
        self.replacements = Replacements(
            plan.on_error,
            len(plan.source),
            f"batch {index} of epoch {epoch}",
            lambda number: plan.sample(epoch, number),
        )

    @property
    def skipped(self) -> int:
        """Number of samples that were replaced."""
        return self.replacements.count

    def __iter__(self) -> Iterator[Any]:
        plan, epoch = self._plan, self._epoch
        fetched = self._fetch()
        transform, rng, stored = plan.transform, plan._generator_arguments[0], plan.source.stored
        place, draws = current_place(), plan.draws
        for row, number in enumerate(self._numbers.tolist()):
            try:
                if draws:
                    seed(draws, plan.seed, epoch, number, GLOBAL)
                if place is not None:
                    place.sample(number)
                sample = plan.fetched(epoch, number) if fetched is None else fetched[row]
                if transform is None or rng:
                    sample = plan._transformed_sample(sample, epoch, number)
                else:
                    sample = transform(private(sample) if stored else sample)
                    if sample is None:
                        raise ValueError("transform must return a sample, got None")
            except BaseException as raised:
                sample = self.replacements.of(for_a_generator(raised), number)
            yield sample

    def _fetch(self) -> Sequence[Any] | None:
        """Fetch all samples of the batch at once; None if they must be fetched one at a time."""
        plan = self._plan
        try:
            plan.source.bring(self._numbers)
            seed(plan.draws, plan.seed, self._epoch, self._index, GLOBAL_BATCH)
            return plan.source.samples(self._numbers)
        except BaseException as error:
            if self._plan.on_error != "raise" and isinstance(error, Exception):
                return None
            listed = ", ".join(map(str, self._numbers[:8])) + ", ..." * (len(self._numbers) > 8)
            note(error, f"in samples {listed}, batch {self._index} of epoch {self._epoch}")
            raise
