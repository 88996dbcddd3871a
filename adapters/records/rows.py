"""The compiled gatherer of rows out of records and arrays, where it was built.

It asks memory for rows ahead of the one that it copies, which is what a shuffled gather waits for.
``ADAPTERS_KERNEL=0`` in the environment does without it, with ``ADAPTERS_KERNEL=required`` it must
be there.
"""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAME = "adapters.records._rows"
# Of a row; NumPy copies shorter ones sooner. Worth it: 6.6 against 9.7 us for 64 rows of 784 bytes
# out of 47 MB, 22 against 25 for 3,072 bytes (one core).
_LEAST_BYTES = 256
_NO_DEFAULTS = (None,)


@functools.cache
def load() -> ModuleType | None:
    """The module with ``gather``; None where it wasn't built, can't be loaded, or isn't wanted.

    Raises:
        ImportError: It can't be had, and ``ADAPTERS_KERNEL`` is ``required``.
    """
    wanted = os.environ.get("ADAPTERS_KERNEL")
    if wanted == "0":
        return None
    try:
        return importlib.import_module(_NAME)
    except ImportError:
        if wanted == "required":
            raise
        return None


def take(array: NDArray[Any], numbers: NDArray[np.int64], out: NDArray[Any]) -> bool:
    """Write rows of an array into another one, which is like it.

    Args:
        array: ``(rows, ...)``, contiguous, in memory.
        numbers: Of the rows, in range.
        out: ``(numbers, ...)``, contiguous.

    Returns:
        Whether that was done; what it isn't worth for, is for NumPy.
    """
    kernel = load()
    if kernel is None or array.dtype.kind not in "biufc" or not len(array):
        return False
    size = array.nbytes // len(array)
    if not _LEAST_BYTES <= size <= np.iinfo(np.int32).max:
        return False
    given = _one_field(size)
    wrong = kernel.gather(array, numbers, None, None, size, None, *given, (out,), _NO_DEFAULTS)
    return wrong is None


@functools.lru_cache(maxsize=64)
def _one_field(size: int) -> tuple[NDArray[Any], ...]:
    """Places, lengths, sizes and varints of a record that is so many bytes."""
    whole = np.array([[size]])
    none = np.zeros((1, 1), np.int32)
    return none, whole.astype(np.int32), whole[0].astype(np.int64), np.zeros(1, np.int64)
