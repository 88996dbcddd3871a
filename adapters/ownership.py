"""Ownership of a batch's memory: it is copied if other code can reach it.

A sequence or a transform may reuse one buffer, return views of an array that it shuffles in place,
or return an array that it forgets. Trainers read a batch long after they took it, and users keep
batches. So the return value of a user's function is checked once, when it is taken and before that
function may be called again:

- An array is *ours* if all references to it, and to each array in the chain of its bases, come from
  the batch itself. ``sys.getrefcount`` counts them. Dicts, closures, caches, frames of generators,
  other views, memoryviews and tensors over the same memory all hold a reference.
- An array is copied if it has one reference more, or a weak one; if its class isn't ``ndarray``; if
  its memory isn't NumPy's own (``mmap``, ``bytearray``, another library's tensor), whose references
  can't be counted; and whenever something is unknown. ``bytes`` never change, and stay.

Read-only arrays are no exception, because the owner of the memory may still write to it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np
from numpy.typing import NDArray

from adapters.structure import as_array, flatten, private, unflatten

Allocate = Callable[[tuple[int, ...], "np.dtype[Any]"], NDArray[Any]]

# Up to this size, aligned memory isn't worth its cost, and a copy keeps the GIL. Above 500 items,
# NumPy releases it, and gets it back 30 us later if other threads want it (Keras on JAX).
_SMALL_BYTES = 16 << 10
_IN_BUFFERS = frozenset("?bBhHiIlLqQfdFD")
_ndarray = np.ndarray
_UNLOCKED = contextlib.nullcontext()
_NEVER_CHANGE = (str, bytes, int, float, complex, type(None), np.generic)


def taken(
    function: Callable[..., Any],
    allocate: Allocate,
    *arguments: Any,
    lock: contextlib.AbstractContextManager[Any] = _UNLOCKED,
) -> Any:
    """Call a user's function, and take what it returns.

    Args:
        function: Returns a structure of arrays of any library.
        allocate: Allocates the memory of copies above 16 KiB.
        arguments: Arguments of the function.
        lock: Held until the result is taken.

    Returns:
        The structure with NumPy arrays, as from ``as_arrays``, which no other code can write to.
    """
    with lock:
        batch = function(*arguments)
        if type(batch) is tuple:
            kept = getrefcount(batch) > _LOCAL
            simply = _simply_taken(batch, kept, allocate)
            if simply is not None:
                return simply
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
    if type(sample) not in (tuple, list, dict):
        return False
    for leaf in sample.values() if type(sample) is dict else sample:
        if isinstance(leaf, _NEVER_CHANGE) and not isinstance(leaf, np.void):
            continue
        if type(leaf) is not _ndarray or leaf.base is not None or leaf.dtype.hasobject:
            return False
        if getrefcount(leaf) > _NAMED or not leaf.flags.owndata or getweakrefcount(leaf):
            return False
    return True


def detach(leaves: list[Any], allocate: Allocate) -> None:
    """Replace leaves that other code can reach by copies.

    Args:
        leaves: The only references to what a function returned; changed in place.
        allocate: Allocates the memory of copies.
    """
    objects, chains, within = _chains(leaves)
    shared = [_is_shared(objects, place, within[place]) for place in range(len(objects))]
    copies: dict[int, Any] = {}
    for place, chain in enumerate(chains):
        leaf = leaves[place]
        if not isinstance(leaf, np.ndarray):
            leaves[place] = detached(leaf)
        elif leaf.dtype.hasobject or any(shared[each] for each in chain):
            if id(leaf) not in copies:
                copies[id(leaf)] = _copy(leaf, allocate)
            leaves[place] = copies[id(leaf)]


def _is_shared(objects: list[Any], place: int, within: int) -> bool:
    """True if other code can change the object, or if that is unknown."""
    count, thing = _references(objects, place), objects[place]
    if _is_constant(thing):
        return False
    if count > within + _ALONE or type(thing) is not np.ndarray or getweakrefcount(thing):
        return True
    return thing.base is None and not thing.flags.owndata


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


def _simply_taken(batch: tuple[Any, ...], kept: bool, allocate: Allocate) -> tuple[Any, ...] | None:
    """Take a tuple of arrays that own their memory, as ``taken`` does; None for anything else.

    Saves the usual batch 12 us of 45 (digits by 64, two arrays, two cores).

    Args:
        batch: The structure.
        kept: True if other code refers to this tuple.
        allocate: Allocates the memory of copies.
    """
    own = 0 if kept else _NAMED
    all_own = True
    for leaf in batch:
        if type(leaf) is not _ndarray or leaf.base is not None or leaf.dtype.hasobject:
            return None
        if getrefcount(leaf) != own or not leaf.flags.owndata or getweakrefcount(leaf):
            all_own = False
    if all_own:
        return batch
    if len(set(map(id, batch))) < len(batch):
        return None
    leaves = []
    for leaf in batch:
        if getrefcount(leaf) != own or not leaf.flags.owndata or getweakrefcount(leaf):
            leaf = _copied(leaf, allocate)
        leaves.append(leaf)
    return tuple(leaves)


def _chains(leaves: Sequence[Any]) -> tuple[list[Any], list[list[int]], list[int]]:
    """Find the arrays among ``leaves`` and the objects that own their memory.

    Returns:
        All these objects, each once; for each leaf, the places of its objects; and for each object,
        the references to it that were found on the way.
    """
    objects: list[Any] = []
    places: dict[int, int] = {}
    chains: list[list[int]] = []
    within: list[int] = []
    for leaf in leaves:
        chains.append([])
        each, references = leaf if isinstance(leaf, np.ndarray) else None, 1
        while each is not None:
            place = places.setdefault(id(each), len(objects))
            new = place == len(objects)
            if new:
                objects.append(each)
                within.append(0)
            chains[-1].append(place)
            within[place] += references
            references = int(new)  # The reference to its base counts once.
            each = each.base if isinstance(each, np.ndarray) else None
    return objects, chains, within


def _references(objects: list[Any], place: int) -> int:
    return getrefcount(objects[place])


_ALONE = _references([np.empty(1)], 0)
"""Reference count of an object that only the list refers to; differs between Python versions."""


def _named_references(objects: tuple[Any, ...]) -> int:
    for thing in objects:
        return getrefcount(thing)
    raise AssertionError


_NAMED = _named_references((np.empty(1),))
"""Reference count of an object that only a tuple refers to, while a loop variable names it."""


def _local_references() -> int:
    thing = np.empty(1)
    return getrefcount(thing)


_LOCAL = _local_references()
"""Reference count of an object that only a local variable refers to."""


def _yielded_references(samples: Iterable[Any]) -> int:
    for sample in samples:
        return getrefcount(sample)
    raise AssertionError


def _yielding() -> Iterator[Any]:
    sample = (np.empty(1),)
    yield sample


_YIELDED = _yielded_references(_yielding())
"""Reference count of an object that only a generator's local refers to, in a loop over it."""
_TRACED = _NAMED > _ALONE + 1 or _LOCAL > _ALONE  # A tracer refers to all locals.
# From Python 3.14 on, a local variable may borrow its reference. Without the GIL, each thread
# counts its own. Then some places count one reference less than others.
_COUNTS = sys.version_info < (3, 14) and bool(getattr(sys, "_is_gil_enabled", lambda: True)())
if _TRACED or not _COUNTS:
    _NAMED = _LOCAL = _YIELDED = 0  # No object has this count: everything is copied.
if not _COUNTS:
    _ALONE = -(1 << 30)


def _is_constant(thing: Any) -> bool:
    """True if the memory can't change."""
    return isinstance(thing, bytes) or (
        isinstance(thing, memoryview) and isinstance(thing.obj, bytes)
    )


def _copy(array: NDArray[Any], allocate: Allocate) -> NDArray[Any]:
    if array.dtype.hasobject:
        copy: NDArray[Any] = np.array(array, subok=True)
        if copy.dtype == object:
            for index, item in np.ndenumerate(copy):
                copy[index] = detached(item)
        return copy
    if type(array) not in (np.ndarray, np.memmap):
        return np.array(array, subok=True)  # Keeps what its class adds, such as a mask.
    return _copied(array, allocate)


def _copied(array: NDArray[Any], allocate: Allocate) -> NDArray[Any]:
    dtype = array.dtype
    if 0 < array.nbytes <= _SMALL_BYTES and dtype.char in _IN_BUFFERS and array.flags.c_contiguous:
        small: NDArray[Any] = np.ndarray(array.shape, dtype, bytearray(array.data))
        return small
    copy = allocate(array.shape, dtype)
    copy[...] = array
    return copy
