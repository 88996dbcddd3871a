"""Memory aligned so that frameworks use it without copying."""

from __future__ import annotations

import math
from ctypes import addressof, c_char
from typing import Any

import numpy as np
from numpy.typing import NDArray

# TensorFlow and JAX use a CPU array with this alignment without copying it.
ALIGNMENT_BYTES = 64
# Size of an array up to which copying it is faster than finding its address: 0.1 against 1 us.
SMALL_BYTES = 4 << 10


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate an uninitialised array, aligned to ``ALIGNMENT_BYTES`` unless it is small."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size <= SMALL_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    block = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    array: NDArray[Any] = np.ndarray(shape, dtype, block, -address_of(block) % ALIGNMENT_BYTES)
    return array


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy of it that is C-contiguous, and aligned unless it is small."""
    contiguous = array.flags.c_contiguous
    small = array.nbytes <= SMALL_BYTES
    if contiguous and (small or not address_of(array) % ALIGNMENT_BYTES):
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def address_of(array: NDArray[Any]) -> int:
    """Return the address of a C-contiguous array.

    NumPy's own ways take four times as long. They are used for read-only and empty arrays.
    """
    buffer: Any = array
    if array.flags.writeable and array.size:
        return addressof(c_char.from_buffer(buffer))
    return int(array.__array_interface__["data"][0])
