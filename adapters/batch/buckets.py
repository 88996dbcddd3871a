"""``bucket_by``: batches of samples of similar length, otherwise in random order.

::

    samples, by bucket:    1 1 1 1 1 1 2 2 2 2 2 3 3 3 3       each bucket permuted
    cut into batches:     (1 1 1 1)(1 1 2 2)(2 2 2 3)(3 3 3)   from a place chosen by a key
    batches, permuted:    (2 2 2 3)(1 1 1 1)(1 1 2 2) (3 3 3)

A bucket has all samples longer than the previous bound, up to its own. The samples of a bucket are
combined at random, and batches come in random order. At most one batch per bound mixes two buckets,
and one batch mixes the first and the last. The last batch, if it isn't full, comes from the bucket
with the most samples, if these suffice, so that it has the same shape in every epoch.

A batch here is that of all shards together, ``batch_size * count`` positions. So the order depends
only on that product, and without ``shuffle`` not even on that.

Memory: 8 bytes per sample, and the lengths, which are not copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.batch.order import Arrangement, values_of_samples
from adapters.batch.permutation import BUCKETS, IN_BUCKETS, chosen, permute

# Lengths considered as bounds: the search takes a table of their squares and 50 ms.
_MOST_LENGTHS = 1024


def checked_lengths(name: str, lengths: Any) -> NDArray[Any]:
    """Check the lengths of samples, the argument ``name``, and return them as an array."""
    array = values_of_samples(name, lengths, "length")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numbers, one for each sample, got {array.dtype}")
    if not (array.min() >= 0 and np.isfinite(array.max())):
        raise ValueError(f"{name} must be lengths >= 0, got {array.min()} to {array.max()}")
    return array


class Buckets:
    """``bucket_by=Buckets(...)``: bounds between buckets, and the cost of padding to them.

    Args:
        lengths: Length of each sample, ``(samples,)``, >= 0. Not copied.
        shapes: Maximum number of bounds; each is a shape that a padded batch may have. Bounds are
            chosen to minimise padding.

    Attributes:
        bounds: Bounds in increasing order; the last is the length of the longest sample.
        padding: Share of padding in the batches when each is padded to its bound: 0 to 1.

    Raises:
        TypeError: Not numbers.
        ValueError: Wrong shape, empty, or a length below 0.

    Example:
        >>> from adapters import Buckets
        >>> buckets = Buckets([3, 4, 4, 9, 10, 10], shapes=2)
        >>> buckets.bounds, round(buckets.padding, 3)
        ([4, 10], 0.048)
    """

    def __init__(self, lengths: Any, shapes: int = 8) -> None:
        array = checked_lengths("lengths", lengths)
        check_integer("shapes", shapes, 1)
        self.bounds: list[Any] = _bounds(array, int(shapes))
        self.lengths = array
        codes = np.searchsorted(np.array(self.bounds), array)
        counts = np.bincount(codes, minlength=len(self.bounds))
        padded = float((np.array(self.bounds) * counts).sum())
        self.padding = 1 - float(array.sum(dtype=np.float64)) / padded if padded else 0.0
        # Sample numbers, one bucket after another; starts of the buckets among these, and the end.
        self._samples: NDArray[np.int64] = np.argsort(codes, kind="stable").astype(np.int64)
        self._starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(counts)])

    def __repr__(self) -> str:
        return f"<Buckets of {len(self._samples):,} lengths, bounds {self.bounds}>"

    def of(self, size: int, shuffle: bool, seed: int) -> BucketOrder:
        """Make the order for ``size`` samples; ``ValueError`` if there are other lengths."""
        if len(self._samples) != size:
            raise ValueError(
                f"bucket_by must have one length for each of the {size} samples, got "
                f"{len(self._samples)}"
            )
        return BucketOrder(size, self, 1, shuffle, seed)


# Compared by identity, as caches need it.
@dataclass(frozen=True, eq=False)
class BucketOrder(Arrangement):
    """Global order in buckets."""

    size: int
    buckets: Buckets
    group: int
    """Samples in a batch of all shards together."""
    shuffle: bool
    """Permute buckets and batches; otherwise samples come from the shortest bucket on."""
    seed: int

    @property
    def is_random(self) -> bool:
        """True if the order depends on a seed, and so on the batch size of all shards."""
        return self.shuffle

    is_grouped = is_random

    @property
    def way(self) -> str:
        """Description of the order, for people."""
        return f"by length, in {len(self.buckets.bounds)} buckets and batches of {self.group}"

    @property
    def tables(self) -> tuple[NDArray[Any], ...]:
        """Samples of the buckets, starts of the buckets, and the bounds."""
        buckets = self.buckets
        return buckets._samples, buckets._starts, np.array(buckets.bounds, np.float64)

    def in_groups(self, size: int) -> BucketOrder:
        """Return the order for batches of ``size`` samples."""
        return replace(self, group=size)

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions."""
        if not self.shuffle:
            return self.buckets._samples[positions]
        size, group, key = self.size, self.group, (self.seed, epoch)
        samples, starts = self.buckets._samples, self.buckets._starts
        batches, places = np.divmod(positions, group)
        if whole := size // group:
            full = np.flatnonzero(batches < whole)
            if len(full):
                used, at = np.unique(batches[full], return_inverse=True)
                batches[full] = permute(used, whole, (*key, BUCKETS))[at]
        places += batches * group + self._offset(whole * group, (*key, BUCKETS))
        places %= size
        buckets = np.searchsorted(starts, places, "right") - 1
        for bucket in np.flatnonzero(np.bincount(buckets)).tolist():
            inside = np.flatnonzero(buckets == bucket)
            begin, end = int(starts[bucket]), int(starts[bucket + 1])
            own = permute(places[inside] - begin, end - begin, (*key, IN_BUCKETS, bucket))
            places[inside] = own + begin
        numbers: NDArray[np.int64] = samples[places]
        return numbers

    def _offset(self, full: int, key: tuple[int, ...]) -> int:
        """Choose the place where the first batch begins; the last one begins ``full`` later."""
        rest, counts = self.size - full, np.diff(self.buckets._starts)
        largest = int(counts.argmax())
        room = int(counts[largest]) - rest
        if not rest or room < 0:
            return chosen(self.size, key)
        return int(self.buckets._starts[largest]) + chosen(room + 1, key) - full


