"""Ownership of a batch's memory: it is copied if other code can reach it.

A sequence or a transform may reuse one buffer, return views of an array that it shuffles in place,
or return an array that it forgets. Trainers read a batch long after they took it, and users keep
batches. So the return value of a user's function is checked once, when it is taken and before that
function may be called again. An array isn't copied if

- all references to it come from the batch itself: ``sys.getrefcount`` counts them. Dicts, closures,
  caches, frames of generators, other views, memoryviews and tensors over the same memory all hold a
  reference;
- its memory is its own, or that of one other array to which the same applies, or of ``bytes``,
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
# References to an object that only a local variable refers to; that only a container refers to,
# while a loop variable names it; and that only a generator's local refers to, in a loop over it.
# Each includes the argument of getrefcount. No object has the count 0.
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
        leaves, skeleton = flatten(batch)
        del batch  # Its containers must be freed before references are counted.
        for place in range(len(leaves)):
            leaves[place] = as_array(leaves[place])  # That of a tensor has a base, and is copied.
        detach(leaves, allocate)
        return unflatten(skeleton, leaves)


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
    """True if only this tuple, list or dict refers to the arrays in it, which own their memory."""
    if type(sample) not in (tuple, list, dict):
        return False
    for leaf in sample.values() if type(sample) is dict else sample:
        if type(leaf) is not _ndarray:
            if isinstance(leaf, _NEVER_CHANGE) and not isinstance(leaf, np.void):
                continue
            return False
        if getrefcount(leaf) > _NAMED or leaf.base is not None or leaf.dtype.hasobject:
            return False
        if not leaf.flags.owndata or getweakrefcount(leaf):
            return False
    return True


def detach(leaves: list[Any], allocate: Allocate) -> None:
    """Replace leaves that other code can reach by copies; this list alone refers to them."""
    arrays = [*{id(leaf): leaf for leaf in leaves if isinstance(leaf, np.ndarray)}.values()]
    bases = [array.base for array in arrays]
    # References from these lists, and from the arrays to their bases.
    held = Counter(map(id, leaves + arrays + bases + bases))
    copies = {}
    for place in range(len(arrays)):
        if not _is_own(arrays, bases, place, held):
            copies[id(arrays[place])] = _copy(arrays[place], allocate)
    for place, leaf in enumerate(leaves):
        is_array = isinstance(leaf, np.ndarray)
        leaves[place] = copies.get(id(leaf), leaf) if is_array else detached(leaf)


def _is_own(arrays: list[Any], bases: list[Any], place: int, held: dict[int, int]) -> bool:
    """True if no other code can reach an array's memory."""
    if not _is_alone(arrays, place, held):
        return False
    if bases[place] is None:
        return bool(arrays[place].flags.owndata)
    if _never_changes(bases[place]):
        return True
    return _is_alone(bases, place, held) and bool(
        bases[place].flags.owndata or _never_changes(bases[place].base)
    )


def _never_changes(memory: Any) -> bool:
    return isinstance(memory.obj if isinstance(memory, memoryview) else memory, bytes)


def _is_alone(things: list[Any], place: int, held: dict[int, int]) -> bool:
    """True if it is a plain array to which there are no references but those in ``held``."""
    count, thing = getrefcount(things[place]), things[place]
    return (
        type(thing) is np.ndarray
        and _COUNTS
        and count <= held[id(thing)] + 1  # The argument of getrefcount.
        and not getweakrefcount(thing)
        and not thing.dtype.hasobject
    )


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
        for index, item in np.ndenumerate(copy) if dtype.char == "O" else ():
            copy[index] = detached(item)
        return copy
    if 0 < array.nbytes <= _SMALL_BYTES and dtype.char in _IN_BUFFERS and array.flags.c_contiguous:
        small: NDArray[Any] = np.ndarray(array.shape, dtype, bytearray(array.data))
        return small
    copy = allocate(array.shape, dtype)
    copy[...] = array
    return copy
