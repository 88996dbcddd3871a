"""Preserves the state of the process's random generators during an examination."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the states of ``random`` and ``numpy.random`` at the end of the ``with`` block."""
    own, numpys = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        random.setstate(own)
        np.random.set_state(numpys)
