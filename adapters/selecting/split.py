"""``split``: divides a source at random, by the shares of classes, or by whole groups.

Quotas are exact fractions of sample counts. Each part gets its quota of a class, rounded up or down
by largest remainder. A part's shortage in earlier classes is added to its remainder, so that
rounding errors don't add up over many classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.batch.permutation import SPLIT, permute
from adapters.selecting.mix import numbers_given, written
from adapters.sources import Source, source_given
from adapters.structure import as_array

# Tolerance for sums of fractions that are meant to be 1.
_ROUNDING = Fraction(1, 10**9)


def split(
    source: Any,
    fractions: Iterable[float],
    *,
    seed: int = 0,
    stratify: Any = None,
    groups: Any = None,
) -> list[Source]:
    """Divide a source into parts at random; nothing is read or copied.

    The same seed gives the same parts, in every process and with every version of NumPy. Samples of
    a part keep the order that they have in the source.

    Args:
        source: Anything that ``SafeSequence`` takes as a source of samples: an array, tuples and
            dicts of them, a data set, records, a path, and results of ``select``, ``split`` and
            ``concatenate``.
        fractions: Fraction of each part, above 0, together at most 1. The rest is in no part. Sizes
            are rounded by largest remainder: those of ``[0.8, 0.2]`` add up to all samples.
        seed: Selects the parts. No other generator is used or changed.
        stratify: Class of each sample, ``(samples,)``. Every part gets its fraction of each class,
            rounded up or down so that the sizes of the parts are right, too. For several labels,
            ``(samples, labels)``, each combination that occurs is a class, including one-hot rows.
        groups: Group of each sample, ``(samples,)``: no group is divided. The largest groups go
            first, each to the part that lacks most, so that fractions are met as well as groups
            allow. With ``stratify``, a group belongs to one class, and each class is divided by
            itself.

    Returns:
        A source for each fraction, for ``SafeSequence``, ``gluon_loader``, or any other loader of
            map-style data sets. ``.select(numbers or mask)`` returns a part of it.

    Raises:
        TypeError: An argument of the wrong type, or a source of whole batches.
        ValueError: Invalid fractions, a part without samples, labels or groups that aren't one per
            sample, or a group with several classes.

    Example:
        >>> import numpy as np
        >>> from adapters import split
        >>> x, y = np.zeros((10, 3)), np.arange(10) % 2
        >>> train, test = split((x, y), [0.8, 0.2], stratify=y)
        >>> len(train), sorted(int(label) for _, label in test)
        (8, [0, 1])
    """
    whole = source_given(source, "source")
    given = numbers_given("fractions", fractions)
    shares = _shares(given)
    check_integer("seed", seed, 0)
    size = len(whole)
    classes = np.zeros(size, np.int64)
    if stratify is not None:
        classes = _codes("stratify", stratify, size)
    what = f"{size} samples"
    if groups is None:
        parts = allotted(classes, shares, int(seed))
    else:
        families = _codes("groups", groups, size)
        _check_classes(families, classes, groups)
        parts = grouped(families, classes, shares, int(seed))
        what = f"{families.max() + 1} groups of {what}"
    for fraction, part in zip(given, parts):
        if not len(part):
            raise ValueError(
                f"fractions must leave every part a sample, got {fraction} of {what}; give it more"
            )
    return [whole.select(part) for part in parts]


def _shares(fractions: list[Any]) -> list[Fraction]:
    """Convert the fractions as they were meant, ten of 0.1 being all, followed by the rest."""
    shares = []
    for place, value in enumerate(fractions):
        if not 0 < value <= 1:
            raise ValueError(
                f"fractions must be above 0 and at most 1, got {value!r} as fractions[{place}]; "
                "for a number of samples, divide it by len(source)"
            )
        shares.append(written(value))
    if not shares:
        raise ValueError("fractions must have at least one number, got none")
    total = sum(shares, Fraction(0))
    if total > 1 + _ROUNDING:
        raise ValueError(
            f"fractions must be at most 1 together, got {fractions!r}, {float(total):g} together"
        )
    if abs(total - 1) <= _ROUNDING:
        return [*(share / total for share in shares), Fraction(0)]
    return [*shares, 1 - total]


def _codes(name: str, values: Any, size: int) -> NDArray[np.int64]:
    """Index of each sample's value among the sorted distinct values."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TypeError(
            f"{name} must be an array with a value for each sample, got {values!r:.100}"
        )
    try:
        array = np.asarray(values.toarray() if hasattr(values, "toarray") else as_array(values))
    except ValueError as error:
        raise ValueError(
            f"{name} must have as many labels for each sample, got lists of several lengths "
            f"({error}): make a matrix (samples, labels) of 0 and 1 of them, as sklearn's "
            "MultiLabelBinarizer does"
        ) from None
    if array.shape == (size, 1):  # Samples of one member, such as records of just a label.
        array = array.reshape(size)
    several = name == "stratify" and array.ndim == 2 and len(array) == size and array.size > 0
    if array.shape != (size,) and not several:
        more = f", or for several labels ({size}, labels)" if name == "stratify" else ""
        raise ValueError(
            f"{name} must have one value for each of the {size} samples, shape ({size},){more}, "
            f"got shape {array.shape}"
        )
    try:
        if several and array.dtype == object:
            columns = [np.unique(column, return_inverse=True)[1] for column in array.T]
            array = np.stack(columns, axis=1)
        axis = 0 if several else None
        codes: NDArray[np.int64] = np.unique(array, return_inverse=True, axis=axis)[1].reshape(size)
    except TypeError as error:
        raise TypeError(
            f"{name} must hold values that can be sorted, got {array.dtype} where {error}; give "
            "numbers or texts"
        ) from None
    return codes


def _check_classes(families: NDArray[np.int64], classes: NDArray[np.int64], groups: Any) -> None:
    first = np.empty(families.max() + 1, np.int64)
    first[families[::-1]] = classes[::-1]  # Class of each group's first sample.
    wrong = np.flatnonzero(classes != first[families])
    if len(wrong):
        group = np.asarray(as_array(groups))[wrong[0]]
        raise ValueError(
            f"groups must each belong to one class of stratify, got group {group} with several; "
            "give groups alone, or a class for each group, such as its most frequent one"
        )


def allotted(
    classes: NDArray[np.int64], shares: Sequence[Fraction], seed: int
) -> list[NDArray[np.int64]]:
    """Samples of each part, in order.

    ``shares`` are those of the parts, then of the samples in no part; they sum to 1. ``classes``
    are numbers from 0.
    """
    order = permute(np.arange(len(classes)), len(classes), (seed, 0, SPLIT))
    if classes.any():
        order = order[np.argsort(classes[order], kind="stable")]
    counts = np.bincount(classes)
    sizes = _sizes(counts.tolist(), shares)
    parts = np.repeat(np.tile(np.arange(len(shares)), len(counts)), sizes.ravel())
    return [np.sort(order[parts == part]) for part in range(len(shares) - 1)]


def grouped(
    groups: NDArray[np.int64],
    classes: NDArray[np.int64],
    shares: Sequence[Fraction],
    seed: int,
) -> list[NDArray[np.int64]]:
    """Samples of each part, in order; no group is divided. All of a group have one class."""
    counts = np.bincount(groups)
    class_of = np.zeros(len(counts), np.int64)
    class_of[groups] = classes
    order = permute(np.arange(len(counts)), len(counts), (seed, 0, SPLIT))
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
    whole = math.lcm(*(share.denominator for share in shares))
    return [int(share * whole) for share in shares], whole
