"""Ownership of a batch's memory: it is copied if other code can reach it.

A sequence or a transform may reuse one buffer, return views of an array that it shuffles in place,
or return an array that it forgets. Trainers read a batch long after they took it, and users keep
batches. So the return value of a user's function is checked once, when it is taken and before that
function may be called again. An array isn't copied if

- the only reference to it comes from the batch: ``sys.getrefcount`` counts them. Dicts, closures,
  caches, frames of generators, other views, memoryviews and tensors over the same memory all hold a
  reference;
- its memory is its own, or that of one other array to which only this view refers, or of ``bytes``,
  which never change. References to ``mmap``, ``bytearray`` or another library's tensor can't be
  counted.

Read-only arrays are no exception, because the owner of the memory may still write to it. Where
references can't be counted, everything is copied.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np
from numpy.typing import NDArray

from adapters.structure import as_array, as_arrays, flatten, private, unflatten

Allocate = Callable[[tuple[int, ...], "np.dtype[Any]"], NDArray[Any]]

# Up to this size, aligned memory isn't worth its cost, and a copy keeps the GIL. Above 500 items,
# NumPy releases it, and gets it back 30 us later if other threads want it (Keras on JAX).
_SMALL_BYTES = 16 << 10
_IN_BUFFERS = frozenset("?bBhHiIlLqQfdFD")
_ndarray = np.ndarray
_UNLOCKED = contextlib.nullcontext()
_NEVER_CHANGE = (str, bytes, int, float, complex, type(None), np.generic)
# From Python 3.14 on, a local variable may borrow its reference. Without the GIL, each thread
# counts its own.
_COUNTS = sys.version_info < (3, 14) and bool(getattr(sys, "_is_gil_enabled", lambda: True)())
# References to an object that only a local variable refers to; that only a container or a view
# refers to, while a variable names it; and that only a generator's local refers to, in a loop over
# it. Each includes the argument of getrefcount. No object has the count 0.
_LOCAL, _NAMED, _YIELDED = (2, 3, 3) if _COUNTS else (0, 0, 0)


def taken(
    function: Callable[..., Any],
    allocate: Allocate,
    *arguments: Any,
    lock: contextlib.AbstractContextManager[Any] = _UNLOCKED,
) -> Any:
    """Call a user's function with the lock held, and take what it returns, as NumPy arrays.

    No other code can write to them. Copies above 16 KiB lie in memory from ``allocate``.
    """
    with lock:
        batch = function(*arguments)
        # Saves the usual batch 12 us of 45 (digits by 64, two arrays, two cores).
        if type(batch) is tuple and getrefcount(batch) <= _LOCAL and _has_its_own(batch):
            return as_arrays(batch)
        leaves, treedef = flatten(batch)
        del batch  # Its containers must be freed before references are counted.
        for place in range(len(leaves)):
            leaves[place] = as_array(leaves[place])  # That of a tensor has a base, and is copied.
        detach(leaves, allocate)
        return unflatten(treedef, leaves)


def apart(samples: Iterable[Any]) -> list[Any]:
    """List the samples of a user's iterator, which may reuse one buffer.

    A sample is copied, unless it is a tuple, list or dict of arrays that no other code refers to.
    Read-only arrays are not copied.
    """
    found = []
    for sample in samples:
        if getrefcount(sample) > _YIELDED or not _has_its_own(sample):
            sample = private(sample)
        found.append(sample)
    return found


def _has_its_own(sample: Any) -> bool:
    """True if only this tuple, list or dict leads to the memory of the arrays in it."""
    if type(sample) not in (tuple, list, dict):
        return False
    for leaf in sample.values() if type(sample) is dict else sample:
        if type(leaf) is not _ndarray:
            if isinstance(leaf, _NEVER_CHANGE) and not isinstance(leaf, np.void):
                continue
            return False
        if getrefcount(leaf) > _NAMED or not _is_alone(leaf):
            return False
    return True


def detach(leaves: list[Any], allocate: Allocate) -> None:
    """Replace leaves that other code can reach by copies; this list alone refers to them."""
    times = Counter(map(id, leaves))
    copies: dict[int, Any] = {}
    for place in range(len(leaves)):
        name = id(leaves[place])
        if not isinstance(leaves[place], np.ndarray):
            leaves[place] = detached(leaves[place])
        elif name in copies:
            leaves[place] = copies[name]
        elif getrefcount(leaves[place]) > times[name] + 1 or not _is_alone(leaves[place]):
            leaves[place] = copies[name] = _copy(leaves[place], allocate)


def _is_alone(array: Any) -> bool:
    """True if only references to this array lead to its memory."""
    base = array.base
    plain = type(array) is np.ndarray and not array.dtype.hasobject
    if not (_COUNTS and plain) or getweakrefcount(array):
        return False
    if base is None or isinstance(base, bytes):
        return base is not None or bool(array.flags.owndata)
    # A view: of an array that only this view, and the variable here, refer to.
    alone = type(base) is np.ndarray and getrefcount(base) <= _NAMED and not getweakrefcount(base)
    return alone and (bool(base.flags.owndata) or isinstance(base.base, bytes))


def detached(item: Any) -> Any:
    """Return an object that no other code writes to: itself if it can't change, else a copy.

    Objects that are neither containers nor arrays, and have no ``copy``, are returned as they are.
    """
    if isinstance(item, _NEVER_CHANGE) and not isinstance(item, np.void):
        return item
    if isinstance(item, np.ndarray):
        return _copy(item, np.empty)
    if type(item) in (tuple, list):
        return type(item)(map(detached, item))
    copied = private(item)
    if copied is item and not isinstance(item, type) and callable(getattr(item, "copy", None)):
        with contextlib.suppress(TypeError):  # ``copy`` requires arguments.
            return item.copy()
    return copied


def _copy(array: NDArray[Any], allocate: Allocate) -> NDArray[Any]:
    dtype = array.dtype
    if dtype.hasobject or type(array) not in (np.ndarray, np.memmap):
        copy: NDArray[Any] = np.array(array, subok=True)  # Keeps a subclass's own, such as a mask.
        plain = type(copy) is np.ndarray and dtype.char == "O"
        if plain and set(map(type, copy.ravel().tolist())) <= {str, bytes}:  # Never change.
            return copy
        for index, item in np.ndenumerate(copy) if dtype.char == "O" else ():
            copy[index] = detached(item)
        return copy
    if 0 < array.nbytes <= _SMALL_BYTES and dtype.char in _IN_BUFFERS and array.flags.c_contiguous:
        small: NDArray[Any] = np.ndarray(array.shape, dtype, bytearray(array.data))
        return small
    copy = allocate(array.shape, dtype)
    copy[...] = array
    return copy
