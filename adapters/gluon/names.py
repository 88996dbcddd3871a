"""What samplers call samples: numbers, or whatever the data set takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def numbers_of(names: Sequence[Any], index: int, first: int) -> NDArray[np.int64]:
    """What the random numbers of these samples depend on: theirs, or their places."""
    numbers = integers(names)
    if numbers is None:
        return np.arange(first, first + len(names)) + (index << 24)
    return numbers


def integers(names: Any) -> NDArray[np.int64] | None:
    """What a sampler may give as an array; None where it gives something else than integers."""
    try:
        numbers = np.asarray(names)
    except ValueError:  # Sequences of several lengths.
        return None
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        return None
    return numbers.astype(np.int64, copy=False)


def in_range(names: Sequence[Any], size: int) -> NDArray[np.int64]:
    """Row numbers from what a sampler may give, negative ones too.

    Raises:
        IndexError: A name is out of range, or no integer.
    """
    numbers = integers(names)
    if numbers is None:
        raise IndexError(f"samples must be named by integers, got {list(names)[:3]!r}")
    least, most = int(numbers.min()), int(numbers.max())
    if least < -size or most >= size:
        wrong = most if most >= size else least
        raise IndexError(f"sample {wrong} was asked of a data set of {size}")
    return np.where(numbers < 0, numbers + size, numbers) if least < 0 else numbers
