"""Pytrees: tuples, named tuples, lists and dicts around leaves.

A tree is split into its leaves and a ``treedef``: the same structure with leaf numbers
in place of the leaves. So batches can be compared, allocated and sent as flat lists of arrays.
``None`` is part of the treedef, as in Keras: an absent member, not a leaf.
"""

from __future__ import annotations

import array
import copy
import functools
import importlib
import re
import sys
from collections import ChainMap, UserDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Immutable types that are common in samples.
_UNCHANGING = frozenset({int, str, float, bytes, bool, type(None)})

_PLAIN = (np.ndarray, np.generic, int, float)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Split ``tree`` into its leaves, depth first, and its treedef."""
    if type(tree) is tuple:  # Most samples are (x, y).
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


def unflatten(treedef: Any, leaves: list[Any]) -> Any:
    """Put ``leaves`` into the places that ``flatten`` numbered."""
    if type(treedef) is tuple:
        for member in treedef:
            if type(member) is not int:
                break
        else:
            return tuple(map(leaves.__getitem__, treedef))
    return map_leaves(leaves.__getitem__, treedef)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply ``function`` to every leaf, and keep the structure.

    Lists become tuples, and mappings of other kinds become dicts. A list of numbers (nested or not)
    is a leaf, because NumPy and Keras treat it as an array.
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
    if hasattr(tree, "keys") and isinstance(tree, Mapping):  # The former is much faster.
        return map_leaves(function, dict(tree))
    return function(tree)


def outline(treedef: Any, leaves: Iterable[tuple[Any, Any]]) -> str:
    """Describe samples of this structure by the shape and dtype of each leaf, for messages."""
    text = str(unflatten(treedef, [f"{dtype}{shape}" for shape, dtype in leaves]))
    return re.sub(r"'([^']+\))'", r"\1", text)  # The leaves aren't quoted, unlike keys.


def in_order(names: dict[Any, Any]) -> list[Any]:
    """List the keys in an order that depends only on the set of keys, if they can be compared."""
    try:
        return sorted(names)
    except TypeError:
        return list(names)


def is_numbers(tree: Any) -> bool:
    """True for a non-empty list of numbers, or of such lists."""
    return (
        isinstance(tree, list)
        and bool(tree)
        and all(
            isinstance(item, (int, float, complex, np.generic)) or is_numbers(item) for item in tree
        )
    )


def private(item: Any) -> Any:
    """Copy whatever a function may write to, so that the stored original stays unchanged."""
    kind = type(item)
    if kind in _UNCHANGING:
        return item
    if isinstance(item, np.ndarray):
        return item.copy() if item.flags.writeable else item
    if kind is tuple:  # These and dicts first: most samples are one.
        return tuple([each if type(each) in _UNCHANGING else private(each) for each in item])
    if kind is dict:
        return {
            name: each if type(each) in _UNCHANGING else private(each)
            for name, each in item.items()
        }
    if isinstance(item, np.generic):  # A row of a structured array is a view of it.
        return item.copy() if isinstance(item, np.void) else item
    if isinstance(item, dict):
        mapping = copy.copy(item)
        for name, member in item.items():
            dict.__setitem__(mapping, name, private(member))  # A Counter's update would add.
        return mapping
    if hasattr(item, "_fields"):
        return kind(*map(private, item))
    if kind is list:
        return list(map(private, item))
    if isinstance(item, (list, bytearray, set, array.array)):
        return copy.copy(item)
    if isinstance(item, memoryview) and not isinstance(item.obj, bytes):
        return np.array(item).data
    if hasattr(item, "asnumpy"):  # MXNet's arrays, which may be views of the data set.
        return item.detach() if 0 in item.shape else item.copy()  # It can't copy empty ones.
    if hasattr(type(item), "__dataclass_fields__"):
        instance = copy.copy(item)
        for name in filter(functools.partial(hasattr, item), item.__dataclass_fields__):
            object.__setattr__(instance, name, private(getattr(item, name)))
        return instance
    if hasattr(item, "keys") and isinstance(item, (UserDict, ChainMap)):
        own = copy.copy(item)
        own.update({name: private(member) for name, member in item.items()})
        return own
    # PyTorch's tensors.
    return item.clone() if hasattr(item, "__array__") and hasattr(item, "clone") else item


def as_arrays(batch: Any) -> Any:
    """Replace other libraries' arrays in a batch by NumPy arrays."""
    if type(batch) is tuple:
        for member in batch:
            if type(member) is not np.ndarray:
                break
        else:
            return batch
    return map_leaves(as_array, batch)


def as_array(leaf: Any) -> Any:
    """Convert an array or a list to NumPy; other leaves are returned as they are."""
    if isinstance(leaf, np.ndarray):
        return leaf
    if hasattr(leaf, "asnumpy"):
        return leaf.asnumpy()
    return to_array(leaf) if hasattr(leaf, "__array__") or isinstance(leaf, list) else leaf


def to_array(value: Any) -> NDArray[Any]:
    """Convert a value to an array; PyTorch tensors are first copied from the GPU."""
    if not (hasattr(value, "detach") and hasattr(value, "cpu")):  # Files have one, too.
        return np.asarray(value)
    if str(value.dtype) == "torch.bfloat16":
        return _bfloat16(value.detach().cpu())
    return value.numpy(force=True)  # type: ignore[no-any-return]


def _bfloat16(tensor: Any) -> NDArray[Any]:
    """View a bfloat16 tensor's memory with the dtype of ``ml_dtypes``; NumPy has no such dtype.

    Keras and JAX install ``ml_dtypes``; without it, PyTorch's own error is raised.
    """
    try:
        dtype = importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        return np.asarray(tensor)
    numbers: NDArray[Any] = tensor.view(sys.modules["torch"].int16).numpy()
    return numbers.view(dtype)
