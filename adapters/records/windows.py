"""Vectorized copies of byte ranges."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray


@functools.lru_cache(maxsize=4096)
def _bytes(size: int) -> np.dtype[np.void]:
    return np.dtype((np.void, size))


def windows(view: memoryview, size: int, begins: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Copy ``size`` bytes from each offset, ``(offsets, size)``."""
    every = len(view) - size + 1
    column: NDArray[np.void] = np.ndarray(every, _bytes(size), view, 0, (1,))
    return column[begins].view(np.uint8).reshape(len(begins), size)
