"""Batchify of samples like ``gluon.data.DataLoader``, and flattening of batches into arrays.

MXNet's rules: NDArrays are stacked. Tuples (also named ones) are split into members, and become
lists. Anything else goes through ``np.asarray``, all samples of the batch at once, and keeps the
resulting dtype.
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
    """Placeholder for array ``number`` in a skeleton (treedef).

    ``kind`` is the type that the user gets: ``"numpy"``, MXNet's ``"nd"`` or ``"np"``, or
    ``"active"`` for the one of the latter two that matches the active semantics.
    """

    number: int
    kind: str


class Skeleton:
    """Structure of a batch without its arrays (treedef).

    Args:
        tree: Lists, tuples and dicts around ``Leaf`` objects and other values.
        flat: Number of NDArrays if the batch is a flat list of them, as nearly all are; else 0.
    """

    def __init__(self, tree: Any, flat: int = 0) -> None:
        self._tree = tree
        self._flat = flat

    @property
    def never_changes(self) -> bool:
        """True if the structure holds nothing but placeholders."""
        return self._flat > 0

    def __reduce__(self) -> Any:
        return Skeleton, (None if self._flat else self._tree, self._flat)

    def built(self, arrays: Sequence[Any], numpy_semantics: bool) -> Any:
        """Return the batch, with arrays converted to the types that the user gets."""
        if self._flat:
            return [
                as_ndarray(each, numpy_semantics) if type(each) is np.ndarray else each
                for each in arrays
            ]

        def array(value: Any) -> Any:
            if type(value) is not Leaf:
                return value
            own = arrays[value.number]
            if value.kind == "numpy" or not isinstance(own, np.ndarray):
                return own
            return as_ndarray(
                own, value.kind == "np" or (value.kind == "active" and numpy_semantics)
            )

        return _map_members(array, self._tree)

    def of(self, arrays: Sequence[Any]) -> Any:
        """Return the batch, with the arrays as they are."""
        if self._flat:
            return list(arrays)

        def array(value: Any) -> Any:
            return arrays[value.number] if type(value) is Leaf else value

        return _map_members(array, self._tree)


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
        columns: A batched array or a list of items, for each member of a sample.
        single: True if samples are no tuples; the batch is then one array.
        remote: True to return NumPy arrays in memory from ``allocate``; else MXNet stacks NDArrays.
        allocate: Allocates memory.
        keys: Keys of the samples, for errors.
        remedy: Returns advice for a sample's shape, for errors; None for general advice.

    Returns:
        The arrays, NumPy's or MXNet's, and the structure around them.

    Raises:
        TypeError: MXNet has no type for the items.
        ValueError: Items have different shapes.
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
    # MXNet would find unequal shapes only while computing, without naming the sample.
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
    # Stacking is cheaper than checking each item's shape and dtype and copying it into its row.
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
    """Flatten the result of a user's batchify function into arrays.

    Args:
        make: Calls the function.
        remote: True in a worker process, which copies NumPy arrays into a slot. Otherwise NumPy
            arrays are copied if the user keeps a reference. NDArrays are always copied, as the
            owner of their memory is unknown.
        numpy_as: ``Leaf.kind`` of NumPy arrays.

    Returns:
        The arrays, and the structure around them.
    """
    leaves: list[Any] = []

    def take(value: Any) -> Any:
        nd = isinstance(value, mx.nd.NDArray)
        if remote and isinstance(value, mx.nd.sparse.BaseSparseNDArray):
            return value  # Can be pickled as it is.
        sendable = type(value) is np.ndarray and not value.dtype.hasobject
        if numpy_as == "active" and isinstance(value, np.ndarray) and not _known(value):
            return value
        if not (nd or sendable or (isinstance(value, np.ndarray) and not remote)):
            return value
        kind = ("np" if isinstance(value, mx.np.ndarray) else "nd") if nd else numpy_as
        leaves.append(value.asnumpy() if nd and remote else value)
        return Leaf(len(leaves) - 1, kind)

    # Don't name the structure: its containers must be gone when references are counted.
    tree = _map_members(take, make())
    if remote:
        return leaves, Skeleton(tree)
    detach(leaves, np.empty)
    for leaf in leaves:
        if isinstance(leaf, mx.nd.NDArray):
            leaf.wait_to_read()  # What it is copied from may share memory with a NumPy array.
    return leaves, Skeleton(tree)


def is_nd(value: Any) -> bool:
    """True for an array of MXNet."""
    return isinstance(value, mx.nd.NDArray)


def as_active(batch: Any, numpy_semantics: bool) -> Any:
    """Convert the NumPy arrays of a batch to MXNet's. Nothing else may write to their memory."""

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
