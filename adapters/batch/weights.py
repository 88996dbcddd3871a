"""``weights``: samples drawn with replacement, each with its own probability.

    position --keyed hash--> u in [0, 1) --cumulated weights--> sample number

Draw number ``position`` of an epoch is a function of (seed, epoch, position), so draws need no
state and shards share none. The cumulated weights take 8 bytes a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.batch.order import Arrangement, values_of_samples
from adapters.batch.permutation import DRAWS, uniform


class Weighted:
    """``weights=Weighted(...)``: weights of samples, and the number of draws in an epoch.

    Args:
        weights: Weight of each sample, ``(samples,)``, >= 0. Twice the weight is drawn twice as
            often; 0 is never drawn. Copied.
        samples: Draws in an epoch; None for as many as there are samples.

    Raises:
        TypeError: Not numbers, or ``samples`` is not an integer.
        ValueError: Wrong shape; weights below 0, not finite, or all 0; or ``samples`` below 1.

    Example:
        >>> import numpy as np
        >>> from adapters import SafeSequence, Weighted
        >>> seq = SafeSequence(np.arange(3), 10, weights=Weighted([0, 1, 3], samples=1000))
        >>> len(seq), 0 in np.concatenate(list(seq))
        (100, False)
    """

    def __init__(self, weights: Any, samples: int | None = None) -> None:
        array = values_of_samples("weights", weights, "number")
        if array.dtype.kind not in "biuf":
            raise TypeError(f"weights must be numbers, one for each sample, got {array.dtype}")
        if samples is not None:
            samples = check_integer("samples", samples, 1, " or None")
        self._cumulated = np.cumsum(array, dtype=np.float64)
        if not (array.min() >= 0 and np.isfinite(self._cumulated[-1])):
            wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
            got = f"{array[wrong[0]]} for sample {wrong[0]}" if len(wrong) else "too large a sum"
            raise ValueError(f"weights must be >= 0 and finite, got {got}; 0 leaves a sample out")
        if not self._cumulated[-1] >= np.finfo(np.float64).tiny:
            raise ValueError("weights must not all be 0, or nearly: no sample could be drawn")
        self.samples = len(array) if samples is None else samples

    def __repr__(self) -> str:
        return f"<Weighted, {len(self._cumulated):,} weights, samples={self.samples}>"

    def of(self, size: int, seed: int) -> Draws:
        """Make the order of draws from ``size`` samples; ``ValueError`` if it has others."""
        if len(self._cumulated) != size:
            raise ValueError(
                f"weights must have one number for each of the {size} samples, got "
                f"{len(self._cumulated)}"
            )
        return Draws(self._cumulated, self.samples, seed)


class Draws(Arrangement):
    """Draws with replacement; worker processes share the cumulated weights."""

    def __init__(self, cumulated: NDArray[np.float64], size: int, seed: int) -> None:
        self._cumulated, self.size, self._seed = cumulated, size, seed

    @property
    def way(self) -> str:
        """Description of the order, for people."""
        return f"{self.size} draws by weight, with replacement"

    @property
    def tables(self) -> tuple[NDArray[Any], ...]:
        """Cumulated weights."""
        return (self._cumulated,)

    def visits(self, number: int) -> bool:
        """Return True if the sample's weight isn't 0."""
        before = self._cumulated[number - 1] if number else 0.0
        return bool(self._cumulated[number] > before)

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples drawn at these positions."""
        total = self._cumulated[-1]
        wanted = uniform(positions, (self._seed, epoch, DRAWS)) * total
        # The first sample above it, which is none with weight 0.
        wanted = np.minimum(wanted, np.nextafter(total, 0))
        numbers: NDArray[np.int64] = np.searchsorted(self._cumulated, wanted, "right")
        return numbers


def class_balanced(labels: Any, shares: Mapping[Any, float] | None = None) -> NDArray[np.float64]:
    """Compute weights by which all classes are drawn equally often.

    Args:
        labels: Class of each sample, ``(samples,)``: numbers or strings.
        shares: Frequency of each class, in any unit; classes not in it are never drawn. None to
            draw all classes equally often.

    Returns:
        float64 ``(samples,)``, 1 on average: for ``weights=`` of ``SafeSequence`` or
        ``gluon_loader``, or for ``Weighted``.

    Raises:
        TypeError: Labels that can't be sorted, or shares that are no mapping.
        ValueError: Labels of another shape, or none; a share below 0, or of a class without labels.

    Example:
        >>> from adapters import class_balanced
        >>> class_balanced(["cat", "cat", "cat", "dog"]).round(2).tolist()
        [0.67, 0.67, 0.67, 2.0]
        >>> class_balanced([0, 0, 1, 1], {0: 3, 1: 1}).tolist()
        [1.5, 1.5, 0.5, 0.5]
    """
    array = values_of_samples("labels", labels, "class")
    try:
        classes, codes, counts = np.unique(array, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise TypeError(
            f"labels must be numbers or texts, all of one kind, got some that differ ({error})"
        ) from error
    known = classes.tolist()
    wanted = np.ones(len(known))
    if shares is not None:
        if not hasattr(shares, "items") or np.array([*shares.values()]).dtype.kind not in "biuf":
            raise TypeError(
                f"shares must map classes to numbers, like {{{known[0]!r}: 1.0}}, got "
                f"{type(shares).__name__} {shares!r:.100}"
            )
        for name, share in shares.items():
            if name not in known:
                raise ValueError(
                    f"shares must name classes of labels, got {name!r}, which has none"
                )
            if not 0 <= share < np.inf:
                raise ValueError(f"shares must be >= 0, got {share!r} for {name!r}")
        wanted = np.array([float(shares.get(name, 0)) for name in known])
        if not wanted.sum() > 0:
            raise ValueError("shares must not all be 0: no sample could be drawn")
    weights: NDArray[np.float64] = (wanted / wanted.sum() * len(array) / counts)[codes]
    return weights
