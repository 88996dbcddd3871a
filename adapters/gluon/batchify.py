"""Samples into a batch, as ``gluon.data.DataLoader`` does it, and batches into flat arrays.

MXNet's rules: NDArrays are stacked; tuples (named ones too) are taken apart and come out as lists;
anything else goes through ``np.asarray``, all samples of the batch at once, and keeps that dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet.util import is_np_array
from numpy.typing import NDArray

from adapters.gluon.ndarrays import DTYPES, as_ndarray, copy_into

Allocate = Callable[[tuple[int, ...], "np.dtype[Any]"], NDArray[Any]]


class Leaf(NamedTuple):
    """Where array ``number`` stands in a skeleton; ``nd`` if the user gets it as an NDArray."""

    number: int
    nd: bool


class Skeleton:
    """The structure of a batch without its arrays.

    Args:
        tree: Lists, tuples and dicts around ``Leaf``s and whatever else a batchify gave.
        flat: A list of so many NDArrays, which is what nearly all batches are.
    """

    def __init__(self, tree: Any, flat: int = 0) -> None:
        self._tree = tree
        self._flat = flat

    def __reduce__(self) -> Any:
        return Skeleton, (None if self._flat else self._tree, self._flat)

    def built(self, arrays: Sequence[Any], numpy_semantics: bool) -> Any:
        """The batch, of these arrays."""
        if self._flat:
            return [
                as_ndarray(each, numpy_semantics) if type(each) is np.ndarray else each
                for each in arrays
            ]
        return _map_leaves(lambda leaf: self._leaf(arrays, leaf, numpy_semantics), self._tree)

    @staticmethod
    def _leaf(arrays: Sequence[Any], leaf: Leaf, numpy_semantics: bool) -> Any:
        array = arrays[leaf.number]
        if leaf.nd and isinstance(array, np.ndarray):
            return as_ndarray(array, numpy_semantics)
        return array


def batchify_default(
    columns: list[Any], single: bool, remote: bool, allocate: Allocate, keys: Sequence[Any]
) -> tuple[list[Any], Skeleton]:
    """Batch columns of samples by MXNet's rules.

    Args:
        columns: An array that is a batch already, or a list of items, per member of a sample.
        single: Samples are no tuples; the batch is its one array then.
        remote: Leave NumPy arrays in memory from ``allocate``; else NDArrays are stacked by MXNet.
        allocate: Gives memory.
        keys: What the samples are called, for errors.

    Returns:
        The arrays, NumPy's or MXNet's, and the structure around them.

    Raises:
        TypeError: Of items that MXNet has no type for.
        ValueError: Items of different shapes.
    """
    leaves: list[Any] = []
    tree = [_batched(column, remote, allocate, keys, leaves) for column in columns]
    if single:
        return leaves, Skeleton(tree[0])
    if all(type(member) is Leaf for member in tree):
        return leaves, _flat(len(tree))
    return leaves, Skeleton(tree)


def _batched(
    items: Any, remote: bool, allocate: Allocate, keys: Sequence[Any], leaves: list[Any]
) -> Any:
    if isinstance(items, list) and isinstance(items[0], tuple):
        return [_batched(list(members), remote, allocate, keys, leaves) for members in zip(*items)]
    leaves.append(items if isinstance(items, np.ndarray) else _stack(items, remote, allocate, keys))
    _check_dtype(leaves[-1])
    return Leaf(len(leaves) - 1, True)


def _stack(items: list[Any], remote: bool, allocate: Allocate, keys: Sequence[Any]) -> Any:
    first = items[0]
    if not isinstance(first, mx.nd.NDArray):
        return _stack_numpy(items, allocate, keys)
    # MXNet would find shapes that differ when it computes, which nobody could tell the sample of.
    problem = None
    alike = all(issubclass(kind, mx.nd.NDArray) for kind in set(map(type, items)))
    alike = alike and len({item.shape for item in items}) == 1
    try:
        stacked = (mx.np.stack(items) if is_np_array() else mx.nd.stack(*items)) if alike else None
    except Exception as error:
        stacked, problem = None, error
    if stacked is None:
        for item, key in zip(items, keys):
            if _outline(item) != _outline(first):
                raise ValueError(
                    f"samples of a batch must have equal shapes and dtypes: sample {key!r} is "
                    f"{_outline(item)}, sample {keys[0]!r} is {_outline(first)}; pad, crop, resize "
                    "or cast in the transform"
                ) from problem
        assert problem is not None
        raise problem
    if not remote:
        return stacked
    # Cheaper than to look at each item's shape and dtype and copy it into its row.
    rows = allocate(stacked.shape, np.dtype(stacked.dtype))
    copy_into(rows, stacked)
    return rows


def _stack_numpy(items: list[Any], allocate: Allocate, keys: Sequence[Any]) -> NDArray[Any]:
    first = items[0]
    if (
        type(first) is np.ndarray
        and not first.dtype.hasobject
        and all(
            type(item) is np.ndarray and item.shape == first.shape and item.dtype == first.dtype
            for item in items
        )
    ):
        rows = allocate((len(items), *first.shape), first.dtype)
        for row, item in enumerate(items):
            rows[row] = item
        return rows
    try:
        return np.asarray(items)
    except ValueError as error:
        for item, key in zip(items, keys):
            if np.shape(item) != np.shape(first):
                raise ValueError(
                    f"samples of a batch must have equal shapes: sample {key!r} has shape "
                    f"{np.shape(item)}, sample {keys[0]!r} has {np.shape(first)}; pad, crop or "
                    "resize in the transform"
                ) from error
        raise


def _check_dtype(leaf: Any) -> None:
    if isinstance(leaf, np.ndarray) and leaf.dtype.type not in DTYPES:
        names = ", ".join(sorted(np.dtype(dtype).name for dtype in DTYPES))
        raise TypeError(
            f"samples must be of a dtype that MXNet has, got {leaf.dtype}: use one of {names}, or "
            "a batchify_fn of your own"
        )


def packed(batch: Any, remote: bool) -> tuple[list[Any], Skeleton]:
    """What a batchify of the user's own gave; in a worker process, with its arrays taken out."""
    if not remote:
        return [batch], Skeleton(Leaf(0, False))
    leaves: list[Any] = []

    def take(value: Any) -> Any:
        if isinstance(value, mx.nd.NDArray):
            leaves.append(value.asnumpy())
            return Leaf(len(leaves) - 1, True)
        if type(value) is np.ndarray and not value.dtype.hasobject:
            leaves.append(value)
            return Leaf(len(leaves) - 1, False)
        return value

    return leaves, Skeleton(_map_members(take, batch))


_FLAT: dict[int, Skeleton] = {}


def _flat(count: int) -> Skeleton:
    if count not in _FLAT:
        _FLAT[count] = Skeleton([Leaf(number, True) for number in range(count)], count)
    return _FLAT[count]


def _map_members(function: Callable[[Any], Any], tree: Any) -> Any:
    if type(tree) in (list, tuple):
        return type(tree)(_map_members(function, member) for member in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map_members(function, member) for member in tree))
    if type(tree) is dict:
        return {name: _map_members(function, member) for name, member in tree.items()}
    return function(tree)


def _map_leaves(function: Callable[[Leaf], Any], tree: Any) -> Any:
    if type(tree) is Leaf:
        return function(tree)
    if type(tree) in (list, tuple):
        return type(tree)(_map_leaves(function, member) for member in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map_leaves(function, member) for member in tree))
    if type(tree) is dict:
        return {name: _map_leaves(function, member) for name, member in tree.items()}
    return tree


def _outline(item: Any) -> str:
    if isinstance(item, mx.nd.NDArray):
        return f"{np.dtype(item.dtype).name}{item.shape}"
    return type(item).__name__
