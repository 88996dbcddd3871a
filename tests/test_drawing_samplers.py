"""Samplers of one's own: whether the order that they give is drawn from a global generator."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from adapters.bytecode import draws_unseeded


class Augmenting:
    """Samples that draw."""

    def __getitem__(self, number: int) -> Any:
        return number + np.random.rand()


class Seeded:
    """A sampler whose order is the same each time."""

    def __iter__(self) -> Any:
        order = list(range(4))
        random.Random(7).shuffle(order)
        return iter(np.random.Generator(np.random.SFC64(3)).permutation(order))


class SeedsAll:
    def __iter__(self) -> Any:
        np.random.seed(3)
        return iter(np.random.permutation(4))


class ByLength:
    """The samples of what it holds draw; their order doesn't."""

    def __init__(self) -> None:
        self.samples = Augmenting()

    def __iter__(self) -> Any:
        return iter(sorted(range(4), key=lambda number: -number))


class Unseeded:
    def __iter__(self) -> Any:
        return iter(np.random.permutation(4))


class UnseededInside:
    def __iter__(self) -> Any:
        return iter(sorted(range(4), key=lambda number: random.random()))


class UnseededByImport:
    def __iter__(self) -> Any:
        import random

        return iter([random.random()])


def permuted() -> Any:
    return np.random.permutation(4)


class UnseededByHelper:
    def __iter__(self) -> Any:
        return iter(permuted())


class Wraps:
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        return iter(self.sampler)


class ToldTheEpoch(Unseeded):
    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


@pytest.mark.parametrize(
    "sampler", [Seeded(), SeedsAll(), ByLength(), ToldTheEpoch(), Wraps(Seeded()), [1, 2]]
)
def test_a_sampler_that_gives_the_same_again_is_known(sampler):
    assert not draws_unseeded(sampler)


@pytest.mark.parametrize(
    "sampler",
    [Unseeded(), UnseededInside(), UnseededByImport(), UnseededByHelper(), Wraps(Unseeded())],
    ids=lambda sampler: type(sampler).__name__,
)
def test_a_sampler_that_draws_is_known(sampler):
    assert draws_unseeded(sampler)
