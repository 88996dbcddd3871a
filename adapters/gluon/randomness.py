"""Random numbers: a sample's own, and the global generators that a user's code may draw from.

``uniforms`` is what the random transforms that run a batch at a time draw from: a function of the
seed, the epoch and the number of the sample alone.

Code of the user's own draws from ``random``, ``numpy.random`` or MXNet's generator. Where it runs
inline or in a worker process, ``Seeding`` makes these functions of the same things, and puts back
afterwards what was there before. MXNet's generator can't be read: it is seeded again with a number
that was drawn from it, and only where the code is found to use it. Seeding it takes 1.2 ms (MXNet
1.9.1 fills 1,024 states), so it is done once per batch, where the others are seeded per sample.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from adapters.generators import generator
from adapters.seeding import put_back

# The stream of the generators that seed others; 0 and 1 are for transforms, see ``assemble``.
_SEEDS = 2
# Of what a function draws for a whole batch: beyond the places of those that are called per sample.
_WHOLE = 1 << 32
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# NumPy's stubs don't know all of it.
_numpy: Any = np.random


def uniforms(
    seed: int, epoch: int, numbers: NDArray[np.int64], stream: int, count: int
) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) for each sample.

    SplitMix64 [1]_ over a counter, from a start that the arguments determine.

    Args:
        seed: Of the loader.
        epoch: Of the batch.
        numbers: int64 ``(batch,)``, the samples.
        stream: Which transform draws.
        count: How many for each sample.

    Returns:
        float64 ``(batch, count)``.

    .. [1] G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    start = np.random.SeedSequence((seed, epoch, stream)).generate_state(2, np.uint64)
    state = _mixed(np.asarray(numbers, np.uint64) * _GOLDEN + start[0]) ^ start[1]
    steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    drawn: NDArray[np.float64] = (_mixed(state[:, None] + steps) >> np.uint64(11)) * 2.0**-53
    return drawn


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


class Seeding:
    """The global generators, seeded for a batch and for each of its samples.

    One thread at a time: the generators are the process's.

    Args:
        used: Of ``"random"``, ``"numpy"`` and ``"mxnet"``, those that the code may draw from.
        seed: Of the loader.
        restore: Put back what was there before; not in a worker process, where nobody minds.
    """

    def __init__(self, used: frozenset[str], seed: int, restore: bool) -> None:
        self._used = used
        self._seed = seed
        self._restore = restore

    @contextlib.contextmanager
    def batch(self, epoch: int, index: int) -> Iterator[None]:
        """Seed what is seeded per batch."""
        undo = self._kept() if self._restore else []
        if "numpy" in self._used:
            # A generator of our own in the place of the user's.
            _numpy.set_bit_generator(np.random.MT19937(0))
        if "mxnet" in self._used:
            mx.random.seed(self._drawn(epoch, index))
        try:
            yield
        finally:
            for put_back_one in undo:
                put_back_one()

    def of_samples(
        self, epoch: int, numbers: NDArray[np.int64], place: int
    ) -> Callable[[int], None]:
        """What seeds the generators for a row; ``place`` tells several calls for one apart."""

        def seed(row: int) -> None:
            drawn = self._drawn(epoch, int(numbers[row]), place)
            if "random" in self._used:
                random.seed(drawn)
            if "numpy" in self._used:
                np.random.seed(drawn)

        return seed

    def reseed(self, epoch: int, index: int) -> None:
        """Seed what a function of the whole batch draws from; MXNet's has been, for the batch."""
        drawn = self._drawn(epoch, index, _WHOLE)
        if "random" in self._used:
            random.seed(drawn)
        if "numpy" in self._used:
            np.random.seed(drawn)

    def _kept(self) -> list[Any]:
        undo: list[Any] = []
        if "random" in self._used:
            undo.append(functools.partial(random.setstate, random.getstate()))
        if "numpy" in self._used:
            before = _numpy.get_bit_generator(), _numpy.get_state(legacy=False)
            undo.append(functools.partial(put_back, *before))
        if "mxnet" in self._used:
            undo.append(functools.partial(mx.random.seed, _draw_seed()))
        return undo

    def _drawn(self, epoch: int, number: int, place: int = 0) -> int:
        stream = _SEEDS + place
        return int(generator(self._seed, epoch, number % 2**63, stream).integers(2**31))


def _draw_seed() -> int:
    with mx.Context("cpu", 0):
        return int(mx.nd.random.randint(0, 2**31 - 1, shape=(1,)).asscalar())
