"""Random numbers: per-sample streams, and seeding of the global generators for user code.

Random transforms that run a batch at a time draw from ``uniforms``, a function of the seed, the
epoch and the number of the sample only.

User code may draw from ``random``, ``numpy.random`` or MXNet's generator. If it runs inline or in a
worker process, ``Seeding`` makes its draws depend on the same values, and restores the generators
afterwards. MXNet's generator can't be read, so it is seeded again with a number drawn from it, only
if the code seems to use it. Seeding it takes 1.2 ms (MXNet 1.9.1 fills 1,024 states), so it is
seeded once per batch, the others once per sample.
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

# Stream of the seeds of other generators. Streams 0 and 1 are for transforms, see ``assemble``.
_SEEDS = 2
# Place of functions of a whole batch, above the places of functions called per sample.
_WHOLE = 1 << 32
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# NumPy's stubs are incomplete.
_numpy: Any = np.random


def uniforms(
    seed: int, epoch: int, numbers: NDArray[np.int64], stream: int, count: int
) -> NDArray[np.float64]:
    """Draw uniform numbers in [0, 1) for each sample.

    Uses SplitMix64 [1]_ over a counter, from a start that the arguments determine.

    Args:
        seed: Seed of the loader.
        epoch: Epoch of the batch.
        numbers: Sample numbers, int64 ``(batch,)``.
        stream: Number of the transform that draws.
        count: Numbers to draw for each sample.

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
    """Seeds the global generators for a batch and for each of its samples.

    Only one thread at a time may use it, because the generators belong to the process.

    Args:
        used: Generators that the code may use, of ``"random"``, ``"numpy"`` and ``"mxnet"``.
        seed: Seed of the loader.
        restore: True to restore the generators afterwards, which worker processes don't need.
    """

    def __init__(self, used: frozenset[str], seed: int, restore: bool) -> None:
        self._used = used
        self._seed = seed
        self._restore = restore

    @contextlib.contextmanager
    def batch(self, epoch: int, index: int) -> Iterator[None]:
        """Seed the generators that are seeded per batch, and restore all of them at the end."""
        undo = self._kept() if self._restore else []
        if "numpy" in self._used:
            # Replaces the user's generator.
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
        """Return a function that seeds the generators for a row; ``place`` numbers the run."""

        def seed(row: int) -> None:
            drawn = self._drawn(epoch, int(numbers[row]), place)
            if "random" in self._used:
                random.seed(drawn)
            if "numpy" in self._used:
                np.random.seed(drawn)

        return seed

    def reseed(self, epoch: int, index: int) -> None:
        """Seed ``random`` and ``numpy.random`` for a function of the whole batch."""
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
