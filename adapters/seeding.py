"""Seeding of the global random generators for a batch, for code that draws from them.

``random`` and ``numpy.random`` are seeded with numbers that depend on (seed, epoch, sample number)
or (seed, epoch, batch index), so that the draws don't depend on the worker. Afterwards, their state
is restored. They are shared by the process: within ``seeded``, one thread at a time computes, and
other code that draws from them meanwhile gets repeated numbers.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.generators import Generators, generator

# NumPy's stubs are incomplete.
_numpy: Any = np.random
_lock = threading.RLock()
_bits = np.random.MT19937(0)
_aside: frozenset[str] = frozenset()
"""Generators whose state the current ``seeded`` restores; empty outside of all."""


def seeded(used: frozenset[str]) -> contextlib.AbstractContextManager[None]:
    """Restore the used generators' state on exit; blocks while another thread is within."""
    return _seeded(used) if used else contextlib.nullcontext()


@contextlib.contextmanager
def _seeded(used: frozenset[str]) -> Iterator[None]:
    global _aside
    with _lock:
        outer, new = _aside, used - _aside  # It may be a batch within another batch.
        state = random.getstate() if "random" in new else None
        pair = _numpy.get_state(legacy=False) if "numpy" in new else None
        bits = _numpy.get_bit_generator()
        _aside = outer | used
        try:
            if pair is not None:
                # Our own generator replaces the user's.
                _numpy.set_bit_generator(_bits)
            yield
        finally:
            _aside = outer
            if pair is not None:
                _numpy.set_bit_generator(bits)
                if pair["has_gauss"] or pair["gauss"]:  # The normal number that is left of a pair.
                    left = {name: pair[name] for name in ("has_gauss", "gauss")}
                    _numpy.set_state({**_numpy.get_state(legacy=False), **left})
            if state is not None:
                random.setstate(state)


@contextlib.contextmanager
def left_to_others() -> Iterator[None]:
    """Let other threads enter ``seeded`` while this thread, which is within, waits for them."""
    global _aside
    if not (_aside and _lock._is_owned()):  # type: ignore[attr-defined]
        yield
        return
    python, numpy, aside = random.getstate(), _bits.state, _aside
    _aside = frozenset()
    held = _lock._release_save()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        _lock._acquire_restore(held)  # type: ignore[attr-defined]
        _aside, _bits.state = aside, numpy
        random.setstate(python)


def seed(used: frozenset[str], own_seed: int, epoch: int, number: int, stream: int) -> None:
    """Seed the used generators, within ``seeded``, by the same arguments as ``generator``'s."""
    if used:
        seed_with(used, _drawn(generator(own_seed, epoch, number, stream)))


def seeds(own_seed: int, epoch: int, numbers: NDArray[np.int64], stream: int) -> list[int]:
    """Draw what ``seed`` seeds with for each of these samples, in half the time."""
    return list(map(_drawn, map(Generators(own_seed, epoch, stream, numbers), range(len(numbers)))))


def _drawn(rng: np.random.Generator) -> int:
    # The same number as ``integers(2**31)``, in 0.3 us instead of 2.
    return int(rng.bit_generator.random_raw() & 0xFFFFFFFF) >> 1


def seed_with(used: frozenset[str], drawn: int) -> None:
    """Seed the used generators, within ``seeded``, with a number from ``seeds``."""
    if _draws is not None:
        _draws.look()
    if "random" in used:
        random.seed(drawn)
    if "numpy" in used:
        np.random.seed(drawn)
    if _draws is not None:
        _draws.before = _states()


@contextlib.contextmanager
def draws_noted() -> Iterator[set[str]]:
    """Collect the names of the generators that code draws from, within ``seeded``."""
    global _draws
    outer, _draws = _draws, _Draws()
    try:
        yield _draws.drawn
    finally:
        _draws.look()
        _draws = outer


class _Draws:
    """Generators that were drawn from, by their states before and after."""

    def __init__(self) -> None:
        self.drawn: set[str] = set()
        self.before = _states()

    def look(self) -> None:
        now = _states()
        self.drawn |= {name for name in now if now[name] != self.before[name]}


_draws: _Draws | None = None


def _states() -> dict[str, Any]:
    numpy = _numpy.get_state(legacy=False)
    state = numpy["state"]
    return {
        "random": random.getstate(),
        "numpy": (state["key"].tobytes(), state["pos"], numpy["has_gauss"]),
    }


def _renew_lock() -> None:
    global _lock, _aside
    _lock, _aside = threading.RLock(), frozenset()


os.register_at_fork(after_in_child=_renew_lock)


def process_generators() -> dict[str, Any]:
    """State of ``random`` and ``numpy.random``, as plain values; waits for ``seeded`` to end."""
    with _lock:
        version, numbers, gauss = random.getstate()
        return {
            "random": (version, np.array(numbers, np.uint64), gauss),
            "numpy": _numpy.get_state(legacy=False),
        }


def set_process_generators(state: dict[str, Any]) -> None:
    """Restore the state that ``process_generators`` returned."""
    with _lock:
        version, numbers, gauss = state["random"]
        random.setstate((version, tuple(numbers.tolist()), gauss))
        _numpy.set_state(state["numpy"])
