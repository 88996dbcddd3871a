"""Arrays in memory or memory-mapped, gathered a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.images.rows import MOST_ARRAYS, can_be_taken, take
from adapters.ownership import Allocate, detached
from adapters.sources.source import Source
from adapters.sources.stackedarrays import stacked
from adapters.sources.stored import SparseRows, Stored, is_sparse, is_stored
from adapters.structure import flatten, in_order, unflatten

# Arrays that an error names.
_MOST_LISTED = 8
# More arrays in a list are samples without a doubt.
_MOST_PARTS = 3
# Of NumPy's ``take``, which buffers ``out`` in its default mode, "raise".
_UNBUFFERED: Literal["clip"] = "clip"


class ArraySource(Source):
    """A structure of arrays whose first axes are equally long: sample i is row i of each.

    Args:
        arrays: An array, or a tuple or dict (nested too) of arrays; a list of arrays in it is a
            tuple. Tensors of other libraries in host memory are looked at as NumPy arrays, without
            a copy where their library allows; data sets of h5py and zarr stay on the disk. Rows of
            SciPy's sparse matrices become dense in the batch.

    Raises:
        TypeError: A member has no rows.
        ValueError: Members of unequal lengths.
    """

    makes_samples = False
    stored = False  # Samples are rows of a copy.
    gathers = True
    own_code = ()

    def __init__(self, arrays: Any) -> None:
        arrays = _lists_as_arrays(arrays)
        columns, self._skeleton = flatten(arrays)
        self._is_tuple = type(self._skeleton) is tuple and all(
            isinstance(member, int) for member in self._skeleton
        )
        paths = _member_names(arrays)
        self._columns = tuple(_as_rows(column, path) for column, path in zip(columns, paths))
        if not self._columns:
            raise ValueError(f"source must hold at least one array, got {arrays!r}")
        lengths = [len(column) for column in self._columns]
        if len(set(lengths)) > 1:
            listed = [f"{path}: {length}" for path, length in zip(paths, lengths)]
            if len(listed) > _MOST_LISTED:
                listed[_MOST_LISTED // 2 : -_MOST_LISTED // 2] = ["..."]
            raise ValueError(
                f"arrays of source must have equal lengths, got {', '.join(listed)}; each array of "
                "a list or tuple is an input or output, and has a row for each sample (np.stack "
                "makes one array of a list of samples)"
            )
        self._lengths = lengths
        arrays_alone = tuple(each for each in self._columns if isinstance(each, np.ndarray))
        at_once = len(arrays_alone) == len(columns) <= MOST_ARRAYS
        at_once = at_once and all(map(can_be_taken, arrays_alone))
        # The columns, where rows of all can be taken by one call.
        self._arrays = arrays_alone if at_once else ()

    def __len__(self) -> int:
        return len(self._columns[0])

    def _check_lengths(self) -> None:
        found = list(map(len, self._columns))
        if found != self._lengths and min(found) < self._lengths[0]:
            raise ValueError(
                f"arrays of source must keep their {self._lengths[0]} rows, got {min(found)} by "
                "now: make another source of what was resized"
            )

    @property
    def skeleton(self) -> Any:
        """The structure, with the numbers of arrays in their places."""
        return self._skeleton

    def gather(self, numbers: NDArray[np.int64], allocate: Allocate) -> Any:
        """The rows of these numbers as one batch, in memory from ``allocate``.

        Raises:
            ValueError: An array was made shorter in place.
        """
        self._check_lengths()
        stretch = stretch_of(numbers)
        if stretch is None and self._arrays:
            gathered = self._taken(numbers, allocate)
        else:
            gathered = [take_rows(column, numbers, stretch, allocate) for column in self._columns]
        return tuple(gathered) if self._is_tuple else unflatten(self._skeleton, gathered)

    def _taken(self, numbers: NDArray[np.int64], allocate: Allocate) -> list[NDArray[Any]]:
        count, arrays = len(numbers), self._arrays
        rows = [allocate((count, *array.shape[1:]), array.dtype) for array in arrays]
        if not take(arrays, numbers, tuple(rows)):
            for array, into in zip(arrays, rows):
                array.take(numbers, 0, into, _UNBUFFERED)
        return rows

    def gather_into(
        self, numbers: NDArray[np.int64], places: NDArray[np.int64], rows: Sequence[NDArray[Any]]
    ) -> bool:
        """Gather these rows into rows of a batch at these places, without a copy between."""
        self._check_lengths()
        for column, into in zip(self._columns, rows):
            if isinstance(column, Stored) or column.dtype != into.dtype or column.dtype.hasobject:
                return False
        straight = self._arrays and all(into.flags.c_contiguous for into in rows)
        if not (straight and take(self._arrays, numbers, tuple(rows), places)):
            for column, into in zip(self._columns, rows):
                assert isinstance(column, np.ndarray)
                into[places] = column[numbers]
        return True

    def united(self, others: Sequence[Source]) -> Source | None:
        """The rows of all, where the kernel can gather them."""
        several = [self, *(each for each in others if type(each) is ArraySource)]
        if len(several) <= len(others):
            return None
        return stacked([each._columns for each in several], self._skeleton)

    def samples(self, numbers: NDArray[np.int64]) -> Sequence[Any]:
        """Rows of a copy, so that a transform that writes into its sample harms nobody."""
        rows = self.gather(numbers, lambda shape, dtype: np.empty(shape, dtype))
        columns, skeleton = flatten(rows)
        if self._is_tuple:
            return list(zip(*columns))
        return [unflatten(skeleton, list(leaves)) for leaves in zip(*columns)]

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """The sample of this number, a copy."""
        return self.samples(np.array([number]))[0]

    def way(self, transformed: bool) -> str:
        """How samples come from it, for people."""
        return "arrays, gathered a batch at a time"

    @property
    def sample_bytes(self) -> float:
        """Bytes of a row of each array."""
        rows = [math.prod(column.shape[1:]) * column.dtype.itemsize for column in self._columns]
        return float(sum(rows))

    def labels_of(self, numbers: NDArray[np.int64], lightly: bool = False) -> NDArray[Any] | None:
        """The rows of the second of several arrays, if each is one number or text."""
        if not self._is_tuple or len(self._columns) < 2:
            return None
        column = self._columns[1]
        if isinstance(column, Stored) or column.dtype.kind not in "biuU":
            return None
        return column[numbers].reshape(-1) if column.size == len(self) else None

    def fetch(self, numbers: NDArray[np.int64]) -> None:
        """Gather rows, and forget them."""
        self.gather(numbers, np.empty)


def take_rows(
    column: NDArray[Any] | Stored,
    numbers: NDArray[np.int64],
    stretch: slice | None,
    allocate: Allocate,
) -> NDArray[Any]:
    """Rows of one array.

    Args:
        column: ``(samples, ...)``.
        numbers: Of the rows, in range.
        stretch: The same as a slice, where that is possible.
        allocate: Gives the memory.
    """
    rows = allocate((len(numbers), *column.shape[1:]), column.dtype)
    if isinstance(column, Stored):
        column.read(numbers, rows)
    elif stretch is not None:
        rows[...] = column[stretch]
    elif can_be_taken(column) and take((column,), numbers, (rows,)):
        return rows
    elif column.flags.c_contiguous:
        column.take(numbers, 0, rows, _UNBUFFERED)
    else:
        # take() would first make a contiguous copy of the whole array.
        rows[...] = column[numbers]
    return detached(rows) if column.dtype.hasobject else rows


def stretch_of(numbers: NDArray[np.int64]) -> slice | None:
    """The slice that these numbers are, which copies faster than it gathers.

    4x for 64 rows of 28 x 28 bytes; a batch that isn't shuffled is one.
    """
    first, last, steps = numbers.item(0), numbers.item(-1), len(numbers) - 1
    if not steps:
        return slice(first, first + 1)
    step, rest = divmod(last - first, steps)
    if rest or step < 1 or not bool((np.diff(numbers) == step).all()):
        return None
    return slice(first, last + 1, step)


def holds_arrays(data: Any) -> bool:
    """Whether ``data`` is an array or a tensor in memory, and not a file that looks like one."""
    return (
        isinstance(data, np.ndarray)
        or (hasattr(data, "shape") and hasattr(data, "dtype") and hasattr(data, "__dlpack__"))
        or hasattr(data, "to_numpy")
        or hasattr(data, "asnumpy")
    )


def refuse_parts_in_a_list(source: Any) -> None:
    """``[x, y]`` would be taken for two samples.

    Raises:
        TypeError: It is such a list.
    """
    if type(source) is list and any(isinstance(part, Source) for part in source):
        raise TypeError(
            "source must be one source, got a list with data sets in it: concatenate([a, b]) joins "
            "them one after another, and a data set of your own, whose __getitem__(i) returns "
            "(a[i], b[i]), pairs them"
        )
    if type(source) is not list or not 2 <= len(source) <= _MOST_PARTS:
        return
    if not all(holds_arrays(part) for part in source):
        return
    lengths = {part.shape[0] if len(part.shape) else None for part in source}
    if len(lengths) == 1 and lengths not in ({None}, {1}):
        shapes = ", ".join(str(tuple(part.shape)) for part in source)
        raise TypeError(
            "source must be a tuple where it holds the parts of the samples: (x, y) or (x, y, "
            f"sample_weight), got a list of arrays of the shapes {shapes}; if each of these arrays "
            "is one sample, give them as one array (np.stack)"
        )


def _member_names(tree: Any, name: str = "source") -> list[str]:
    """A path for every leaf, in ``flatten``'s order, as one would write it: ``source[0]['a']``."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        members = [(f"{name}[{key!r}]", tree[key]) for key in in_order(tree)]
    elif isinstance(tree, tuple):
        members = [(f"{name}[{i}]", member) for i, member in enumerate(tree)]
    else:
        return [name]
    return [path for each, member in members for path in _member_names(member, each)]


