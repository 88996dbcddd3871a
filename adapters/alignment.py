"""Memory that frameworks take as it is."""

from __future__ import annotations

import math
from ctypes import addressof, c_char
from typing import Any

import numpy as np
from numpy.typing import NDArray

# From which TensorFlow and JAX take an array on the CPU without copying it.
ALIGNMENT_BYTES = 64
# Of an array: up to here, a copy takes less than to see where it begins, 0.1 against 1 us.
SMALL_BYTES = 4 << 10


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised array; it starts at a multiple of ``ALIGNMENT_BYTES``, if it isn't small."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size <= SMALL_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    block = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    array: NDArray[Any] = np.ndarray(shape, dtype, block, -address_of(block) % ALIGNMENT_BYTES)
    return array


def address_of(array: NDArray[Any]) -> int:
    """Where a C-contiguous array begins in memory.

    NumPy's own ways to tell it take four times as long, and are taken for what can't be written to
    or is empty.
    """
    buffer: Any = array
    if array.flags.writeable and array.size:
        return addressof(c_char.from_buffer(buffer))
    return int(array.__array_interface__["data"][0])
