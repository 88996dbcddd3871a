"""The random generator of a sample or a batch: a function of its place, whoever computes it."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# Which of a sample's streams of numbers: what one draws must not repeat in another.
TRANSFORM, BATCH_TRANSFORM = 0, 1
GLOBAL, GLOBAL_BATCH = 2, 3  # Of what seeds the process's generators for code that draws there.
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


def generator_argument(function: Callable[..., Any] | None) -> Literal["second", "rng"] | None:
    """How ``function`` wants its random generator.

    As its second argument if that has no default or is called ``rng``; by the name ``rng`` if that
    can't be given otherwise; not at all if there is neither.
    """
    if function is None:
        return None
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # Some callables written in C don't tell.
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) > 1:
        second = positional[1]
        if second.default is inspect.Parameter.empty or second.name == "rng":
            return "second"
    if any(p.name == "rng" and p.kind is p.KEYWORD_ONLY for p in parameters):
        return "rng"
    return None


def call_with(
    rng_of: Callable[[], np.random.Generator],
    argument: str | None,
    function: Callable[..., Any],
    item: Any,
) -> Any:
    """``function(item)``, with a generator where it takes one.

    Args:
        rng_of: Makes the generator.
        argument: How it takes it: what ``generator_argument`` says.
        function: Of the user's own.
        item: A sample or a batch.
    """
    if argument is None:
        return function(item)
    return function(item, rng_of()) if argument == "second" else function(item, rng=rng_of())
