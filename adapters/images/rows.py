"""Rows of one size out of records and arrays, raw pictures above all, by the kernel.

It asks memory for rows ahead of the one that it copies, which is what a shuffled gather waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load_untried

Parts = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Memory, and where in it parts of an array begin and how many rows each has, ``(parts, 2)``."""
_NUMBERS = frozenset("biufc")
MOST_ARRAYS = 64
"""That ``take`` takes rows of at once."""


def can_be_taken(array: NDArray[Any]) -> bool:
    """Whether ``take`` takes rows of this array, where there is a kernel."""
    return array.dtype.kind in _NUMBERS and array.flags.c_contiguous


def take(
    arrays: tuple[NDArray[Any] | Parts, ...],
    numbers: NDArray[np.int64],
    outs: tuple[NDArray[Any], ...],
    places: NDArray[np.int64] | None = None,
) -> bool:
    """Write rows of arrays into others, each like the one that it is for, if there is a kernel.

    Args:
        arrays: Up to ``MOST_ARRAYS``, each ``(rows, ...)`` and as ``can_be_taken`` asks, or
            ``parts_of`` several.
        numbers: Of the rows.
        outs: Each ``(numbers, ...)``, contiguous.
        places: Into which rows of ``outs`` they go; None for one after another.

    Returns:
        Whether there is one.

    Raises:
        IndexError: There is no such row, or place.
    """
    kernel = load_untried()
    if kernel is None:
        return False
    kernel.take(arrays, numbers, outs, places)
    return True


def parts_of(arrays: Sequence[NDArray[Any]], lengths: Sequence[int]) -> Parts:
    """Several arrays' rows, numbered through, as ``take`` takes them.

    All that lies between the first array and the last is one memory, of which the kernel reads what
    it is told to: the rows.

    Args:
        arrays: Of one dtype and shape but for the rows, each as ``can_be_taken`` asks.
        lengths: Rows of each that count, not more than it has.
    """
    counted = [array[:length] for array, length in zip(arrays, lengths)]
    begins = [int(array.__array_interface__["data"][0]) for array in counted]
    low, high = min(begins), max(b + array.nbytes for b, array in zip(begins, counted))
    lowest = counted[begins.index(low)].reshape(-1).view(np.uint8)
    memory = np.lib.stride_tricks.as_strided(lowest, (high - low,), (1,), writeable=False)
    return memory, np.array([(begin - low, length) for begin, length in zip(begins, lengths)])
