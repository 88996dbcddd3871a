"""The spread within one process: what parts of a run were like."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

PARTS = 5


def rounds_of(
    moments: Sequence[float],
    batch_size: int,
    waits_seconds: Sequence[float],
    samples: int | None = None,
) -> dict[str, list[float]]:
    """Speed and waits in five stretches of an epoch; nothing of one that is too short for that.

    Args:
        moments: When each batch was there, in seconds of any clock.
        batch_size: Samples in each.
        waits_seconds: How long each was waited for.
        samples: Of the epoch; None where its time isn't a figure of the table.

    Returns:
        `samples_per_second`, `waited_share`, `wait_p50_ms` and `wait_p99_ms` of each stretch, and
        `train_seconds`, that the epoch would have taken at its speed.
    """
    if len(moments) <= PARTS:
        return {}
    borders = [place * (len(moments) - 1) // PARTS for place in range(PARTS + 1)]
    names = ["samples_per_second", "waited_share", "wait_p50_ms", "wait_p99_ms"]
    rounds: dict[str, list[float]] = {name: [] for name in names}
    for begin, end in pairwise(borders):
        seconds = moments[end] - moments[begin]
        waits = waits_seconds[begin + 1 : end + 1]
        p50, p99 = np.percentile(waits, [50, 99])
        rounds["samples_per_second"].append((end - begin) * batch_size / seconds)
        rounds["waited_share"].append(min(1.0, sum(waits) / seconds))
        rounds["wait_p50_ms"].append(1000 * float(p50))
        rounds["wait_p99_ms"].append(1000 * float(p99))
    if samples is not None:
        rounds["train_seconds"] = [samples / speed for speed in rounds["samples_per_second"]]
    return rounds
