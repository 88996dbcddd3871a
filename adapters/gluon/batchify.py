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
from adapters.ownership import Allocate, detach

Remedy = Callable[[tuple[int, ...]], str]

_REMEDY = "pad, crop or resize in the transform"
_REMEDY_OF_ARRAYS = "pad, crop, resize or cast in the transform"


class Leaf(NamedTuple):
    """Where array ``number`` stands in a skeleton.

    The user gets it as ``"numpy"``'s, as an ``"nd"`` or ``"np"`` array of MXNet's, or as that of
    these two whose semantics are ``"active"``.
    """

    number: int
    kind: str


class Skeleton:
    """The structure of a batch without its arrays.

    Args:
        tree: Lists, tuples and dicts around ``Leaf``s and whatever else a batchify gave.
        flat: A list of so many NDArrays, which is what nearly all batches are.
    """

    def __init__(self, tree: Any, flat: int = 0) -> None:
        self._tree = tree
        self._flat = flat

    @property
    def never_changes(self) -> bool:
        """Whether there is nothing in it but numbers."""
        return self._flat > 0

    def __reduce__(self) -> Any:
        return Skeleton, (None if self._flat else self._tree, self._flat)

    def built(self, arrays: Sequence[Any], numpy_semantics: bool) -> Any:
        """The batch, of these arrays."""
        if self._flat:
            return [
                as_ndarray(each, numpy_semantics) if type(each) is np.ndarray else each
                for each in arrays
            ]

        def array(value: Any) -> Any:
            return self._leaf(arrays, value, numpy_semantics) if type(value) is Leaf else value

        return _map_members(array, self._tree)

    def of(self, arrays: Sequence[Any]) -> Any:
        """The batch with these arrays in it as they are."""
        if self._flat:
            return list(arrays)

        def array(value: Any) -> Any:
            return arrays[value.number] if type(value) is Leaf else value

        return _map_members(array, self._tree)

    @staticmethod
    def _leaf(arrays: Sequence[Any], leaf: Leaf, numpy_semantics: bool) -> Any:
        array = arrays[leaf.number]
        if leaf.kind == "numpy" or not isinstance(array, np.ndarray):
            return array
        return as_ndarray(array, leaf.kind == "np" or (leaf.kind == "active" and numpy_semantics))


def batchify_default(
    columns: list[Any],
    single: bool,
    remote: bool,
    allocate: Allocate,
    keys: Sequence[Any],
    remedy: Remedy | None = None,
) -> tuple[list[Any], Skeleton]:
    """Batch columns of samples by MXNet's rules.

    Args:
        columns: An array that is a batch already, or a list of items, per member of a sample.
        single: Samples are no tuples; the batch is its one array then.
        remote: Leave NumPy arrays in memory from ``allocate``; else NDArrays are stacked by MXNet.
        allocate: Gives memory.
        keys: What the samples are called, for errors.
        remedy: What makes shapes like this one equal, for errors; else what every data set can do.

    Returns:
        The arrays, NumPy's or MXNet's, and the structure around them.

    Raises:
        TypeError: Of items that MXNet has no type for.
        ValueError: Items of different shapes.
    """
    if not single and all(type(column) is np.ndarray for column in columns):
        for column in columns:
            _check_dtype(column)
        return columns, _flat(len(columns))
    leaves: list[Any] = []

    def stack(items: list[Any]) -> Any:
        return _stack(items, remote, allocate, keys, remedy)

    tree = [_batched(column, stack, leaves) for column in columns]
    if single:
        return leaves, Skeleton(tree[0])
    if all(type(member) is Leaf for member in tree):
        return leaves, _flat(len(tree))
    return leaves, Skeleton(tree)


def _batched(items: Any, stack: Callable[[list[Any]], Any], leaves: list[Any]) -> Any:
    if isinstance(items, list) and isinstance(items[0], tuple):
        return [_batched(list(members), stack, leaves) for members in zip(*items)]
    leaves.append(items if isinstance(items, np.ndarray) else stack(items))
    _check_dtype(leaves[-1])
    return Leaf(len(leaves) - 1, "active")


def _stack(
    items: list[Any], remote: bool, allocate: Allocate, keys: Sequence[Any], remedy: Remedy | None
) -> Any:
    first = items[0]
    if not isinstance(first, mx.nd.NDArray):
        return _stack_numpy(items, allocate, keys, remedy)
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
                    f"{_outline(item)}, sample {keys[0]!r} is {_outline(first)}; "
                    f"{remedy(np.shape(item)) if remedy else _REMEDY_OF_ARRAYS}"
                ) from problem
        assert problem is not None
        raise problem
    if not remote:
        return stacked
    # Cheaper than to look at each item's shape and dtype and copy it into its row.
    rows = allocate(stacked.shape, np.dtype(stacked.dtype))
    copy_into(rows, stacked)
    return rows


