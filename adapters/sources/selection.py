"""Sample numbers for ``select``: arithmetic only."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray


def chosen_of(numbers: Any, size: int) -> NDArray[np.int64]:
    """Convert the argument of ``select`` to numbers from 0.

    Args:
        numbers: Integers, counted from the end if negative, or a boolean mask.
        size: Number of samples.

    Raises:
        IndexError: A number out of range.
        TypeError: Neither integers nor a mask.
        ValueError: A mask of another length, or more than one axis.
    """
    if not hasattr(numbers, "__len__") or isinstance(numbers, (str, bytes, Set, Mapping)):
        raise TypeError(
            "numbers must be a sequence of sample numbers or a boolean mask, got "
            f"{type(numbers).__name__}; make a list of it"
        )
    given = np.asarray(numbers)
    if given.ndim != 1:
        raise ValueError(f"numbers must have one axis, got {given.ndim}: shape {given.shape}")
    if given.dtype == bool:
        if len(given) != size:
            raise ValueError(
                f"a mask must have one value for each of the {size} samples, got {len(given)}"
            )
        return np.flatnonzero(given).astype(np.int64)
    if len(given) and given.dtype.kind not in "iu":
        raise TypeError(f"numbers must be integers or a boolean mask, got {given.dtype}")
    wrong = np.flatnonzero((given < -size) | (given >= size))
    if len(wrong):
        place = int(wrong[0])
        raise IndexError(
            f"numbers must be in range({-size}, {size}), got {given[place]} in place {place}"
        )
    chosen = given.astype(np.int64)
    chosen[chosen < 0] += size
    return chosen
