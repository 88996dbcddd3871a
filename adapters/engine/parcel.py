"""A plan on its way to worker processes: pickled once, its arrays shared and not copied to each.

    | array | pad to 64 | array | pad to 64 | ... | pickle | pad to 64 | places (int64) |

Pickle's protocol 5 hands out contiguous arrays as buffers; they go into one shared file, which each
worker maps privately: reading shares the pages, and a transform that writes into its data set
changes its own copy only. Memory-mapped arrays travel as the name of their file, locks as new ones
that nobody holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import io
import operator
import os
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import cloudpickle
import numpy as np

from adapters.alignment import ALIGNMENT_BYTES
from adapters.engine.memory import FileName, SharedFile, map_private
from adapters.engine.reducers import reducers

# Modules that can't always be imported by themselves, and what knows how to.
_IMPORTERS = {b"mxnet": "adapters.gluon"}


# They guard what one process has, or belong to its threads: another one has new ones. Events,
# semaphores, barriers and queues consist of conditions and keep their state.
_OF_A_PROCESS: dict[type, Callable[[Any], Any]] = {
    type(threading.Lock()): lambda _: (threading.Lock, ()),
    type(threading.RLock()): lambda _: (threading.RLock, ()),
    # Whoever waits does so here.
    threading.Condition: lambda condition: (threading.Condition, (condition._lock,)),
    threading.local: lambda _: (threading.local, ()),
}
_CTYPES_ARRAY = type(ctypes.Array)
_NUMPY_GENERATOR = np.random.mtrand._rand
_PYTHON_GENERATOR = random._inst


class Address(NamedTuple):
    """Where a parcel lies; small, as it travels with every job."""

    name: FileName
    places: int
    """Offset of the table that ends the file: start and length of every array, and the pickle."""
    imports: tuple[str, ...] = ()
    """What must be imported before it is opened."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that must be set before."""