def _lists_as_arrays(tree: Any) -> Any:
    """Lists of numbers as arrays, and lists of arrays, within a tuple or dict, as tuples."""
    if isinstance(tree, dict):
        return {name: _lists_as_arrays(member) for name, member in tree.items()}
    if isinstance(tree, tuple):
        members = [_lists_as_arrays(member) for member in tree]
        return type(tree)(*members) if hasattr(tree, "_fields") else tuple(members)
    if not isinstance(tree, list):
        return tree
    if any(np.ndim(member) for member in tree if hasattr(member, "__array__")):
        return tuple(_lists_as_arrays(member) for member in tree)  # Several inputs or outputs.
    if tree and all(isinstance(member, bytes) for member in tree):
        return np.array([*tree, None], object)[:-1]  # NumPy would drop zero bytes at their ends.
    try:
        return np.asarray(tree)
    except ValueError as error:
        raise TypeError(
            "a list in a tuple or dict must hold numbers, or lists of numbers of one length, got "
            f"lengths that differ ({error}): for samples of unequal lengths, give a list of "
            "samples, such as list(zip(x, y)), with collate=pad()"
        ) from error


def _is_data_set(column: Any) -> bool:
    """Whether NumPy would read all samples, one by one, to make an array of them."""
    if isinstance(column, Source):
        return True
    is_array = hasattr(column, "__array__") or holds_arrays(column)
    has_samples = hasattr(column, "__getitem__") and hasattr(column, "__len__")
    return has_samples and not is_array and not isinstance(column, Sequence)


def _as_rows(column: Any, path: str) -> NDArray[Any] | Stored:
    if is_stored(column) and column.shape:
        return Stored(column)
    if is_sparse(column):
        return SparseRows(column)
    if _is_data_set(column):
        raise TypeError(
            f"{path} must be an array with one row per sample, got {type(column).__name__}, a data "
            "set: pair it with the others in a data set of your own, whose __getitem__(i) returns "
            "(a[i], b[i]); images with their labels are open_images(list(zip(files, labels)))"
        )
    try:
        if hasattr(column, "asnumpy"):  # MXNet's arrays, which NumPy would take for sequences.
            column = column.asnumpy()
        array = column if isinstance(column, np.ndarray) else np.asarray(column)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{path} must be an array with one row per sample, got {type(column).__name__}, which "
            f"NumPy can't read: {error}"
        ) from error
    if array.ndim == 0:
        raise TypeError(
            f"{path} must be an array with one row per sample, got {type(column).__name__}; "
            "give a list for samples that aren't arrays"
        )
    return array