def _stack_numpy(
    items: list[Any], allocate: Allocate, keys: Sequence[Any], remedy: Remedy | None
) -> NDArray[Any]:
    first = items[0]
    if isinstance(first, dict):
        raise TypeError(
            f"samples must be arrays, numbers or tuples of them, got a dict of {list(first)}: make "
            'them tuples, by outputs=("image", "label") of open_records, transform= of packed or a '
            "transform of the data set, or give a batchify_fn"
        )
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
                    f"{np.shape(item)}, sample {keys[0]!r} has {np.shape(first)}; "
                    f"{remedy(np.shape(item)) if remedy else _REMEDY}"
                ) from error
        raise


def _check_dtype(leaf: Any) -> None:
    if isinstance(leaf, np.ndarray) and leaf.dtype.type not in DTYPES:
        names = ", ".join(sorted(np.dtype(dtype).name for dtype in DTYPES))
        raise TypeError(
            f"samples must be of a dtype that MXNet has, got {leaf.dtype}: use one of {names}, or "
            "a batchify_fn of your own"
        )


def packed(
    make: Callable[[], Any],
    remote: bool,
    numpy_as: str = "numpy",
) -> tuple[list[Any], Skeleton]:
    """Take the arrays out of what a batchify of the user's own gives.

    Args:
        make: Calls it.
        remote: In a worker process, which copies NumPy arrays into a slot; else they are copied
            where the user keeps them. NDArrays always are: nobody can tell whose memory they lie
            in.
        numpy_as: The kind of ``Leaf`` that NumPy's arrays are.

    Returns:
        The arrays, and the structure around them.
    """
    leaves: list[Any] = []

    def add(array: NDArray[Any], kind: str) -> Leaf:
        leaves.append(array)
        return Leaf(len(leaves) - 1, kind)

    def take(value: Any) -> Any:
        nd = isinstance(value, mx.nd.NDArray)
        if remote and isinstance(value, mx.nd.sparse.BaseSparseNDArray):
            return value  # Which pickles by itself.
        sendable = type(value) is np.ndarray and not value.dtype.hasobject
        if numpy_as == "active" and isinstance(value, np.ndarray) and not _known(value):
            return value
        if not (nd or sendable or (isinstance(value, np.ndarray) and not remote)):
            return value
        kind = ("np" if isinstance(value, mx.np.ndarray) else "nd") if nd else numpy_as
        return add(value.asnumpy() if nd and remote else value, kind)

    # No name for the structure: its containers must be gone when references are counted.
    tree = _map_members(take, make())
    if remote:
        return leaves, Skeleton(tree)
    for place in range(len(leaves)):
        if isinstance(leaves[place], mx.nd.NDArray):
            leaves[place] = leaves[place].copy()
            leaves[place].wait_to_read()  # What it lies in may be a NumPy array of the user's.
    detach(leaves, np.empty)
    return leaves, Skeleton(tree)


def is_nd(value: Any) -> bool:
    """Whether it is an array of MXNet's."""
    return isinstance(value, mx.nd.NDArray)


def as_active(batch: Any, numpy_semantics: bool) -> Any:
    """The batch with MXNet's arrays in the places of NumPy's, which nobody else may write to."""

    def convert(value: Any) -> Any:
        arrays = isinstance(value, np.ndarray) and _known(value)
        return as_ndarray(value, numpy_semantics) if arrays else value

    return _map_members(convert, batch)


def _known(array: NDArray[Any]) -> bool:
    return array.dtype.type in DTYPES


_FLAT: dict[int, Skeleton] = {}


def _flat(count: int) -> Skeleton:
    if count not in _FLAT:
        _FLAT[count] = Skeleton([Leaf(number, "active") for number in range(count)], count)
    return _FLAT[count]


def _map_members(function: Callable[[Any], Any], tree: Any) -> Any:
    if type(tree) in (list, tuple):
        return type(tree)(_map_members(function, member) for member in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields") and type(tree) is not Leaf:
        return type(tree)(*(_map_members(function, member) for member in tree))
    if type(tree) is dict:
        return {name: _map_members(function, member) for name, member in tree.items()}
    return function(tree)


def _outline(item: Any) -> str:
    if isinstance(item, mx.nd.NDArray):
        return f"{np.dtype(item.dtype).name}{item.shape}"
    return type(item).__name__
