"""Arrays of several sources as one, in which a batch is gathered at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.rows import Stack
from adapters.ownership import Allocate
from adapters.sources.source import Source
from adapters.sources.stored import Stored
from adapters.structure import flatten, unflatten

# Where a row lies takes 8 bytes for each array: 32 MiB.
_MOST_ROWS = 1 << 22


class StackedArrays(Source):
    """What ``stacked`` makes: for whoever gathers batches.

    Args:
        columns: All sources' first arrays, their second ones, ..., numbered through.
        skeleton: The structure of a sample.
    """

    gathers = True

    def __init__(self, columns: Sequence[Stack], skeleton: Any) -> None:
        self._columns = list(columns)
        self._skeleton = skeleton

    def __len__(self) -> int:
        return len(self._columns[0])

    def gather(self, numbers: NDArray[np.int64], allocate: Allocate) -> Any:
        """The rows of these numbers as one batch, in memory from ``allocate``."""
        gathered = []
        for column in self._columns:
            rows = allocate((len(numbers), *column.shape), column.dtype)
            column.take(numbers, rows)
            gathered.append(rows)
        return unflatten(self._skeleton, gathered)

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """The sample of this number, a copy."""
        columns, skeleton = flatten(self.gather(np.array([number]), np.empty))
        return unflatten(skeleton, [rows[0] for rows in columns])


def stacked(
    sources: Sequence[Sequence[NDArray[Any] | Stored]], skeleton: Any
) -> StackedArrays | None:
    """Several sources' arrays as one; None where the kernel can't gather them, or they are large.

    Args:
        sources: The arrays of each, which have the others' shapes and dtypes but for the rows.
        skeleton: The structure of a sample.
    """
    if sum(len(columns[0]) for columns in sources) > _MOST_ROWS:
        return None
    columns = [Stack.of(arrays) for arrays in zip(*sources)]
    known = [column for column in columns if column is not None]
    return StackedArrays(known, skeleton) if len(known) == len(columns) else None
