"""Arrays of several sources as one, from which a batch is gathered at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images import kernel
from adapters.images.rows import MOST_ARRAYS, can_be_taken, parts_of, take
from adapters.ownership import Allocate
from adapters.sources.source import Source
from adapters.sources.stored import Stored
from adapters.structure import flatten, unflatten


class StackedArrays(Source):
    """Joined arrays of several sources, only for gathering; made by ``stacked``.

    Args:
        columns: For each member of a sample, the arrays of all sources, numbered through.
        skeleton: Structure of a sample.
    """

    gathers = True

    def __init__(self, columns: Sequence[Sequence[NDArray[Any]]], skeleton: Any) -> None:
        self._columns = [list(map(np.asarray, arrays)) for arrays in columns]
        self._forms = [(arrays[0].shape[1:], arrays[0].dtype) for arrays in self._columns]
        self._lengths = list(map(len, self._columns[0]))
        self._arrays = [array for arrays in self._columns for array in arrays]
        self._skeleton = skeleton
        self._place()

    def _place(self) -> None:
        """Find where the rows lie in memory."""
        now = list(map(len, self._arrays))
        if any(min(map(len, each)) < n for *each, n in zip(*self._columns, self._lengths)):
            raise ValueError(
                f"arrays of sources must keep their {self._lengths} rows, got {now} by now: make "
                "other sources of what was resized"
            )
        self._now = now
        self._memory = tuple(parts_of(arrays, self._lengths) for arrays in self._columns)

    def __len__(self) -> int:
        return sum(self._lengths)

    def gather(self, numbers: NDArray[np.int64], allocate: Allocate) -> Any:
        """Gather these rows as one batch, in memory from ``allocate``.

        Raises:
            IndexError: No such row.
            ValueError: An array was shortened in place.
        """
        if list(map(len, self._arrays)) != self._now:
            self._place()  # An array was resized in place, and may have moved.
        count = len(numbers)
        rows = [allocate((count, *shape), dtype) for shape, dtype in self._forms]
        take(self._memory, numbers, tuple(rows))
        return unflatten(self._skeleton, rows)

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return a copy of one sample."""
        columns, skeleton = flatten(self.gather(np.array([number]), np.empty))
        return unflatten(skeleton, [rows[0] for rows in columns])


def stacked(
    sources: Sequence[Sequence[NDArray[Any] | Stored]], skeleton: Any
) -> StackedArrays | None:
    """Join the arrays of several sources; None if the kernel can't take their rows.

    Args:
        sources: Arrays of each source, alike in shape and dtype except for the number of rows.
        skeleton: Structure of a sample.
    """
    if kernel.load_untried() is None or len(sources[0]) > MOST_ARRAYS:
        return None
    columns = []
    for column in zip(*sources):
        arrays = [array for array in column if isinstance(array, np.ndarray)]
        # Rows of no bytes have no address.
        if len(arrays) < len(column) or 0 in arrays[0].shape[1:]:
            return None
        kinds = {(array.dtype, array.shape[1:]) for array in arrays}
        if len(kinds) > 1 or not all(map(can_be_taken, arrays)):
            return None
        columns.append(arrays)
    return StackedArrays(columns, skeleton)
