"""Bytes from many places of a file at once."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray


@functools.lru_cache(maxsize=4096)
def _bytes(size: int) -> np.dtype[np.void]:
    return np.dtype((np.void, size))


def windows(view: memoryview, size: int, begins: NDArray[np.int64]) -> NDArray[np.uint8]:
    """So many bytes from each of these places on, ``(places, size)``, in memory of their own."""
    every = len(view) - size + 1
    column: NDArray[np.void] = np.ndarray(every, _bytes(size), view, 0, (1,))
    return column[begins].view(np.uint8).reshape(len(begins), size)
