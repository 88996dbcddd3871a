"""Order in which ``pack`` writes: inputs sorted by class are shuffled, by a seed.

A file sorted by class is a trap for readers that take it a part at a time: an order in blocks, or a
shuffle buffer, gives batches of few classes. So inputs whose labels come in runs are permuted; any
other order is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.batch.permutation import PACKED, permute
from adapters.packing.inputs import Inputs, Item, expect

Seed = int | Literal["auto"] | None

# Pairs of neighbours whose labels are compared.
_MOST_PAIRS = 4096
# With fewer samples, neighbours say nothing.
_LEAST = 8
# Labels come in runs if they change less often than this fraction of a shuffled order's changes.
_RUNS = 0.5


def check_seed(seed: Any) -> None:
    """Check ``seed``.

    Raises:
        TypeError: It is no integer.
        ValueError: It is below 0.
    """
    if seed is not None and not (isinstance(seed, str) and seed == "auto"):
        check_integer("seed", seed, 0, ', "auto" or None')


def shuffled(inputs: Inputs, seed: Seed) -> Inputs:
    """Put inputs in the order in which they are written.

    Args:
        inputs: Inputs in their own order.
        seed: Seed of the permutation; ``"auto"`` permutes only labels in runs; None nothing.
    """
    if seed == "auto":
        seed = 0 if in_runs(inputs.items) else None
    if seed is None:
        return inputs
    return replace(inputs, items=_Permuted(inputs.items, int(seed)), seed=int(seed))


class _Permuted(Sequence[Item]):
    """Items permuted by a seed."""

    def __init__(self, items: Sequence[Item], seed: int) -> None:
        self._items = items
        size = len(items)
        self._order = permute(np.arange(size), size, (seed, 0, PACKED))

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: Any) -> Any:
        return self._items[int(self._order[number])]

    def expect(self, numbers: NDArray[np.int64]) -> None:
        """Start fetching these, if they have to be fetched."""
        expect(self._items, self._order[numbers])


def in_runs(items: Sequence[Item]) -> bool:
    """True if neighbours share a label far more often than in a random order."""
    if len(items) < _LEAST:
        return False
    count = min(len(items) - 1, _MOST_PAIRS)
    first = np.linspace(0, len(items) - 2, count).astype(np.int64)
    one, other = _labels(items, first), _labels(items, first + 1)
    if one is None or other is None:
        return False
    _, counts = np.unique(np.concatenate([one, other]), return_counts=True)
    parts = counts / counts.sum()
    expected = (1 - (parts**2).sum()) * len(items) / (len(items) - 1)
    return bool((one != other).mean() < _RUNS * expected)


def _labels(items: Sequence[Item], numbers: NDArray[np.int64]) -> NDArray[Any] | None:
    """Return one label each; None if items have several, or labels aren't known yet."""
    known = getattr(items, "labels_of", None)
    if known is not None:
        try:
            labels = known(numbers)
        except Exception:  # Damage is reported when the sample is packed.
            return None
        return None if labels is None else np.asarray(labels)
    found = [items[number].label for number in numbers.tolist()]
    if any(np.ndim(label) for label in found):
        return None
    return np.array(found)
