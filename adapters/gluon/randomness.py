"""Random numbers: per-sample streams, and seeding of the global generators for user code.

Random transforms that run a batch at a time draw from ``uniforms``, a function of the seed, the
epoch and the number of the sample only.

User code may draw from ``random``, ``numpy.random`` or MXNet's generator. If it runs inline or in a
worker process, its draws are made to depend on the same values, and the generators are restored
afterwards. MXNet's generator can't be read, so it is seeded again with a number drawn from it, only
if the code seems to use it. Seeding it takes 1.2 ms (MXNet 1.9.1 fills 1,024 states), so it is
seeded once per batch, the others once per sample.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from adapters.generators import generator
from adapters.seeding import seeded

# Stream of the seeds of the global generators. Streams 0 and 1 are for transforms. Each run of
# functions that are called per sample has the next stream, and those of a whole batch have another.
_SEEDS = 2
SEEDS_OF_RUNS, SEEDS_OF_BATCHES = _SEEDS, _SEEDS + (1 << 32)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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


@contextlib.contextmanager
def seeded_batch(
    used: frozenset[str], seed: int, epoch: int, index: int, restore: bool
) -> Iterator[None]:
    """Seed MXNet's generator for a batch, and restore the global generators at the end.

    One thread at a time is within, because the generators belong to the process.

    Args:
        used: Generators that the code may use, of ``"random"``, ``"numpy"`` and ``"mxnet"``.
        seed: Seed of the loader.
        epoch: Epoch of the batch.
        index: Number of the batch.
        restore: True to restore MXNet's generator too, which worker processes don't need.
    """
    if not used:
        yield
        return
    with seeded(used):
        after = None
        if "mxnet" in used:
            after = _drawn_seed() if restore else None
            mx.random.seed(int(generator(seed, epoch, index, _SEEDS).integers(2**31)))
        try:
            yield
        finally:
            if after is not None:
                mx.random.seed(after)


def _drawn_seed() -> int:
    with mx.Context("cpu", 0):
        return int(mx.nd.random.randint(0, 2**31 - 1, shape=(1,)).asscalar())
