"""Collate samples into a batch: each sample is one row of the batch's arrays, written once.

The first sample of a batch determines its memory layout. Each further sample is written into its
row as it comes, so no list of samples is kept and nothing is stacked afterwards. Numbers of
different dtypes in one place are promoted as ``np.stack`` does; strings, bytes and other objects
become an object array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import note
from adapters.ownership import Allocate, detached
from adapters.structure import flatten, outline, to_array, unflatten


def collate(
    samples: Iterable[Any],
    numbers: NDArray[np.int64],
    allocate: Allocate,
    remedy: Callable[[tuple[int, ...]], str] = lambda shape: "pad, crop or resize in transform",
) -> Any:
    """Write samples into a new batch; ``numbers`` and ``remedy(shape)`` are for error messages."""
    iterator = iter(samples)
    first, treedef = flatten(next(iterator))
    if not first:
        raise ValueError(f"sample {numbers[0]} must hold at least one array or number, got none")
    try:
        leaves = [as_leaf(leaf) for leaf in first]
    except (TypeError, ValueError) as error:
        note(error, f"in sample {numbers[0]}")
        raise
    wanted = [(leaf.shape, leaf.dtype) for leaf in leaves]
    columns = [allocate((len(numbers), *shape), dtype) for shape, dtype in wanted]
    seen: list[set[np.dtype[Any]]] = [{leaf.dtype} for leaf in leaves]
    for column, leaf in zip(columns, leaves):
        _write(column, 0, leaf)
    flat = treedef == tuple(range(len(first)))
    alike = _kinds(first, leaves)
    members = list(first)
    for row, sample in enumerate(iterator, 1):
        if alike is not None and (
            type(sample) is type(treedef) and len(sample) == len(alike)
            if flat
            else _put_leaves(sample, treedef, members)
        ):
            # Most samples are like the first one: 3 us less for an image and a label.
            for value, column, (kind, dtype, shape) in zip(
                sample if flat else members, columns, alike
            ):
                if type(value) is not kind:
                    break
                try:
                    if shape is not None:
                        value = value if kind is np.ndarray else as_leaf(value)
                        if value.shape != shape or value.dtype is not dtype:
                            break
                    column[row] = value
                except (OverflowError, TypeError, ValueError):  # Such as a larger int.
                    break
            else:
                continue
        values, other = flatten(sample)
        if other != treedef:
            found = [(leaf.shape, leaf.dtype) for leaf in map(as_leaf, values)]
            raise ValueError(
                f"samples of a batch must have one structure: sample {numbers[row]} is "
                f"{outline(other, found)}, sample {numbers[0]} is {outline(treedef, wanted)}"
            )
        for place, (value, (shape, dtype)) in enumerate(zip(values, wanted)):
            try:
                leaf = value if type(value) is np.ndarray else as_leaf(value)
                if leaf.dtype is not dtype and leaf.dtype not in seen[place]:
                    columns[place] = _widen(columns[place], row, leaf.dtype, seen[place], allocate)
                    alike = None
            except (TypeError, ValueError) as error:
                note(error, f"in sample {numbers[row]}")
                raise
            if leaf.shape != shape:
                where = "" if len(columns) == 1 else f" (array {place} of {len(columns)})"
                raise ValueError(
                    "samples of a batch must have equal shapes: sample "
                    f"{numbers[row]} has shape {leaf.shape}{where}, sample {numbers[0]} has "
                    f"{shape}; {remedy(leaf.shape)}"
                )
            _write(columns[place], row, leaf)
    return unflatten(treedef, columns)


def _put_leaves(tree: Any, treedef: Any, leaves: list[Any]) -> bool:
    """Put the leaves of a sample into ``leaves``; False if its treedef may be another."""
    if type(treedef) is int:
        leaves[treedef] = tree
        return True
    if type(tree) is not type(treedef) or tree is None:
        return tree is treedef
    if len(tree) != len(treedef):
        return False
    try:
        for name, member in treedef.items() if type(treedef) is dict else enumerate(treedef):
            if type(member) is int:
                leaves[member] = tree[name]
            elif not _put_leaves(tree[name], member, leaves):
                return False
    except KeyError:
        return False
    return True


def _kinds(
    first: Sequence[Any], leaves: Sequence[NDArray[Any]]
) -> list[tuple[Any, np.dtype[Any], tuple[int, ...] | None]] | None:
    """Type, dtype and shape of each leaf, None for one item; None if some are other objects."""
    kinds = []
    for value, leaf in zip(first, leaves):
        # NumPy writes a negative int into unsigned numbers.
        is_python = type(value) in (bool, int, float) and leaf.dtype.kind != "u"
        is_item = isinstance(value, np.generic) or is_python or type(value) in (str, bytes)
        if leaf.dtype.kind not in ("O" if type(value) in (str, bytes) else "biufc"):
            return None
        kinds.append((type(value), leaf.dtype, None if is_item else leaf.shape))
    return kinds


def _widen(
    column: NDArray[Any],
    rows: int,
    dtype: np.dtype[Any],
    seen: set[np.dtype[Any]],
    allocate: Allocate,
) -> NDArray[Any]:
    """Return the column with a dtype that all seen ones and ``dtype`` promote to."""
    seen.add(dtype)
    # Sorted, because NumPy's promotion depends on the order.
    common = np.result_type(*sorted(seen, key=str))
    if common == column.dtype:
        return column
    wider = allocate(column.shape, common)
    wider[:rows] = column[:rows]
    return wider


def _write(column: NDArray[Any], row: int, leaf: NDArray[Any]) -> None:
    if column.dtype.hasobject:
        # A 0-d array itself would become the item of an array of objects.
        leaf = detached(leaf if leaf.ndim else leaf.item())
    column[row] = leaf


def as_leaf(value: Any) -> NDArray[Any]:
    """Convert a leaf of a sample to an array; strings, bytes and objects to a 0-d object array.

    NumPy would make fixed-width strings of them, and drop trailing zero bytes.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "asnumpy"):  # MXNet's arrays, which NumPy would treat as sequences.
        return value.asnumpy()  # type: ignore[no-any-return]
    if not isinstance(value, (str, bytes)):
        array = to_array(value)
        if array.dtype != object or hasattr(value, "__array__"):  # Such as a tensor of strings.
            return array
    boxed = np.empty((), object)
    boxed[()] = value
    return boxed


def filler(value: Any, dtype: np.dtype[Any], where: str) -> Any:
    """Return the padding value if it fits an array of this dtype, or raise ``TypeError``."""
    if dtype.kind not in "biu":
        return value
    whole = np.asarray(value).dtype.kind in "biuf" and float(value).is_integer()
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not (whole and low <= value <= high):
        raise TypeError(
            f"value must be a number that {dtype} holds where sample{where} is of that dtype, got "
            f"{value!r}: give another value, or samples of another dtype"
        )
    return value


class Probe:
    """Lengths that vary, as seen in some batches."""

    def __init__(self) -> None:
        self.varied = False
        """True if the samples of a batch had unequal lengths."""
        self.everywhere = False
        """Pad members with equal lengths too, except for a length of 1, by which Keras tells labels
        from one-hot vectors."""

    def asks(self, longest: int, varies: bool) -> bool:
        """True if a member is to be padded further."""
        self.varied |= varies
        return varies or (self.everywhere and longest > 1)
