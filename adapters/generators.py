"""The random generator of a sample or a batch: a function of its place, whoever computes it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

# Which of a sample's streams of numbers: what one draws must not repeat in another.
TRANSFORM, BATCH_TRANSFORM = 0, 1
DECODE = 1 << 48  # Beyond the streams that gluon/randomness.py counts up.


def generator(seed: int, epoch: int, number: int, stream: int) -> np.random.Generator:
    """The generator of one sample, or of one batch.

    Args:
        seed: Of all that is random.
        epoch: From 0.
        number: Of the sample or the batch.
        stream: What it is for.
    """
    words = np.array([0, epoch, number, stream], np.uint64)
    return np.random.Generator(np.random.Philox(key=_key(seed), counter=words))


def generators(seed: int, epoch: int, stream: int) -> Callable[[int], np.random.Generator]:
    """As ``generator``, by the number, for one after another; a fifth of the time each.

    Each is good until the next one is asked for in this thread: it is the same, set anew.
    """
    rng = getattr(_own, "rng", None)
    if rng is None:
        # Once only, as it asks the system for entropy, and then has to wait for the GIL.
        rng = _own.rng = np.random.Generator(np.random.Philox(key=0))
    bits, counter = rng.bit_generator, np.array([0, epoch, 0, stream], np.uint64)
    state = {**_BEFORE_DRAWING, "state": {"counter": counter, "key": _key(seed)}}

    def set_anew(number: int) -> np.random.Generator:
        counter[2] = number
        bits.state = state
        return rng

    return set_anew


_own = threading.local()
_BEFORE_DRAWING = np.random.Philox(key=0).state


@functools.lru_cache(maxsize=64)
def _key(seed: int) -> NDArray[np.uint64]:
    return np.random.SeedSequence(seed).generate_state(2, np.uint64).astype(np.uint64)
