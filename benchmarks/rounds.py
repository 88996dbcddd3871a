"""The spread within one process: what parts of a run were like."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

PARTS = 5


def rounds_of(
    moments: Sequence[float], batch_size: int, waits_seconds: Sequence[float]
) -> dict[str, list[float]]:
    """Speed and share waited in five stretches of an epoch; none of one that is too short for that.

    Args:
        moments: When each batch was there, in seconds of any clock.
        batch_size: Samples in each.
        waits_seconds: How long each was waited for.

    Returns:
        `samples_per_second` and `waited_share`, of each stretch.
    """
    if len(moments) <= PARTS:
        return {}
    borders = [place * (len(moments) - 1) // PARTS for place in range(PARTS + 1)]
    speeds, shares = [], []
    for begin, end in pairwise(borders):
        seconds = moments[end] - moments[begin]
        speeds.append((end - begin) * batch_size / seconds)
        shares.append(min(1.0, sum(waits_seconds[begin + 1 : end + 1]) / seconds))
    return {"samples_per_second": speeds, "waited_share": shares}