def _bounds(lengths: NDArray[Any], shapes: int) -> list[Any]:
    """Find the bounds with the least padding, by dynamic programming."""
    values, counts = np.unique(lengths, return_counts=True)
    if len(values) > _MOST_LENGTHS:
        # Take lengths with equally many samples between them; a bound is off by 0.1% of samples.
        behind = np.cumsum(counts)
        wanted = np.linspace(0, behind[-1], _MOST_LENGTHS + 1)[1:]
        values = values[np.unique(np.searchsorted(behind, wanted).clip(max=len(values) - 1))]
    if len(values) <= shapes:
        return [value.item() for value in values]
    before: Any = np.searchsorted(np.sort(lengths), values, "right").astype(np.float64)
    value: Any = values.astype(np.float64)
    cost = value * before
    chosen_before: list[NDArray[np.int64]] = []
    for _ in range(shapes - 1):
        # Samples above bound i and up to bound j are padded to bound j.
        table = cost[np.newaxis, :] + value[:, np.newaxis] * (before[:, np.newaxis] - before)
        table[np.triu_indices(len(value))] = np.inf
        table[0, 0] = cost[0]
        best: NDArray[np.int64] = table.argmin(1)
        chosen_before.append(best)
        cost = table[np.arange(len(value)), best]
    places = [len(value) - 1]
    for before_it in reversed(chosen_before):
        places.append(int(before_it[places[-1]]))
    return [values[place].item() for place in sorted(set(places))]
