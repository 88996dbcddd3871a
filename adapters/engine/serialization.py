"""Serialized plan for worker processes: pickled once, with its arrays in shared memory.

    | array | pad to 64 | ... | pickle | pad to 64 | table | offset of the table (uint64) |

The table has the places of all arrays and the pickle, and what the worker needs before it opens
them: modules to import, and settings of libraries.

Pickle protocol 5 hands out contiguous arrays as buffers. They go into one shared file, which each
worker maps privately: reading shares the pages, and a transform that writes into its data set
changes its own copy only. Memory-mapped arrays are sent as the name of their file, locks as new,
unlocked ones.
"""

from __future__ import annotations

import contextlib
import copyreg
import enum
import functools
import importlib
import io
import logging
import math
import mmap
import os
import pickle
import random
import struct
import sys
import threading
import time
import types
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import cloudpickle
import numpy as np

from adapters.alignment import ALIGNMENT_BYTES
from adapters.engine.memory import FileName, SharedFile, map_private
from adapters.engine.reducers import IMPORTERS, pickled_settings, reducers, take_over
from adapters.failure import key_of, know, reduce_exception
from adapters.generator_search import (
    USE_RNG,
    generator_name,
    generators_named,
    generators_of,
    is_users,
)
from adapters.signatures import check_unchanged, identity_of
from adapters.user_code import attributes_before_use, users_objects

log = logging.getLogger("adapters")

# Share of an epoch without processes that pickling a plan may take, its bounds, and the maximum
# size. Each process takes twice as long to open it, and as much memory as its objects: 400,000
# dicts of annotations take 1.2 s and 32 MB, and 250 MB in each process (two cores).
_MOST_PART, _LEAST_SECONDS, _MOST_SECONDS, _MOST_BYTES = 0.002, 0.1, 5.0, 256 << 20

# Largest array whose numbers count in a fingerprint, and largest pickle and sum of arrays for one.
# It takes up to 20 ms at each start of an epoch then, and sending a changed plan again up to 0.5 s.
_MOST_READ, _MOST_COMPARED, _MOST_SENT_AGAIN = 4 << 20, 256 << 10, 1 << 30

# Python 3.10 has no name for it.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)

# A view's base is sent with it if it is at most this many times as large.
_MOST_OF_BASE = 2

# Objects bound to a process or its threads: another process gets new ones. Events, semaphores,
# barriers and queues consist of conditions and keep their state.
_OF_A_PROCESS: dict[type, Callable[[Any], Any]] = {
    type(threading.Lock()): lambda _: (threading.Lock, ()),
    type(threading.RLock()): lambda _: (threading.RLock, ()),
    # Waiting threads stay in this process.
    threading.Condition: lambda condition: (threading.Condition, (condition._lock,)),
    threading.local: lambda _: (threading.local, ()),
}
_NUMPY_GENERATOR = np.random.mtrand._rand
_PYTHON_GENERATOR = random._inst


_OFFSET = struct.Struct("Q")


class Obstacle(NamedTuple):
    """Reason not to send a plan to processes; false if there is none."""

    reason: str
    possible: bool = True
    """True if it could be sent, at a loss."""
    opened: bool = False
    """True if user code holds something bound to this process, and perhaps to one thread."""

    def __bool__(self) -> bool:
        return bool(self.reason)

    def __str__(self) -> str:
        return self.reason


