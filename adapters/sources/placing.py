"""Writing of one source's samples into some rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.generators import RngOf
from adapters.sources.forms import check_exact
from adapters.sources.source import Leaf, Source
from adapters.structure import flatten


def gather_places(
    source: Source,
    numbers: NDArray[np.int64],
    places: NDArray[np.int64],
    rows: Sequence[NDArray[Any]],
) -> None:
    """Gather samples into these rows of a batch."""
    if source.gather_into(numbers, places, rows):
        return
    leaves, _ = flatten(source.gather(numbers, np.empty))
    for column, part in zip(rows, leaves):
        check_exact(part, column.dtype)
        column[places] = part


def fill_places(
    source: Source,
    numbers: NDArray[np.int64],
    rng_of: RngOf | None,
    places: NDArray[np.int64],
    rows: Sequence[NDArray[Any]],
    leaves: tuple[Leaf, ...] | None,
) -> list[tuple[int, Exception]]:
    """Fill samples into these rows of a batch, which are in order; see ``Source.fill``.

    Args:
        source: Source of the samples.
        numbers: Sample numbers.
        rng_of: See ``fill``; takes places among ``numbers``.
        places: Rows of the batch.
        rows: Arrays of the batch.
        leaves: Leaves of the source, if they differ from the batch's.
    """
    first, last = int(places[0]), int(places[-1])
    if leaves is None and last - first == len(places) - 1:
        failures = source.fill(numbers, rng_of, [column[first : last + 1] for column in rows])
        return [(first + row, error) for row, error in failures]
    types = leaves or [(column.shape[1:], column.dtype) for column in rows]
    into = [np.empty((len(places), *shape), dtype) for shape, dtype in types]
    failures = source.fill(numbers, rng_of, into)
    right = np.ones(len(places), bool)
    right[[row for row, _ in failures]] = False
    for column, part in zip(rows, into):
        check_exact(part[right], column.dtype)
        column[places] = part
    return [(int(places[row]), error) for row, error in failures]
