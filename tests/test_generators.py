"""Random generators: what each of them depends on."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np

from adapters.arguments import check_function
from adapters.generators import GLOBAL, Generators, chosen, generator, generator_argument
from adapters.seeding import seeds
from tests.plans import epoch_of, plan_of


def draw(_: Any, rng: np.random.Generator) -> int:
    return int(rng.integers(2**62))


def draw_pair(sample: Any, rng: np.random.Generator) -> tuple[Any, int]:
    return sample, draw(sample, rng)


def drawn_by_sample(epoch: int = 0, **arguments: Any) -> dict[int, int]:
    """What every sample of an epoch has drawn from its generator."""
    pairs = epoch_of(plan_of(list(range(60)), transform=draw_pair, **arguments), epoch)
    return {int(n): int(drawn) for batch in pairs for n, drawn in zip(*batch, strict=True)}


def test_generator_of_a_sample_depends_on_no_shard():
    shards = [drawn_by_sample(shard=(index, 3)) for index in range(3)]
    assert shards[0] | shards[1] | shards[2] == drawn_by_sample()


def test_golden_generator():
    """A change changes everybody's augmentation; NumPy promises the raw stream for ever."""
    assert generator(42, 3, 5, 0).bit_generator.random_raw(2).tolist() == [
        8734708438656086617,
        5550910627107573127,
    ]


def test_generators_at_once_are_those_one_by_one():
    """Also where the one before has drawn half of a word."""
    numbers = np.array([0, 7, 2**40, 7])
    rng_of = Generators(42, 3, 5, numbers)
    for place, number in enumerate(numbers.tolist()):
        rng, expected = rng_of(place), generator(42, 3, number, 5)
        assert rng.integers(9, dtype=np.uint32) == expected.integers(9, dtype=np.uint32)
        assert rng.random(3).tolist() == expected.random(3).tolist()


def test_generators_that_are_chosen():
    rng_of = chosen(Generators(42, 3, 5, np.array([9, 7, 8])), [2, 0])
    own = chosen(lambda place: generator(42, 3, [9, 7, 8][place], 5), [2, 0])
    for place, number in enumerate((8, 9)):
        expected = generator(42, 3, number, 5).random()
        assert rng_of(place).random() == own(place).random() == expected


def test_generator_spawns_by_its_place():
    def drawn(number: int) -> list[float]:
        rng = generator(1, 2, number, 0)
        first, second = (child.random() for child in rng.spawn(2))
        return [first, second, rng.spawn(1)[0].random(), rng.random()]

    assert drawn(3) == drawn(3)
    assert len({*drawn(3), *drawn(4)}) == 8


def test_generator_asks_for_no_entropy(monkeypatch):
    def refuse(size: int) -> bytes:
        raise AssertionError("a turn at the interpreter lock, for each sample")

    generator(1, 2, 3, 0)
    monkeypatch.setattr(random, "_urandom", refuse)
    assert 0 <= generator(1, 2, 3, 0).random() < 1


def test_decorator_that_supplies_rng():
    @functools.wraps(draw)
    def seeded(sample: Any) -> int:
        return draw(sample, np.random.default_rng(0))

    @functools.wraps(draw)
    def passed(*args: Any, **kwargs: Any) -> int:
        return draw(*args, **kwargs)

    check_function("transform", seeded, "sample")
    assert (generator_argument(seeded), generator_argument(passed)) == (None, "rng")


def test_seeds_of_many_samples_are_those_of_each():
    numbers = np.array([0, 5, 2**40, 2**62])
    singly = [int(generator(3, 7, number, GLOBAL).integers(2**31)) for number in numbers.tolist()]
    assert seeds(3, 7, numbers, GLOBAL) == singly
