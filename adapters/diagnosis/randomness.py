"""What an examination draws from the process's random generators, it puts back."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Leave ``random`` and ``numpy.random`` as they are, whatever transforms and steps draw."""
    own, numpys = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        random.setstate(own)
        np.random.set_state(numpys)
