"""Memory that frameworks take as it is."""

from __future__ import annotations

import math
from ctypes import addressof, c_char
from typing import Any

import numpy as np
from numpy.typing import NDArray

# From which TensorFlow and JAX take an array on the CPU without copying it.
ALIGNMENT_BYTES = 64


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised array that starts at a multiple of ``ALIGNMENT_BYTES``."""
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        return np.empty(shape, dtype)
    block = np.empty(math.prod(shape) * dtype.itemsize + ALIGNMENT_BYTES, np.uint8)
    buffer: Any = block
    # NumPy's own ways to tell the address take four times as long.
    start = -addressof(c_char.from_buffer(buffer)) % ALIGNMENT_BYTES
    array: NDArray[Any] = np.ndarray(shape, dtype, block, start)
    return array
