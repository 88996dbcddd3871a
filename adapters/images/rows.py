"""Gathering of equal-sized rows from records and arrays, above all raw images, by the kernel.

The kernel prefetches the memory of later rows, which is what a shuffled gather waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load_untried

Parts = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Memory, and the offset and number of rows of each part of an array in it, ``(parts, 2)``."""
_NUMBERS = frozenset("biufc")
# Up to this size of a batch, the GIL is kept: who releases it waits long to get it back (20 us for
# 50 kB that are copied in 3 us, Keras on JAX).
_KEPT_BYTES, _LEAST_KEPT_BYTES = 256 << 10, 16 << 10
MOST_ARRAYS = 64
"""Most arrays of one call of ``take``."""


def can_be_taken(array: NDArray[Any]) -> bool:
    """True if ``take`` supports this array, provided that there is a kernel."""
    return array.dtype.kind in _NUMBERS and array.flags.c_contiguous


def is_in_memory(array: NDArray[Any]) -> bool:
    """True if the array's memory is NumPy's own, and no map of a file."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None


def take(
    arrays: tuple[NDArray[Any] | Parts, ...],
    numbers: NDArray[np.int64],
    outs: tuple[NDArray[Any], ...],
    places: NDArray[np.int64] | None = None,
    in_memory: bool = False,
) -> bool:
    """Copy rows of each array into the corresponding output, if there is a kernel.

    Args:
        arrays: Up to ``MOST_ARRAYS``, each ``(rows, ...)`` and accepted by ``can_be_taken``, or
            ``parts_of`` several.
        numbers: Numbers of the rows.
        outs: Each ``(numbers, ...)``, contiguous.
        places: Target rows in ``outs``; None for consecutive ones.
        in_memory: True if no array is the map of a file, which would be waited for with the GIL.

    Returns:
        True if there is a kernel.

    Raises:
        IndexError: There is no such row, or place.
    """
    kernel = load_untried()
    if kernel is None:
        return False
    kernel.take(arrays, numbers, outs, places, _KEPT_BYTES if in_memory else _LEAST_KEPT_BYTES)
    return True


def parts_of(arrays: Sequence[NDArray[Any]], lengths: Sequence[int]) -> Parts:
    """Join several arrays for ``take``, with rows numbered consecutively.

    The memory from the first array to the last counts as one block, of which the kernel reads only
    the rows.

    Args:
        arrays: Arrays of one dtype and row shape, each accepted by ``can_be_taken``.
        lengths: Number of rows to use of each array.
    """
    counted = [array[:length] for array, length in zip(arrays, lengths)]
    begins = [int(array.__array_interface__["data"][0]) for array in counted]
    low, high = min(begins), max(b + array.nbytes for b, array in zip(begins, counted))
    lowest = counted[begins.index(low)].reshape(-1).view(np.uint8)
    memory = np.lib.stride_tricks.as_strided(lowest, (high - low,), (1,), writeable=False)
    return memory, np.array([(begin - low, length) for begin, length in zip(begins, lengths)])
