"""``ByMember``: base of collate functions that treat each member of the samples by itself.

It takes the samples of a batch apart by their structure, with a step in Python per sample and
member, none per element. Subclasses combine the arrays of one member. Collate functions only read
their arguments and return new memory. Thread-safe.
"""

from __future__ import annotations

import abc
import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.alignment import aligned_empty
from adapters.arguments import check_integer
from adapters.batch.collate import Probe, as_leaf


class ByMember(abc.ABC):
    """Collate function that treats each member of the samples by its own value.

    ``value`` is one for all members, or a structure like the samples', with None for a member that
    is only stacked. Lengths are rounded up to ``to_multiple_of``.
    """

    only_reads = True
    """True if samples are never written to, so that they needn't be copied first."""

    def __init__(self, value: Any, to_multiple_of: int) -> None:
        check_integer("to_multiple_of", to_multiple_of, 1)
        self._value = value
        self._multiple = int(to_multiple_of)
        self._probe: Probe | None = None
        # A value for each member says which of them vary.
        self._says_which = isinstance(value, (tuple, list, dict))

    def __call__(self, samples: list[Any]) -> Any:
        """Collate samples into a batch."""
        if not len(samples):
            raise ValueError("samples must hold at least one sample, got none")
        return self._collated(list(samples), self._value, "")

    def probing(self, probe: Probe) -> Any:
        """Return a collate function whose batches have lengths that other samples might give."""
        other = copy.copy(self)
        other._probe = probe
        return other

    def rounded(self, length: int) -> int:
        """Round a length up to the required multiple."""
        return -(-length // self._multiple) * self._multiple

    def _collated(self, items: list[Any], value: Any, where: str) -> Any:
        first, has_values = items[0], isinstance(value, (tuple, list, dict))
        is_dict = isinstance(first, dict)
        if (
            is_dict
            or isinstance(first, tuple)
            or (isinstance(first, list) and not _is_array(first))
        ):
            keys = list(first) if is_dict else list(range(len(first)))
            kind: Any = dict if is_dict else type(first)
            for row, item in enumerate(items):
                alike = isinstance(item, kind) and len(item) == len(first)
                if not alike or (is_dict and item.keys() != first.keys()):
                    raise _unlike(items, row, where)
            of = f"a dict of {keys}" if is_dict else f"{len(first)} members"
            if has_values:
                alike = isinstance(value, dict) is is_dict and len(value) == len(first)
                if not alike or (is_dict and value.keys() != first.keys()):
                    raise _misfit(value, of, where)
            columns = [[item[key] for item in items] for key in keys] if is_dict else zip(*items)
            members = [
                self._collated(
                    list(column), value[key] if has_values else value, f"{where}[{key!r}]"
                )
                for key, column in zip(keys, columns)
            ]
            if is_dict:
                return dict(zip(keys, members))
            return type(first)(*members) if hasattr(first, "_fields") else tuple(members)
        if has_values:
            raise _misfit(value, "an array", where)
        if any(item is None for item in items):
            for row, item in enumerate(items):
                if (item is None) != (first is None):
                    raise _unlike(items, row, where)
            return None
        arrays = [item if type(item) is np.ndarray else as_leaf(_own(item)) for item in items]
        if value is None or not arrays[0].ndim:
            return stacked(arrays, where)
        return self.member(arrays, value, where)

    @abc.abstractmethod
    def member(self, arrays: list[NDArray[Any]], value: Any, where: str) -> Any:
        """Combine the arrays of one member, of one or more axes each; ``where`` is its path."""


def stacked(arrays: list[NDArray[Any]], where: str) -> NDArray[Any]:
    """Stack arrays of equal shapes, ``(samples, ...)``."""
    shape = arrays[0].shape
    for row, array in enumerate(arrays):
        if array.shape != shape:
            raise ValueError(
                f"sample{where} must have equal shapes in all samples of a batch where it isn't "
                f"padded: sample {row} of the batch has {array.shape}, the first one {shape}"
            )
    dtype = common_dtype(arrays)
    batch = aligned_empty((len(arrays), *shape), dtype)
    for row, array in enumerate(arrays):
        batch[row] = array.item() if dtype.hasobject and not array.ndim else array
    return batch


def common_dtype(arrays: list[NDArray[Any]]) -> np.dtype[Any]:
    """Common dtype of the arrays; sorted first, as NumPy's result depends on the order."""
    first = arrays[0].dtype
    for array in arrays:
        if array.dtype != first:
            return np.result_type(*sorted({each.dtype for each in arrays}, key=str))
    return first


def same_rest(arrays: list[NDArray[Any]], axes: tuple[int, ...], where: str) -> None:
    """Check that shapes differ only along these axes."""
    first = arrays[0].shape
    rest = [size for axis, size in enumerate(first) if axis not in axes]
    for row, array in enumerate(arrays):
        shape = array.shape
        if len(shape) != len(first) or (
            rest and [size for axis, size in enumerate(shape) if axis not in axes] != rest
        ):
            raise ValueError(
                f"sample{where} may differ between the samples of a batch along axis "
                f"{', '.join(map(str, axes))} only: sample {row} of the batch has shape {shape}, "
                f"the first one {first}; give axis=... for another one"
            )


def _is_array(item: list[Any]) -> bool:
    """True if a list stands for an array: numbers, nested or not, or an empty list."""
    if not item:
        return True
    first = item[0]
    if isinstance(first, list):
        return _is_array(first)
    return isinstance(first, (int, float, complex, np.generic))


def _own(item: Any) -> Any:
    """Give empty lists the dtype that promotes to all others."""
    if not isinstance(item, list) or not _is_empty(item):
        return item
    return np.empty(np.shape(item), np.bool_)


def _is_empty(item: Any) -> bool:
    return isinstance(item, list) and all(map(_is_empty, item))


def _unlike(items: list[Any], row: int, where: str) -> ValueError:
    return ValueError(
        f"samples of a batch must have one structure: sample{where} is {_outline(items[row])} in "
        f"sample {row} of the batch, and {_outline(items[0])} in the first one"
    )


def _misfit(value: Any, of: str, where: str) -> ValueError:
    return ValueError(
        f"value must be one for all members of a sample, or a structure like the sample's, got "
        f"{value!r} where sample{where} is {of}"
    )


def _outline(item: Any) -> str:
    if isinstance(item, dict):
        return f"a dict of {list(item)}"
    if isinstance(item, (tuple, list)):
        return f"a {type(item).__name__} of {len(item)}"
    return f"a {type(item).__name__}"
