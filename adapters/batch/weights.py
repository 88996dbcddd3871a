"""``weights``: samples drawn with replacement, each with its own probability.

    position --keyed hash--> u in [0, 1) --cumulated weights--> sample number

Draw number ``position`` of an epoch is a function of (seed, epoch, position), so draws need no
state and shards share none. Weights are summed in runs of 64. A draw finds its run by bisection of
the runs' sums, then its sample within the run. That takes 1/64 of the memory of cumulated weights,
and a tenth of the time until the first draw: 0.2 s of CPU for 10**8 weights, and 1.4 us a draw (2
busy cores, 2026-11). An alias table would have to be sorted first.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.batch.order import Arrangement
from adapters.batch.permutation import DRAWS, uniform
from adapters.structure import as_array

# Weights in a run: 88 us for 64 draws of 10**8, against 113 with runs of 32.
_RUN = 64
# Largest number below 1.
_BELOW_ONE = 1 - 2.0**-53


class Weighted:
    """``weights=Weighted(...)``: weights of samples, and the number of draws in an epoch.

    Args:
        weights: Weight of each sample, ``(samples,)``, >= 0. Twice the weight is drawn twice as
            often; 0 is never drawn. Copied, unless read-only.
        samples: Draws in an epoch; None for as many as there are samples.

    Raises:
        TypeError: Not numbers, or ``samples`` is not an integer.
        ValueError: Wrong shape, or ``samples`` below 1. In a loader: below 0, not finite, or all 0.

    Example:
        >>> import numpy as np
        >>> from adapters import SafeSequence, Weighted
        >>> seq = SafeSequence(np.arange(3), 10, weights=Weighted([0, 1, 3], samples=1000))
        >>> len(seq), 0 in np.concatenate(list(seq))
        (100, False)
    """

    def __init__(self, weights: Any, samples: int | None = None) -> None:
        array = np.asarray(as_array(weights))
        if array.dtype.kind not in "biuf":
            got = f"an array of {array.dtype}" if array.ndim else reprlib.repr(weights)
            raise TypeError(f"weights must be numbers, one for each sample, got {got}")
        if array.ndim != 1:
            got = f"shape {array.shape}" if array.ndim else reprlib.repr(weights)
            raise ValueError(
                f"weights must have one number for each sample, shape (samples,), got {got}"
            )
        if samples is not None:
            check_integer("samples", samples, 1, " or None")
        if array.dtype.kind != "f":
            array = array.astype(np.float64)
        elif array.flags.writeable:  # Draws need the weights that were summed.
            array = array.copy()
        self.weights: NDArray[Any] = np.ascontiguousarray(array)
        self.samples = None if samples is None else int(samples)

    def of(self, size: int, seed: int) -> Draws:
        """Make the order of draws from ``size`` samples.

        Raises:
            ValueError: Not one weight per sample, or weights that can't be drawn by.
        """
        if len(self.weights) != size:
            raise ValueError(
                f"weights must have one number for each of the {size} samples, got "
                f"{len(self.weights)}"
            )
        return Draws(self.weights, self.samples or size, seed)


class Draws(Arrangement):
    """Draws with replacement; worker processes share the weights."""

    chunk = 256

    def __init__(self, weights: NDArray[Any], size: int, seed: int) -> None:
        self.size, self._seed = size, seed
        if len(weights) % _RUN and len(weights) < _RUN:
            weights = np.pad(weights, (0, _RUN - len(weights)))
        whole = len(weights) // _RUN
        self._runs = weights[: whole * _RUN].reshape(whole, _RUN)
        self._tail = np.zeros(_RUN, weights.dtype)
        self._tail[: len(weights) % _RUN] = weights[whole * _RUN :]
        sums = np.append(self._runs.sum(1, dtype=np.float64), self._tail.sum(dtype=np.float64))
        self._cumulated = np.concatenate([[0.0], np.cumsum(sums)])
        least = weights.min()
        if not (least >= 0 and np.isfinite(self._cumulated[-1])):
            raise ValueError(
                "weights must be >= 0 and finite, got "
                f"{_first_wrong(weights)}; 0 leaves a sample out"
            )
        if not self._cumulated[-1] >= np.finfo(np.float64).tiny:
            raise ValueError("weights must not all be 0, or nearly: no sample could be drawn")

    @property
    def way(self) -> str:
        """Description of the order, for people."""
        return f"{self.size} draws by weight, with replacement"

    @property
    def tables(self) -> tuple[NDArray[Any], ...]:
        """Weights, and the padded last run."""
        return self._runs, self._tail

    def visits(self, number: int) -> bool:
        """Return True if the sample's weight isn't 0."""
        run, place = divmod(number, _RUN)
        return bool((self._runs[run] if run < len(self._runs) else self._tail)[place])

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples drawn at these positions."""
        cumulated = self._cumulated
        wanted = uniform(positions, (self._seed, epoch, DRAWS)) * cumulated[-1]
        # A run with weight 0 is never found, nor is, below, a sample with weight 0.
        run = np.searchsorted(cumulated, wanted, "right") - 1
        before = cumulated[run]
        part = np.minimum((wanted - before) / (cumulated[run + 1] - before), _BELOW_ONE)
        last = len(self._runs)
        rows = self._runs.take(np.minimum(run, last - 1), 0)
        if (in_tail := run == last).any():
            rows[in_tail] = self._tail
        inner = rows.cumsum(1, dtype=np.float64)
        place = (inner <= (part * inner[:, -1])[:, np.newaxis]).argmin(1)  # The first that isn't.
        numbers: NDArray[np.int64] = run * _RUN + place
        return numbers


def _first_wrong(weights: NDArray[Any]) -> str:
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    return f"{weights[wrong[0]]} for sample {wrong[0]}" if len(wrong) else "a sum that is too large"


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
    array = np.asarray(as_array(labels))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not len(array):
        raise ValueError(
            f"labels must have one class for each sample, shape (samples,), got shape {array.shape}"
        )
    try:
        classes, codes, counts = np.unique(array, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise TypeError(
            f"labels must be numbers or texts, all of one kind, got some that differ ({error})"
        ) from error
    known = classes.tolist()
    wanted = np.ones(len(known))
    if shares is not None:
        if not hasattr(shares, "items"):
            raise TypeError(
                f"shares must map classes to numbers, like {{{known[0]!r}: 1.0}}, got "
                f"{type(shares).__name__}"
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
