"""A batch on its way through the steps of a recipe: rows of arrays, or samples one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from adapters.gluon.ndarrays import as_ndarray, as_numpy, map_arrays
from adapters.gluon.recipe import Column


@dataclass
class Members:
    """The members of a batch's samples, each a column of rows or a list of items.

    Args:
        first: The samples, or the first members of the tuples that they are.
        rest: The other members.
        single: Samples are no tuples.
    """

    first: Column | list[Any]
    rest: list[Column | list[Any]]
    single: bool

    @property
    def columns(self) -> list[Column | list[Any]]:
        """Of all members."""
        return [self.first, *self.rest]

    def compute(self) -> None:
        """Have MXNet compute what it has put off: what fails there fails here."""
        for column in self.columns:
            if isinstance(column, list):
                compute(column)

    def samples(self) -> list[Any]:
        """As the data set would give them."""
        columns = [items_of(column) for column in self.columns]
        return columns[0] if self.single else list(zip(*columns))


def compute(samples: list[Any]) -> None:
    """Wait for the NDArrays in samples."""
    map_arrays(lambda array: array.wait_to_read(), samples, lists=True)


def items_of(column: Column | list[Any]) -> list[Any]:
    """The rows of a column as the user knows them."""
    if isinstance(column, list):
        return column
    if column.kind is np.ndarray:
        return list(column.array)
    if column.kind is object:
        return column.array.tolist()  # type: ignore[no-any-return]
    batch = as_ndarray(column.array, column.kind is mx.np.ndarray)
    return [batch[row] for row in range(len(column.array))]


def stacked(column: Column | list[Any]) -> tuple[NDArray[Any] | None, type]:
    """The rows of a column as one array, and what they are; None where they differ in shape."""
    if isinstance(column, Column):
        own = column.kind in (np.ndarray, object)
        return (None if own else column.array), column.kind
    first = column[0]
    if not isinstance(first, mx.nd.NDArray) or first.stype != "default":
        return None, type(first)
    for item in column:
        if type(item) is not type(first) or item.shape != first.shape or item.dtype != first.dtype:
            return None, type(first)
    rows = np.empty((len(column), *first.shape), first.dtype)
    for row, item in zip(rows, column):
        np.copyto(row, as_numpy(item))
    return rows, type(first)


def split(results: list[Any], keys: Sequence[Any]) -> Members:
    """Samples into columns, as MXNet's own batchify would."""
    if not results:
        raise IndexError("a batch must have a sample: the sampler gave none")
    if not isinstance(results[0], tuple):
        return Members(results, [], True)
    length = len(results[0])
    for result, key in zip(results, keys):
        if not isinstance(result, tuple) or len(result) != length:
            size = len(result) if isinstance(result, tuple) else type(result).__name__
            raise ValueError(
                f"samples of a batch must be tuples of one length: sample {key!r} has {size}, "
                f"sample {keys[0]!r} has {length}"
            )
    columns = [list(members) for members in zip(*results)]
    if not columns:
        raise ValueError(f"samples must have members: sample {keys[0]!r} is an empty tuple")
    return Members(columns[0], list(columns[1:]), False)
