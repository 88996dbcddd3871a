"""Division of samples into parts: exact arithmetic and a keyed permutation.

Quotas are exact fractions of sample counts. Each part gets its quota of a class, rounded up or down
by largest remainder. A part's shortage in earlier classes is added to its remainder, so that
rounding errors don't add up over many classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adapters.batch.permutation import SPLIT, permute


def allotted(
    size: int, shares: Sequence[Fraction], seed: int, classes: NDArray[np.int64] | None
) -> list[NDArray[np.int64]]:
    """Samples of each part, in order.

    Args:
        size: Number of samples.
        shares: Shares of the parts, then of the samples in no part; they sum to 1.
        seed: Seed of the permutation.
        classes: Class of each sample, from 0; None if all are alike.
    """
    order = _permuted(size, seed)
    counts = np.array([size])
    if classes is not None:
        counts = np.bincount(classes)
        order = order[np.argsort(classes[order], kind="stable")]
    sizes = _sizes(counts.tolist(), shares)
    parts = np.repeat(np.tile(np.arange(len(shares)), len(counts)), sizes.ravel())
    return [np.sort(order[parts == part]) for part in range(len(shares) - 1)]


def grouped(
    groups: NDArray[np.int64],
    shares: Sequence[Fraction],
    seed: int,
    classes: NDArray[np.int64] | None,
) -> list[NDArray[np.int64]]:
    """Samples of each part, in order; no group is divided.

    Args:
        groups: Group of each sample, from 0.
        shares: As for ``allotted``.
        seed: Decides between groups of one size.
        classes: Class of each sample, the same for all of a group; None if all are alike.
    """
    counts = np.bincount(groups)
    class_of = np.zeros(len(counts), np.int64)
    if classes is not None:
        class_of[groups] = classes
    order = _permuted(len(counts), seed)
    order = order[np.lexsort((-counts[order], class_of[order]))]
    totals = np.bincount(class_of, counts).astype(np.int64).tolist()
    weights, whole = _integers(shares)
    wanted = [part for part, weight in enumerate(weights) if weight]
    part_of = np.empty(len(counts), np.int64)
    lacking, owed = [0] * len(shares), [0] * len(shares)
    before = -1
    for group in order.tolist():
        if (kind := int(class_of[group])) != before:
            # The part that lacks most of this class comes first; earlier shortages break ties.
            owed = [old + new for old, new in zip(owed, lacking)]
            lacking = [weight * totals[kind] for weight in weights]
            before = kind
        part = max(wanted, key=lambda at: (lacking[at], owed[at], -at))
        lacking[part] -= whole * int(counts[group])
        part_of[group] = part
    parts = part_of[groups]
    return [np.flatnonzero(parts == part) for part in range(len(shares) - 1)]


def _sizes(counts: Sequence[int], shares: Sequence[Fraction]) -> NDArray[np.int64]:
    """Samples of each class for each part, ``(classes, parts)``."""
    weights, whole = _integers(shares)
    owed = [0] * len(shares)
    sizes = []
    for count in counts:
        quotas = [weight * count for weight in weights]
        own = [quota // whole for quota in quotas]
        owed = [old + quota - whole * given for old, quota, given in zip(owed, quotas, own)]
        rounded_up = [at for at, quota in enumerate(quotas) if quota % whole]
        rounded_up.sort(key=lambda at: -owed[at])
        for at in rounded_up[: count - sum(own)]:
            own[at] += 1
            owed[at] -= whole
        sizes.append(own)
    return np.array(sizes, np.int64)


def _integers(shares: Sequence[Fraction]) -> tuple[list[int], int]:
    """Shares as integers, and their sum."""
    whole = math.lcm(*(share.denominator for share in shares))
    return [int(share * whole) for share in shares], whole


def _permuted(size: int, seed: int) -> NDArray[np.int64]:
    return permute(np.arange(size, dtype=np.int64), size, (seed, 0, SPLIT))
