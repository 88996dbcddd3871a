"""Batchify of samples like ``gluon.data.DataLoader``, and flattening of batches into arrays.

MXNet's rules: NDArrays are stacked. Tuples (also named ones) are split into members, and become
lists. Anything else goes through ``np.asarray``, all samples of the batch at once, and keeps the
resulting dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.util import is_np_array

from adapters.gluon.ndarrays import DTYPES, as_ndarray, copy_into, map_members
from adapters.ownership import Allocate, detach

Remedy = Callable[[tuple[int, ...]], str]

_REMEDY = "pad, crop, resize or cast in the transform"


@dataclass(slots=True)
class Leaf:
    """Placeholder for array ``number`` in a treedef.

    ``kind`` is the type that the user gets: ``"numpy"``, MXNet's ``"nd"`` or ``"np"``, or
    ``"active"`` for the one of the latter two that matches the active semantics.
    """

    number: int
    kind: str


@dataclass(slots=True)
class Treedef:
    """Structure of a batch without its arrays (treedef): containers around leaves and values."""

    tree: Any
    flat: bool = False
    """True if the batch is a flat list of NDArrays, as nearly all are, and has no ``tree``."""

    def built(self, arrays: Sequence[Any], numpy_semantics: bool | None) -> Any:
        """Return the batch, with arrays of the types that the user gets; None: as they are."""

        def converted(array: Any, kind: str) -> Any:
            if numpy_semantics is None or kind == "numpy" or not isinstance(array, np.ndarray):
                return array
            return as_ndarray(array, numpy_semantics if kind == "active" else kind == "np")

        if self.flat:
            return [converted(array, "active") for array in arrays]
        return map_members(
            lambda leaf: converted(arrays[leaf.number], leaf.kind) if type(leaf) is Leaf else leaf,
            self.tree,
        )


_FLAT = Treedef(None, flat=True)


def batchify_default(
    columns: list[Any],
    single: bool,
    remote: bool,
    allocate: Allocate,
    keys: Sequence[Any],
    remedy: Remedy | None = None,
) -> tuple[list[Any], Treedef]:
    """Batch columns of samples by MXNet's rules: return the arrays and the structure around them.

    A column is a batched array or a list of items; with ``single``, samples are no tuples, and the
    batch is one array. ``remote`` asks for NumPy arrays in memory from ``allocate``; else MXNet
    stacks NDArrays. ``keys`` and ``remedy(shape)`` are for errors.
    """
    if not single and all(type(column) is np.ndarray for column in columns):  # Takes 1 of 4 us.
        return columns, _FLAT
    leaves: list[Any] = []
    try:
        # A nested function that calls itself would keep the arrays until a garbage collection.
        tree = [_batched(items, leaves, remote, allocate) for items in columns]
    except Exception:
        for items in columns:
            _check_alike(items, keys, remedy)
        raise
    if single:
        return leaves, Treedef(tree[0])
    flat = len(leaves) == len(tree) and list not in map(type, tree)
    return leaves, _FLAT if flat else Treedef(tree)


def _batched(items: Any, leaves: list[Any], remote: bool, allocate: Allocate) -> Any:
    if isinstance(items, list):
        if isinstance(items[0], tuple):
            return [_batched(list(each), leaves, remote, allocate) for each in zip(*items)]
        items = _stacked(items, remote, allocate)
    leaves.append(items)
    return Leaf(len(leaves) - 1, "active")


def _stacked(items: list[Any], remote: bool, allocate: Allocate) -> Any:
    first = items[0]
    if isinstance(first, mx.nd.NDArray):
        # MXNet would find unequal shapes only while computing, without naming the sample.
        shape = first.shape
        if not all(isinstance(item, mx.nd.NDArray) and item.shape == shape for item in items):
            raise ValueError("NDArrays must have equal shapes to be stacked")
        if remote and first.stype == "default" and len({(type(i), i.dtype) for i in items}) == 1:
            # Stacking takes 5 to 30 times as long for images of 224x224, and 0.8 times for numbers.
            rows = allocate((len(items), *shape), np.dtype(first.dtype))
            for row, item in enumerate(items):
                copy_into(rows[row : row + 1], item)
            return rows
        stacked = mx.np.stack(items) if is_np_array() else mx.nd.stack(*items)
        return stacked.asnumpy() if remote else stacked
    if isinstance(first, Mapping):
        raise TypeError(
            f"samples must be arrays, numbers or tuples of them, got a dict of {list(first)}: make "
            'them tuples, by outputs=("image", "label") of open_records, transform= of packed or a '
            "transform of the data set, or give a batchify_fn"
        )
    if type(first) is np.ndarray and not first.dtype.hasobject:
        shape, dtype = first.shape, first.dtype
        if all(type(i) is np.ndarray and i.shape == shape and i.dtype == dtype for i in items):
            rows = allocate((len(items), *shape), dtype)
            for row, item in enumerate(items):
                rows[row] = item
            return rows
    return np.asarray(items)


def _check_alike(items: Any, keys: Sequence[Any], remedy: Remedy | None) -> None:
    """Raise the ``ValueError`` that names the first item of a list which differs from item 0."""
    for item, key in zip(items if isinstance(items, list) else (), keys):
        if _outline(item) != _outline(items[0]):
            raise ValueError(
                f"samples of a batch must have equal shapes and dtypes: sample {key!r} is "
                f"{_outline(item)}, sample {keys[0]!r} is {_outline(items[0])}; "
                f"{remedy(getattr(item, 'shape', ())) if remedy else _REMEDY}"
            )


def _outline(item: Any) -> str:
    if isinstance(item, mx.nd.NDArray):
        return f"{np.dtype(item.dtype).name} {item.shape}"
    if isinstance(item, tuple):
        return f"({', '.join(map(_outline, item))})"
    return f"of shape {np.shape(item)}"


def packed(
    make: Callable[[], Any], remote: bool, numpy_as: str = "numpy"
) -> tuple[list[Any], Treedef]:
    """Flatten what ``make`` returns, a user's batch, into arrays and the structure around them.

    In a worker process (``remote``), NumPy arrays are copied into a slot. Elsewhere, they are
    copied if the user keeps a reference. NDArrays are always copied, as the owner of their memory
    is unknown. ``numpy_as`` is the ``Leaf.kind`` of NumPy arrays.
    """
    leaves: list[Any] = []

    def take(value: Any) -> Any:
        if isinstance(value, mx.nd.NDArray):
            dense = value.stype == "default"
            if remote and not dense:
                return value  # Can be pickled as it is.
            kind = "np" if isinstance(value, mx.np.ndarray) else "nd"
            # For arrays on the CPU, this takes a third of the time of ``NDArray.copy``.
            copied = dense and value.ctx.device_type != "gpu" and value.dtype in DTYPES
            copied |= remote
            leaves.append(value.asnumpy() if copied else value)
        else:
            known = numpy_as != "active" or is_known(value)
            in_slot = type(value) is np.ndarray and not value.dtype.hasobject
            if not (isinstance(value, np.ndarray) and known and (in_slot or not remote)):
                return value
            kind = numpy_as
            leaves.append(value)
        return Leaf(len(leaves) - 1, kind)

    # Don't name the structure: its containers must be gone when references are counted.
    tree = map_members(take, make())
    if not remote:
        detach(leaves, np.empty)
        for leaf in leaves:
            if isinstance(leaf, mx.nd.NDArray):
                leaf.wait_to_read()  # What it is copied from may share memory with a NumPy array.
    return leaves, Treedef(tree)


def is_known(value: Any) -> bool:
    """True for a NumPy array of a dtype that MXNet has."""
    return isinstance(value, np.ndarray) and value.dtype.type in DTYPES