class SerializedPlan(SharedFile):
    """A serialized object in shared memory, as long as this is open.

    Args:
        content: The object; an error from pickling it is raised.
    """

    def __init__(self, content: Any) -> None:
        super().__init__()
        pickled, arrays, imports = pickled_apart(content)
        self.fingerprint = _fingerprint(pickled, arrays)
        parts = [*arrays, memoryview(pickled)]
        places, end = [], 0
        for part in parts:
            places.append((end, end + part.nbytes))
            end += -(-part.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        table = pickle.dumps((places, imports, pickled_settings())) + _OFFSET.pack(end)
        self.grow(end + len(table))
        with self.map() as memory:
            for (start, stop), part in zip(places, parts):
                memory[start:stop] = part
            memory[end:] = table


def pickled_apart(content: Any) -> tuple[bytes, list[memoryview], tuple[str, ...]]:
    """Pickle an object; returns the pickle, its arrays, and the modules to import before opening.

    The pickle also has the objects in it whose ``__del__`` is the user's, and the classes that are
    sent with their definitions.
    """
    pickled, buffers, generators = _pickled(content)
    if generators:
        others = f" and {len(generators) - 1} more" if len(generators) > 1 else ""
        log.warning(
            "%s%s: copied with its state to each worker process; unless it is reseeded for each "
            "sample, all processes draw the same; %s",
            generator_name(generators[0], users_objects()),
            others,
            USE_RNG,
        )
    return (
        pickled,
        buffers,
        tuple(how for name, how in IMPORTERS.items() if name.encode() in pickled),
    )


def _pickled(content: Any) -> tuple[bytes, list[memoryview], list[Any]]:
    """Pickle an object; returns the pickle, its arrays, and the user's own random generators."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    pickler = _Pickler(stream, protocol=5, buffer_callback=buffers.append)
    pickler.dump((content, pickler.finalized, pickler.classes))
    generators, pickler.generators = pickler.generators, []  # Else the list is found as a holder.
    return stream.getvalue(), [buffer.raw() for buffer in buffers], generators


def has_changed(content: Any, fingerprint: int | None) -> bool:
    """True if an object has certainly changed since it had this fingerprint.

    Numbers in an array of more than 4 MiB may change without being noticed.
    """
    if fingerprint is None:
        return False
    with contextlib.suppress(Exception):  # It can no longer be pickled.
        return _fingerprint(*_pickled(content)[:2]) not in (fingerprint, None)
    return False


def _fingerprint(pickled: bytes, arrays: list[memoryview]) -> int | None:
    """Checksum of a pickle and its arrays; None if comparing them would take too long."""
    if len(pickled) > _MOST_COMPARED or sum(each.nbytes for each in arrays) > _MOST_SENT_AGAIN:
        return None
    sums = [(each.nbytes, zlib.crc32(each)) for each in arrays if each.nbytes <= _MOST_READ]
    return hash((pickled, *sums))


def import_before(modules: Iterable[str]) -> None:
    """Import modules that a pickle needs before it is opened."""
    for module in modules:
        # The name may be just a word in the data; otherwise unpickling raises a better error.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def load_plan(name: FileName) -> tuple[Any, list[Any]]:
    """Open a serialized object in another process; its arrays stay in the shared memory.

    Returns:
        The object, and the objects in it whose ``__del__`` is the user's.
    """
    memory = memoryview(map_private(name))
    (offset,) = _OFFSET.unpack(memory[-_OFFSET.size :])
    places, imports, settings = pickle.loads(memory[offset:])
    *buffers, content = (memory[start:stop] for start, stop in places)
    import_before(imports)
    take_over(settings)
    plan, finalized, known = pickle.loads(content, buffers=buffers)
    take_over(settings)  # Again, as modules that it imported may have changed them.
    know(known)
    return plan, finalized


def obstacle_to_sending(plan: Any, epoch_seconds: float) -> Obstacle:
    """Find a reason not to send a plan to processes; the result is false if there is none.

    Args:
        plan: The plan.
        epoch_seconds: Time of an epoch without processes.
    """
    most = min(max(epoch_seconds * _MOST_PART, _LEAST_SECONDS), _MOST_SECONDS)
    stream = _Measured(most)
    pickler, reason = _Pickler(stream, protocol=5, buffer_callback=lambda _: None), ""
    try:
        pickler.dump(plan)
    except _TooMuch:
        reason = (
            "its many Python objects take longer to send to processes than these would save: keep "
            "them in arrays, or in a file that each process opens"
        )
    except Exception as error:
        return Obstacle(not_picklable(error), possible=False, opened=True)
    generators, pickler.generators = pickler.generators, []
    if generators and not reason:
        name = generator_name(generators[0], users_objects())
        reason = f"each process would repeat the draws of {name}; {USE_RNG}"
    if pickler.counter and not reason:
        reason = f"{pickler.counter} changes, and each process would change its own copy"
    return Obstacle(reason, True, pickler.opened)


def not_picklable(error: Exception) -> str:
    """Describe a pickling error, with a remedy."""
    if isinstance(error, (_Changed, MemoryError, OSError)):
        return str(error) or type(error).__name__
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{reason}; to use processes, create what can't be pickled on first use"


class _Changed(pickle.PicklingError):
    """An object can be sent neither as it is nor as it was before its use."""


class _TooMuch(Exception):
    """The pickle is too large or too slow for processes to pay off."""


class _Measured(io.RawIOBase):
    """Stream that only measures a pickle, and stops one that exceeds the limits."""

    def __init__(self, most_seconds: float) -> None:
        self._ends = time.perf_counter() + most_seconds
        self._bytes = 0

    def write(self, data: Any) -> int:
        """Count a frame of 64 KiB, or one larger object."""
        size = len(data)
        self._bytes += size
        if self._bytes > _MOST_BYTES or time.perf_counter() > self._ends:
            raise _TooMuch
        return size


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.generators: list[Any] = []
        """The user's own random generators, which are sent with their state."""
        self.finalized: list[Any] = []
        """Objects whose ``__del__`` is the user's."""
        self.classes: dict[bytes, type] = {}
        """Classes that are sent with their definitions, by their keys."""
        self._modules = {"__main__"}
        """Names of modules that were looked for."""
        self._sent: dict[int, np.ndarray[Any, Any]] = {}
        """Arrays whose views are sent as parts of them."""
        self.opened = False
        """True if something that user code has opened since was left out."""
        self.counter = ""
        """Number in a user's object that has changed since a loader began to use it; or empty."""

    def dump(self, content: Any) -> None:
        # In a process spawned by multiprocessing, the main script is a module that cloudpickle
        # would send by name, and workers can't import it.
        if (script := sys.modules.get("__mp_main__")) is not None:
            cloudpickle.register_pickle_by_value(script)
        super().dump(content)

    def reducer_override(self, value: Any) -> Any:
        # Functions such as random.choice are bound to these. With a copy, all workers would draw
        # the same, and seeding the worker's own generator would have no effect.
        if value is _NUMPY_GENERATOR:
            return getattr, (np.random.mtrand, "_rand")
        if value is _PYTHON_GENERATOR:
            return getattr, (random, "_inst")
        for generator in generators_of(value):
            self._found(generator)
        if isinstance(value, (type, types.FunctionType)) and is_users(value):
            self._look_for(sys.modules[value.__module__])
            for generator in generators_named(value):
                self._found(generator)
        if hasattr(type(value), "__del__") and is_users(type(value)):
            self.finalized.append(value)
        if isinstance(value, BaseException):
            return reduce_exception(value)
        if (renewed := _OF_A_PROCESS.get(type(value))) is not None:
            return renewed(value)
        if type(value) is memoryview:  # cloudpickle would make bytes of it.
            return memoryview, (np.asarray(value),)
        if type(value) is np.memmap and (reduced := _reduce_memmap(value)) is not None:
            return reduced
        if type(value) is np.ndarray and (reduced := self._reduce_view(value)) is not None:
            return reduced
        for reducer in reducers:
            if (reduced := reducer(value)) is not NotImplemented:
                return reduced
        if (reduced := _reduce_unused(value)) is not None:
            self.opened = True
            return reduced
        self.counter = self.counter or _counter_of(value)
        reduced = super().reducer_override(value)
        if isinstance(value, type) and reduced is not NotImplemented:
            self.classes[key_of(value)] = value
            slots = vars(value).get("__slots__")
            if slots and not issubclass(value, enum.Enum):
                reduced[1][3]["__slots__"] = slots  # Cloudpickle leaves them out.
        return reduced

    def _look_for(self, module: types.ModuleType) -> None:
        """Send a module by value if workers can't import it, as one that was loaded by its path."""
        name = module.__name__
        if name not in self._modules:
            self._modules.add(name)
            places = getattr(sys.modules.get(name.rpartition(".")[0]), "__path__", None)
            finders = [each for each in sys.meta_path if hasattr(each, "find_spec")]
            if not any(finder.find_spec(name, places) for finder in finders):
                cloudpickle.register_pickle_by_value(module)

    def _found(self, generator: Any) -> None:
        known = any(each is generator or _draws_from(each, generator) for each in self.generators)
        if not known and generator not in (_NUMPY_GENERATOR, _PYTHON_GENERATOR):
            self.generators.append(generator)

    def _reduce_view(self, view: np.ndarray[Any, Any]) -> Any:
        """Reduce a view to a place in its base; None if pickle itself sends its memory unchanged.

        The base is sent once, for all its views, but not for a small part of it.
        """
        root = _root_of(view)
        whole = root.flags.c_contiguous or root.flags.f_contiguous
        if root is not view and whole and not root.dtype.hasobject:
            mapped = type(root) is np.memmap and _reduce_memmap(root) is not None
            if mapped or id(root) in self._sent or root.nbytes <= _MOST_OF_BASE * view.nbytes:
                self._sent[id(root)] = root
                ahead = view.__array_interface__["data"][0] - root.__array_interface__["data"][0]
                return _open_view, (root, ahead, view.shape, view.strides, view.dtype)
        if view.flags.c_contiguous or view.flags.f_contiguous or view.dtype.hasobject:
            return None
        # Pickle would copy it into the stream, and every worker would copy it from there.
        return np.ascontiguousarray(view).__reduce_ex__(5)


_MISSING = object()
_NUMBERS = (int, float, np.number)
_UNCHANGING = (int, float, str, bytes, type(None))
# Methods of a class whose objects pickle themselves, or change between epochs.
_OWN_STATE = ("__reduce_ex__", "__reduce__", "__getstate__", "on_epoch_begin", "on_epoch_end")


def _reduce_unused(value: Any) -> Any:
    """Reduce a user's object to its state before its first use, if it has opened something since.

    None if it hasn't. The whole state is reset, because any of it may belong to an open file.

    Raises:
        _Changed: Another attribute has changed since. If it is a place in that file, it must be
            reset; if it is a setting of the user's, it must be kept.
    """
    before, kind = attributes_before_use(value), type(value)
    if not before or isinstance(value, (type, types.FunctionType)):
        return None
    if any(getattr(kind, name, None) is not getattr(object, name, None) for name in _OWN_STATE):
        return None
    new = {name: now for name, now in vars(value).items() if before.get(name, _MISSING) is not now}
    opened = [name for name, now in new.items() if not _can_be_pickled(now)]
    if not opened:
        return None
    for name in sorted(new.keys() - opened):
        old, now = before.get(name, _MISSING), new[name]
        same = isinstance(now, _UNCHANGING) and type(now) is type(old) and now == old
        if not (same or isinstance(getattr(kind, name, None), functools.cached_property)):
            raise _Changed(
                f"{kind.__name__}.{opened[0]} can't be sent, and .{name} has changed since a "
                f"loader began to use it: give {kind.__name__} a __getstate__ that leaves "
                f"{opened[0]} out"
            )
    module: Any = copyreg
    return module.__newobj__, (kind,), before


def _counter_of(value: Any) -> str:
    """Name of an attribute of a user's object that counts calls, for example; else empty.

    Such an object may make the next batch of its own, whichever it is asked for.
    """
    for name, before in (attributes_before_use(value) or {}).items():
        now = vars(value).get(name)
        numbers = isinstance(before, _NUMBERS) and isinstance(now, _NUMBERS)
        if numbers and now is not before and now != before:
            return f"{type(value).__name__}.{name}"
    return ""


def _can_be_pickled(value: Any) -> bool:
    try:
        _Pickler(_Measured(_MOST_SECONDS), protocol=5, buffer_callback=lambda _: None).dump(value)
    except _TooMuch:
        return True
    except Exception:
        return False
    return True


def _draws_from(generator: Any, bits: Any) -> bool:
    """True if ``bits`` is the bit generator of a NumPy generator."""
    own = getattr(generator, "_bit_generator", None)
    return bits is (own if own is not None else getattr(generator, "bit_generator", None))


def _root_of(view: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array at the end of a view's bases; itself if it is not a view."""
    root = view
    while True:
        base: Any = root.base
        if type(base).__module__.endswith("stride_tricks"):  # as_strided's intermediate object.
            base = base.base
        if type(base) not in (np.ndarray, np.memmap):
            return root
        root = base


def _open_view(
    base: np.ndarray[Any, Any],
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Any:
    memory = base.reshape(-1, order="A").view(np.uint8)
    return np.ndarray(shape, dtype, memory, offset, strides)


def _reduce_memmap(array: np.memmap[Any, Any]) -> Any:
    """Reduce to the name, offset and shape of a mapped file; None if it isn't contiguous there."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base  # type: ignore[assignment]
    if not isinstance(base, np.memmap) or base.filename is None or base.mode == "c":
        return None
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        return None
    order = "C" if array.flags.c_contiguous else "F"
    # A slice keeps the offset attribute of its parent, so it is computed from the address.
    ahead = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    name = str(base.filename)
    if (mapped := _mapped_by(base)) is not None and mapped != os.path.realpath(name):
        check_unchanged(name, identity_of(mapped))
    place = name, array.dtype, base.offset + ahead, array.shape, order
    return _open_memmap, (*place, base.mode == "r", identity_of(name))


def _mapped_by(base: np.memmap[Any, Any]) -> str | None:
    """Present name of a mapped file, which " (deleted)" follows if it is gone; None if unknown."""
    begin = base.__array_interface__["data"][0] - base.offset % mmap.ALLOCATIONGRANULARITY
    end = begin + -(-len(base._mmap) // mmap.PAGESIZE) * mmap.PAGESIZE  # type: ignore[attr-defined]
    try:
        found = os.readlink(f"/proc/self/map_files/{begin:x}-{end:x}")
    except OSError:
        return None
    return found if found.endswith(" (deleted)") or os.path.exists(found) else None


def _open_memmap(
    filename: str,
    dtype: Any,
    offset: int,
    shape: tuple[int, ...],
    order: Literal["C", "F"],
    is_read_only: bool,
    identity: tuple[str, int, int],
) -> Any:
    if is_read_only:
        array: Any = np.memmap(filename, dtype, "r", offset, shape, order)
    else:
        # np.memmap's mode "c" reserves memory for a copy of everything.
        ahead = offset % mmap.ALLOCATIONGRANULARITY
        size = ahead + math.prod(shape) * np.dtype(dtype).itemsize
        with open(filename, "rb") as file:
            flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
            memory = mmap.mmap(file.fileno(), size, flags, offset=offset - ahead)
        array = np.ndarray(shape, dtype, memory, ahead, order=order)
    check_unchanged(filename, identity)
    return array
