"""Nested structures: tuples, named tuples, lists and dicts around leaves.

A structure is taken apart into its leaves and a skeleton, the same structure with leaf numbers in
the leaves' places, so that batches can be compared, allocated and sent as flat lists of arrays.
``None`` is part of the skeleton, as Keras has it: an absent member, not a leaf.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What nobody can write into, and samples are full of.
_UNCHANGING = (int, str, float, bytes, bool, type(None))

_PLAIN = (np.ndarray, np.generic, int, float)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Split ``tree`` into its leaves, depth first, and its skeleton."""
    if type(tree) is tuple:  # The sample that nearly everybody has is (x, y).
        for member in tree:
            if not isinstance(member, _PLAIN):
                break
        else:
            return list(tree), tuple(range(len(tree)))
    leaves: list[Any] = []

    def number(leaf: Any) -> int:
        leaves.append(leaf)
        return len(leaves) - 1

    return leaves, map_leaves(number, tree)


def unflatten(skeleton: Any, leaves: list[Any]) -> Any:
    """Put ``leaves`` back into the places that ``flatten`` numbered."""
    if type(skeleton) is tuple:
        for member in skeleton:
            if type(member) is not int:
                break
        else:
            return tuple(map(leaves.__getitem__, skeleton))
    return map_leaves(leaves.__getitem__, skeleton)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same structure with ``function(leaf)`` for every leaf; a list comes back as a tuple.

    A list of numbers (nested or not) is a leaf, as it means an array to NumPy and to Keras.
    """
    if isinstance(tree, np.ndarray):
        return function(tree)
    if tree is None:
        return None
    if isinstance(tree, dict):
        mapped = {name: map_leaves(function, tree[name]) for name in in_order(tree)}
        return {name: mapped[name] for name in tree}
    if isinstance(tree, tuple):
        members = [map_leaves(function, member) for member in tree]
        return type(tree)(*members) if hasattr(tree, "_fields") else tuple(members)
    if isinstance(tree, list) and not is_numbers(tree):
        return tuple(map_leaves(function, member) for member in tree)
    return function(tree)


def in_order(names: dict[Any, Any]) -> list[Any]:
    """The same order for dicts of the same keys, wherever keys can be compared."""
    try:
        return sorted(names)
    except TypeError:
        return list(names)


def is_numbers(tree: Any) -> bool:
    """Whether ``tree`` is a non-empty list of numbers, or of such lists."""
    return (
        isinstance(tree, list)
        and bool(tree)
        and all(
            isinstance(item, (int, float, complex, np.generic)) or is_numbers(item) for item in tree
        )
    )


def private(item: Any) -> Any:
    """A copy of what a function may write into, so that it harms nobody who stores it."""
    if type(item) in _UNCHANGING:
        return item
    if isinstance(item, np.ndarray):
        return item.copy() if item.flags.writeable else item
    if isinstance(item, np.void):  # A row of a structured array: it lies in there.
        return item.copy()
    if isinstance(item, dict):
        mapping = copy.copy(item)
        mapping.update((name, private(member)) for name, member in item.items())
        return mapping
    if type(item) is tuple or hasattr(item, "_fields"):
        members = [private(member) for member in item]
        return tuple(members) if type(item) is tuple else type(item)(*members)
    if type(item) is list:
        return [private(member) for member in item]
    if isinstance(item, (list, bytearray, set)):
        return copy.copy(item)
    if hasattr(item, "asnumpy"):  # MXNet's arrays, of which a data set gives parts.
        return item.copy()
    # PyTorch's tensors.
    return item.clone() if hasattr(item, "__array__") and hasattr(item, "clone") else item


def as_arrays(batch: Any) -> Any:
    """The batch, with NumPy arrays in the places of what other libraries call an array."""
    if type(batch) is tuple:
        for member in batch:
            if type(member) is not np.ndarray:
                break
        else:
            return batch
    return map_leaves(as_array, batch)


def as_array(leaf: Any) -> Any:
    """As NumPy has it; what is no array stays what it is."""
    if isinstance(leaf, np.ndarray):
        return leaf
    if hasattr(leaf, "asnumpy"):
        return leaf.asnumpy()
    return to_array(leaf) if hasattr(leaf, "__array__") or isinstance(leaf, list) else leaf


def to_array(value: Any) -> NDArray[Any]:
    """An array of what has none of its own; of PyTorch's tensors also where a GPU has them."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # Not files, nor TensorFlow's.
        value = value.detach().cpu()
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":
            return _bfloat16(value)
    return np.asarray(value)


def _bfloat16(tensor: Any) -> NDArray[Any]:
    """The memory of a tensor whose dtype NumPy lacks, in that of ``ml_dtypes``.

    Keras and JAX have brought it; without it PyTorch says what it can't do.
    """
    try:
        dtype = importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        return np.asarray(tensor)
    array: NDArray[Any] = tensor.view(sys.modules["torch"].int16).numpy().view(dtype)
    return array
