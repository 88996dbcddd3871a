"""Rows of one size out of records and arrays, raw pictures above all, by the kernel.

It asks memory for rows ahead of the one that it copies, which is what a shuffled gather waits for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load

_MOST_BYTES = 2**31 - 1  # Of a row; which the kernel counts with.
_NO_DEFAULTS = (None,)
_NUMBERS = frozenset("biufc")
MOST_ARRAYS = 64
"""That ``take`` takes rows of at once."""


def can_be_taken(array: NDArray[Any]) -> bool:
    """Whether ``take`` takes rows of this array, where there is a kernel."""
    return array.dtype.kind in _NUMBERS and array.flags.c_contiguous


def take(
    arrays: tuple[NDArray[Any], ...],
    numbers: NDArray[np.int64],
    outs: tuple[NDArray[Any], ...],
    places: NDArray[np.int64] | None = None,
) -> bool:
    """Write rows of arrays into others, each like the one that it is for, if there is a kernel.

    Args:
        arrays: Up to ``MOST_ARRAYS``, each ``(rows, ...)`` and as ``can_be_taken`` asks.
        numbers: Of the rows.
        outs: Each ``(numbers, ...)``, contiguous.
        places: Into which rows of ``outs`` they go; None for one after another.

    Returns:
        Whether there is one.

    Raises:
        IndexError: There is no such row, or place.
    """
    kernel = load()
    if kernel is None:
        return False
    kernel.take(arrays, numbers, outs, places)
    return True


class Stack:
    """Several arrays' rows, numbered through, which are taken at once. ``of`` makes it.

    To the kernel, all that lies between the first array and the last is one file, of which it reads
    what it is told to: the rows.

    Args:
        arrays: Contiguous, of one dtype and shape but for the rows.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays = [np.asarray(array) for array in arrays]
        self._lengths = list(map(len, arrays))
        self.shape, self.dtype = arrays[0].shape[1:], arrays[0].dtype
        self._size = math.prod(self.shape) * self.dtype.itemsize
        self._place()

    def _place(self) -> None:
        """Find out where the rows lie."""
        arrays = [array[:length] for array, length in zip(self._arrays, self._lengths)]
        begins = [int(array.__array_interface__["data"][0]) for array in arrays]
        low, high = min(begins), max(b + array.nbytes for b, array in zip(begins, arrays))
        lowest = arrays[begins.index(low)].reshape(-1).view(np.uint8)
        self._whole = np.lib.stride_tricks.as_strided(lowest, (high - low,), (1,), writeable=False)
        rows = [np.arange(len(array)) * self._size for array in arrays]
        self._starts = np.concatenate([b - low + own for b, own in zip(begins, rows)])
        self._now = list(map(len, self._arrays))

    @classmethod
    def of(cls, arrays: Sequence[Any]) -> Stack | None:
        """These arrays; None where the kernel can't take rows of them."""
        if load() is None or not all(isinstance(array, np.ndarray) for array in arrays):
            return None
        kinds = {(array.dtype, array.shape[1:]) for array in arrays}
        if len(kinds) != 1 or not all(array.flags.c_contiguous for array in arrays):
            return None
        if arrays[0].dtype.hasobject or not 0 < arrays[0][:1].nbytes <= _MOST_BYTES:
            return None
        return cls(arrays)

    def __len__(self) -> int:
        """Rows of all."""
        return len(self._starts)

    def take(self, numbers: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write these rows into ``(numbers, ...)``, contiguous and of their dtype.

        Raises:
            IndexError: There is no such row.
        """
        if list(map(len, self._arrays)) != self._now:
            self._place()  # One was resized where it is, and may lie elsewhere now.
        given, into = _one_field(self._size), (out.view(np.uint8),)
        kernel = load()
        assert kernel is not None
        wrong = kernel.gather(
            self._whole, numbers, None, self._starts, None, *given, into, _NO_DEFAULTS
        )
        if wrong is not None:
            raise IndexError(f"numbers must be in range({len(self)}), got {numbers}")


@functools.lru_cache(maxsize=64)
def _one_field(size: int) -> tuple[NDArray[Any], ...]:
    """Places, lengths, sizes and varints of a record that is so many bytes."""
    whole = np.array([[size]])
    none = np.zeros((1, 1), np.int32)
    return none, whole.astype(np.int32), whole[0].astype(np.int64), np.zeros(1, np.int64)
