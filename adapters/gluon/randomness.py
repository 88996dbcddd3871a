"""Random numbers: per-sample streams, and seeding of the global generators for user code.

Random transforms that run a batch at a time draw from ``uniforms``, a function of the seed, the
epoch and the number of the sample only.

User code may draw from ``random``, ``numpy.random`` or MXNet's generator. If it runs inline or in a
worker process, its draws depend on the same values, and the generators are restored afterwards.
MXNet's generator can't be read, so it is seeded again with a number drawn from it, only if the code
seems to use it. Seeding it takes 1.2 ms (MXNet 1.9.1 fills 1,024 states), so it is seeded once per
batch, the others once per sample.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from adapters.generators import generator
from adapters.seeding import seed, seeded

# Stream of the seeds of other generators. Streams 0 and 1 are for transforms, see ``assemble``.
_SEEDS = 2
WHOLE_BATCH = 1 << 32
"""Place of functions of a whole batch, above the places of functions called per sample."""
SOURCE = WHOLE_BATCH + 1
"""Place of the user's functions in a source, such as ``decode``."""
_OTHERS = WHOLE_BATCH + 2  # Place of functions that nothing else seeds, such as ``on_error``.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(
    seed: int, epoch: int, numbers: NDArray[np.int64], stream: int, count: int
) -> NDArray[np.float64]:
    """Draw ``count`` uniform numbers in [0, 1) for each sample, float64 ``(batch, count)``.

    Uses SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014)
    over a counter, from a start that the arguments determine. ``stream`` is the number of the
    transform that draws.
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


@contextlib.contextmanager
def seeded_batch(
    used: frozenset[str], own_seed: int, epoch: int, index: int, restore: bool
) -> Iterator[frozenset[str]]:
    """Seed the global generators that the code may use for a batch, and restore them at the end.

    Yields those to seed for each sample, with ``seed_place``. MXNet's generator needs no
    restoring in worker processes.
    """
    per_sample = used - {"mxnet"}
    with seeded(used):  # One thread at a time, also for MXNet's generator alone.
        seed_place(per_sample, own_seed, epoch, index, _OTHERS)
        if "mxnet" not in used:
            yield per_sample
            return
        before = _draw_seed() if restore else None
        mx.random.seed(int(generator(own_seed, epoch, index, _SEEDS).integers(2**31)))
        try:
            yield per_sample
        finally:
            if before is not None:
                mx.random.seed(before)


def seed_place(used: frozenset[str], own_seed: int, epoch: int, number: int, place: int) -> None:
    """Seed ``random`` and ``numpy.random`` for a sample or batch, within ``seeded_batch``.

    ``place`` is the number of the functions that follow; ``WHOLE_BATCH`` for those of a batch.
    """
    if used:
        seed(used, own_seed, epoch, number % 2**63, _SEEDS + place)


def _draw_seed() -> int:
    with mx.Context("cpu", 0):
        return int(mx.nd.random.randint(0, 2**31 - 1, shape=(1,)).asscalar())
