"""The process's random generators, seeded for a batch, for code that draws from them.

``random`` and ``numpy.random`` are seeded with numbers that depend on (seed, epoch, sample number)
or (seed, epoch, batch index), so that what such code draws is the same whoever computes the batch.
Afterwards they are as they were. They are the process's: within ``seeded``, one thread at a time
computes, and whatever else draws from them meanwhile draws numbers that repeat.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from adapters.generators import generator

# NumPy's stubs don't know all of it.
_numpy: Any = np.random
_lock = threading.RLock()
_bits = np.random.MT19937(0)
_within = False
_aside: frozenset[str] = frozenset()
"""Of the generators, those whose state is put back by whoever is within."""


def seeded(used: frozenset[str]) -> contextlib.AbstractContextManager[None]:
    """Put back, in the end, what is there now; blocks while another thread is within.

    Args:
        used: Of ``"random"`` and ``"numpy"``, those that the code draws from.
    """
    return _seeded(used) if used else _UNSEEDED


_UNSEEDED = contextlib.nullcontext()


@contextlib.contextmanager
def _seeded(used: frozenset[str]) -> Iterator[None]:
    global _within, _aside
    with _lock:
        outer, new = (_within, _aside), used - _aside  # It may be a batch within a batch.
        state = random.getstate() if "random" in new else None
        pair = _numpy.get_state(legacy=False) if "numpy" in new else None
        bits = _numpy.get_bit_generator()
        _within, _aside = True, _aside | used
        try:
            if pair is not None:
                # A generator of our own in the place of the user's.
                _numpy.set_bit_generator(_bits)
            yield
        finally:
            _within, _aside = outer
            if pair is not None:
                put_back(bits, pair)
            if state is not None:
                random.setstate(state)


def put_back(bits: Any, before: dict[str, Any]) -> None:
    """Have ``numpy.random`` draw from the user's generator again.

    Args:
        bits: That bit generator.
        before: The state from before. The normal number that is left of a pair lies beside it.
    """
    _numpy.set_bit_generator(bits)
    if before["has_gauss"] or before["gauss"]:
        pair = {name: before[name] for name in ("has_gauss", "gauss")}
        _numpy.set_state({**_numpy.get_state(legacy=False), **pair})


@contextlib.contextmanager
def left_to_others() -> Iterator[None]:
    """For a thread that is within ``seeded`` and waits for others: they may be within meanwhile."""
    global _within, _aside
    if not (_within and _lock._is_owned()):  # type: ignore[attr-defined]
        yield
        return
    python, numpy, aside = random.getstate(), _bits.state, _aside
    _within, _aside = False, frozenset()
    held = _lock._release_save()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        _lock._acquire_restore(held)  # type: ignore[attr-defined]
        _within, _aside, _bits.state = True, aside, numpy
        random.setstate(python)


def seed(used: frozenset[str], own_seed: int, epoch: int, number: int, stream: int) -> None:
    """Seed them, within ``seeded``.

    Args:
        used: As there.
        own_seed: Of the sequence.
        epoch: From 0.
        number: Of the sample or the batch.
        stream: What it is for, as in ``generator``.
    """
    if not used:
        return
    drawn = int(generator(own_seed, epoch, number, stream).integers(2**31))
    if "random" in used:
        random.seed(drawn)
    if "numpy" in used:
        np.random.seed(drawn)


def _renew_lock() -> None:
    global _lock, _within, _aside
    _lock, _within, _aside = threading.RLock(), False, frozenset()


os.register_at_fork(after_in_child=_renew_lock)


def process_generators() -> dict[str, Any]:
    """Where ``random`` and ``numpy.random`` stand, as plain values; nobody is within ``seeded``."""
    with _lock:
        version, numbers, gauss = random.getstate()
        return {
            "random": (version, np.array(numbers, np.uint64), gauss),
            "numpy": _numpy.get_state(legacy=False),
        }


def set_process_generators(state: dict[str, Any]) -> None:
    """Have them stand where they stood when ``process_generators`` gave that."""
    with _lock:
        version, numbers, gauss = state["random"]
        random.setstate((version, tuple(numbers.tolist()), gauss))
        _numpy.set_state(state["numpy"])
