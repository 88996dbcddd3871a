"""How a sampler may name samples, and what their numbers are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def numbers_of(keys: Sequence[Any], index: int) -> NDArray[np.int64]:
    """What the random numbers of these samples depend on: theirs, or their places."""
    numbers = np.asarray(keys)
    if numbers.ndim == 1 and numbers.dtype.kind in "iu":
        return numbers.astype(np.int64)
    return np.arange(len(keys)) + (int(index) << 24)


def in_range(keys: Sequence[Any], size: int) -> NDArray[np.int64]:
    """Row numbers from what a sampler may give, negative ones too.

    Raises:
        IndexError: A key is out of range, or no integer.
    """
    numbers = np.asarray(keys)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise IndexError(f"samples must be named by integers, got {list(keys)[:3]!r}")
    numbers = numbers.astype(np.int64, copy=False)
    least, most = int(numbers.min()), int(numbers.max())
    if least < -size or most >= size:
        wrong = most if most >= size else least
        raise IndexError(f"sample {wrong} was asked of a data set of {size}")
    return np.where(numbers < 0, numbers + size, numbers) if least < 0 else numbers