class Parcel:
    """An object in shared memory, for as long as this is open.

    Args:
        content: The object.
        environment: Variables that must be set in the process that opens it.

    Raises:
        Exception: The object can't be pickled, not even by cloudpickle.
    """

    def __init__(self, content: Any, environment: Mapping[str, str] | None = None) -> None:
        pickled, buffers, imports = pickled_apart(content)
        parts = [*(buffer.raw() for buffer in buffers), memoryview(pickled)]
        places, end = np.empty((len(parts), 2), np.int64), 0
        for place, part in zip(places, parts):
            place[:] = end, part.nbytes
            end += -(-part.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._file = SharedFile()
        self._file.grow(end + places.nbytes)
        with self._file.map() as memory:
            for (start, length), part in zip(places, parts):
                memory[start : start + length] = part
            memory[end:] = places.tobytes()
        variables = tuple((environment or {}).items())
        self.address = Address(self._file.name, end, imports, variables)

    @property
    def serial(self) -> int:
        """Which parcel of this process it is."""
        return self.address.name.serial

    def close(self) -> None:
        """Give the memory back, once no worker maps it."""
        self._file.close()


def pickled_apart(content: Any) -> tuple[bytes, list[pickle.PickleBuffer], tuple[str, ...]]:
    """The pickle of an object, its arrays, and what must be imported before it is opened.

    Raises:
        Exception: The object can't be pickled, not even by cloudpickle.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(content)
    pickled = stream.getvalue()
    return pickled, buffers, tuple(how for name, how in _IMPORTERS.items() if name in pickled)


def import_before(modules: Iterable[str]) -> None:
    """Import what must be there before a pickle is opened."""
    for module in modules:
        # It may have been but a word in the data; if it wasn't, the pickle says so better.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def open_parcel(address: Address) -> Any:
    """The object, in another process; its arrays lie in the shared memory."""
    os.environ.update(address.environment)
    return _loaded(address, pickle.Unpickler)


def copy_of(address: Address) -> tuple[Any, frozenset[type]]:
    """A copy of the object in the process that has sent it, and the classes that belong to it."""
    classes: set[type] = set()

    class Copying(pickle.Unpickler):
        """Makes new classes where cloudpickle would find those of a script, and rewrite them."""

        def find_class(self, module: str, name: str) -> Any:
            found = super().find_class(module, name)
            of_classes = name in ("_make_skeleton_class", "_make_skeleton_enum")
            return functools.partial(made, found) if of_classes else found

    def made(make: Callable[..., type], *arguments: Any) -> type:
        *others, _, extra = arguments  # Without its number, by which others are found.
        new = make(*others, None, extra)
        classes.add(new)
        return new

    return _loaded(address, Copying), frozenset(classes)


def _loaded(address: Address, unpickler: Any) -> Any:
    import_before(address.imports)
    memory = memoryview(map_private(address.name))
    places = np.frombuffer(memory[address.places :], np.int64).reshape(-1, 2).tolist()
    *buffers, content = (memory[start : start + length] for start, length in places)
    return unpickler(io.BytesIO(content), buffers=buffers).load()


def pickles(content: Any) -> str | None:
    """None where ``content`` can be sent to a process, else what stands in the way."""
    try:
        _Pickler(io.BytesIO(), protocol=5, buffer_callback=lambda _: None).dump(content)
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def dump(self, content: Any) -> None:
        # In a process that multiprocessing has spawned, the script is a module that cloudpickle
        # would send by name, and no worker can import it.
        if (script := sys.modules.get("__mp_main__")) is not None:
            cloudpickle.register_pickle_by_value(script)
        super().dump(content)

    def reducer_override(self, value: Any) -> Any:
        # Functions such as random.choice belong to these. A copy would have every worker draw the
        # same, and be beyond the reach of who seeds the worker's own.
        if value is _NUMPY_GENERATOR:
            return getattr, (np.random.mtrand, "_rand")
        if value is _PYTHON_GENERATOR:
            return getattr, (random, "_inst")
        if type(value) is _CTYPES_ARRAY and (factors := _factors(value)) is not None:
            return operator.mul, factors
        if (renewed := _OF_A_PROCESS.get(type(value))) is not None:
            return renewed(value)
        if type(value) is np.memmap and (reduced := _reduce_memmap(value)) is not None:
            return reduced
        if type(value) is np.ndarray and _has_gaps(value):
            # Pickle would put it into the stream, from which every worker makes a copy.
            return np.ascontiguousarray(value).__reduce_ex__(5)
        for reducer in reducers:
            if (reduced := reducer(value)) is not NotImplemented:
                return reduced
        return super().reducer_override(value)


def _factors(array: Any) -> tuple[type, int] | None:
    """What made a type of C's arrays, which has no name to be found by; None of a class."""
    kind, length = getattr(array, "_type_", None), getattr(array, "_length_", None)
    return (kind, length) if kind and length is not None and kind * length is array else None


def _has_gaps(array: np.ndarray[Any, Any]) -> bool:
    return not (array.flags.c_contiguous or array.flags.f_contiguous or array.dtype.hasobject)


def _reduce_memmap(array: np.memmap[Any, Any]) -> Any:
    """Name, offset and shape of a mapped file; None where the array isn't one plain stretch."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base  # type: ignore[assignment]
    if not isinstance(base, np.memmap) or base.filename is None or base.mode == "c":
        return None
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        return None
    order = "C" if array.flags.c_contiguous else "F"
    # A slice keeps the offset attribute of the array that it was cut from; its address tells.
    ahead = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    place = str(base.filename), array.dtype, base.offset + ahead, array.shape
    return _open_memmap, (*place, order)


def _open_memmap(
    filename: str, dtype: Any, offset: int, shape: tuple[int, ...], order: Literal["C", "F"]
) -> Any:
    return np.memmap(filename, dtype, "c", offset, shape, order)
