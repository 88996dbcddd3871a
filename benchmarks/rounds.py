"""The spread within one process: the speeds of parts of what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

PARTS = 5


def rounds_of(moments: Sequence[float], batch_size: int) -> list[float]:
    """Samples/s in five stretches of an epoch, or none of one that is too short for that.

    Args:
        moments: When each batch was there, in seconds of any clock.
        batch_size: Samples in each.
    """
    if len(moments) <= PARTS:
        return []
    borders = [place * (len(moments) - 1) // PARTS for place in range(PARTS + 1)]
    return [
        (end - begin) * batch_size / (moments[end] - moments[begin])
        for begin, end in pairwise(borders)
    ]
