"""Conversion between NDArrays and NumPy arrays that share memory, through DLPack.

An NDArray made by ``as_ndarray`` keeps the NumPy array, and its slot or memory block, alive as long
as MXNet refers to it. A DLPack consumer calls the *deleter* of a tensor when it no longer needs it.
MXNet does so in a thread of its engine, at any time. A deleter that needs the interpreter, like the
one of ``mx.nd.from_numpy``, deadlocks a ``fork``, for which MXNet stops its engine, and crashes the
process once the interpreter is gone. Our deleter is the C library's ``sem_post``:

    | dl_tensor (48 bytes)     | manager_ctx | deleter = sem_post |     MXNet reads this once
    | a semaphore of 0 |  ...                | deleter = sem_post |     the layout from then on

The deleter only increments the semaphore to 1. When the next array is lent, a pass ends, or the
garbage collector runs, arrays with an incremented semaphore are released.
"""

from __future__ import annotations

import atexit
import copy
import ctypes
import functools
import gc
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray import ndarray as _ndarray
from mxnet.recordio import MXIndexedRecordIO, MXRecordIO
from numpy.typing import NDArray

from adapters.alignment import address_of
from adapters.engine.reducers import SETTINGS, reducers
from adapters.images import pillow

# Dtypes that nd.array accepts. MXNet has no others.
DTYPES = frozenset(each for each in _ndarray._DTYPE_NP_TO_MX if isinstance(each, type))

_LEAVES = frozenset((int, float, str, np.ndarray, mx.nd.NDArray, mx.np.ndarray))


def as_ndarray(array: NDArray[Any], numpy_semantics: bool) -> Any:
    """Make a CPU NDArray over the memory of ``array``. Nothing else may write to that memory.

    The array is copied if it isn't C-contiguous, has another byte order, or DLPack lacks its dtype.
    """
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    template = _template(array.shape, array.dtype)
    if template is None:
        make = mx.np.array if numpy_semantics else mx.nd.array
        return make(array, dtype=array.dtype)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    take_back(_LOOKED_AT)
    managed = _ndarray.DLManagedTensor.from_buffer_copy(template)
    managed.dl_tensor.data = address_of(array)
    handle = NDArrayHandle()
    # Not transient: MXNet would make its own copy of a transient handle.
    check_call(_LIB.MXNDArrayFromDLPackEx(ctypes.byref(managed), False, ctypes.byref(handle)))
    semaphore = _Semaphore.from_buffer(managed)
    semaphore.value = 0
    _lent.append((semaphore, array))
    return mx.np.ndarray(handle=handle) if numpy_semantics else mx.nd.NDArray(handle=handle)


@functools.lru_cache(maxsize=256)
def _template(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """DLPack tensor for arrays of this shape and dtype; None if MXNet must copy them."""
    if dtype.type not in DTYPES:
        names = ", ".join(sorted(np.dtype(each).name for each in DTYPES))
        raise TypeError(
            f"samples must be of a dtype that MXNet has, got {dtype}: use one of {names}, or a "
            "batchify_fn of your own"
        )
    number = _ndarray.DLDataType.TYPE_MAP.get(dtype.name)
    if number is None or not all(shape):
        return None
    managed = _ndarray.DLManagedTensor()
    tensor = managed.dl_tensor
    tensor.ctx = _ndarray.DLContext(1, 0)
    tensor.ndim = len(shape)
    tensor.dtype = number
    tensor.shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    managed.deleter = _sem_post
    return managed


def as_numpy(array: Any) -> NDArray[Any]:
    """Make a NumPy array over the memory of a dense CPU NDArray, or a copy of another NDArray.

    Neither array may be changed while the other is in use.
    """
    array.wait_to_read()
    if array.stype != "default" or array.ctx.device_type == "gpu" or not array.size:
        return array.asnumpy()  # type: ignore[no-any-return]
    pointer = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    dtype = np.dtype(array.dtype)
    memory = (ctypes.c_char * (array.size * dtype.itemsize)).from_address(pointer.value or 0)
    memory.owner = array
    view: NDArray[Any] = np.frombuffer(memory, dtype).reshape(array.shape)
    return view


def copy_into(row: NDArray[Any], array: Any) -> None:
    """Copy a dense NDArray into C-contiguous memory of its size and dtype."""
    memory, size = ctypes.c_void_p(address_of(row)), ctypes.c_size_t(row.size)
    check_call(_LIB.MXNDArraySyncCopyToCPU(array.handle, memory, size))


def map_members(function: Callable[[Any], Any], tree: Any, lists: bool = False) -> Any:
    """Apply ``function`` to everything in nested lists, tuples and dicts, also of subclasses.

    Subclasses of tuple that aren't named tuples are left whole. With ``lists``, tuples become
    lists, as in MXNet's pinning.
    """
    if type(tree) in _LEAVES:  # Saves a third of the time for a list of arrays.
        return function(tree)
    if isinstance(tree, list) or (lists and isinstance(tree, tuple)):
        members = [map_members(function, member, lists) for member in tree]
        if lists or type(tree) is list:
            return members
        mapped: Any = copy.copy(tree)
        mapped[:] = members
        return mapped
    if type(tree) is tuple or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return tuple.__new__(type(tree), [map_members(function, member) for member in tree])
    if isinstance(tree, dict):
        mapped = copy.copy(tree)  # Subclasses have an order or a default.
        # Their own ``update`` may add, as a Counter's, or refuse.
        named = {name: map_members(function, each, lists) for name, each in tree.items()}
        dict.update(mapped, named)
        return mapped
    return function(tree)


def map_arrays(function: Callable[[Any], Any], tree: Any, lists: bool = False) -> Any:
    """Apply ``function`` to every NDArray in nested lists, tuples and dicts."""
    return map_members(
        lambda leaf: function(leaf) if isinstance(leaf, mx.nd.NDArray) else leaf, tree, lists
    )


# --- memory lent to MXNet ---

# In glibc and musl, a semaphore starts with its count and its number of waiters. The fields after
# them are only for waking waiters.
_Semaphore = ctypes.c_int64
# Arrays to check each time that one is lent, so that checking outpaces lending.
_LOOKED_AT = 8

_lent: deque[tuple[ctypes.c_int64, NDArray[Any]]] = deque()
_sem_post = _ndarray.DeleterFunc(ctypes.cast(ctypes.CDLL(None).sem_post, ctypes.c_void_p).value)


def take_back(most: int) -> None:
    """Check at most ``most`` lent arrays, and release those that MXNet no longer uses."""
    for _ in range(min(most, len(_lent))):
        try:
            semaphore, array = _lent.popleft()
        except IndexError:  # Another thread checks too.
            return
        if not semaphore.value:
            _lent.append((semaphore, array))


def _when_collected(_: None) -> int:
    is_full = not any(gc.get_count()[1:])  # They count the collections since a larger one.
    take_back(len(_lent) if is_full else _LOOKED_AT)
    return 0


# Errors in a collector callback are ignored, and Ctrl-C during a collection is raised in the first
# Python function that runs: with a Python callback, one in three was lost. So the callback is a C
# function that schedules the check as a pending call. The main thread handles signals before it.
_Pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_pending = _Pending(_when_collected)
_at_next_step: Any = ctypes.pythonapi["Py_AddPendingCall"]
_at_next_step.argtypes = (_Pending, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
_callback = functools.partial(_at_next_step, _pending, None)
gc.callbacks.append(_callback)
atexit.register(gc.callbacks.remove, _callback)  # The last collections find no module any more.


# --- pickling for worker processes ---


def _reduce(value: Any) -> Any:
    """Reduce NDArrays to shared memory, blocks without compiled graphs, and open record files."""
    if isinstance(value, mx.nd.NDArray) and value.stype == "default":
        if value.ctx.device_type == "gpu":
            return NotImplemented
        return as_ndarray, (as_numpy(value), type(value) is mx.np.ndarray)
    if isinstance(value, mx.gluon.HybridBlock) and getattr(value, "_cached_op", None) is not None:
        reduced = value.__reduce_ex__(2)
        state = {**value.__dict__, "_cached_op": None, "_cached_graph": ()}
        return (*reduced[:2], state)
    if isinstance(value, MXRecordIO):
        return _reduce_record_file(value)
    return NotImplemented


def _reduce_record_file(file: Any) -> Any:
    """Reduce a record file of MXNet, whose own ``__getstate__`` closes it, without closing it."""
    if file.is_open and (file.writable or not isinstance(file, MXIndexedRecordIO)):
        # Opened again, it would be at its first record, or empty.
        raise pickle.PicklingError(
            "a record file in a data set must be an MXIndexedRecordIO to be read by processes, got "
            f"an open {type(file).__name__}({file.uri.value!r}, {file.flag!r})"
        )
    closed = object.__new__(type(file))
    vars(closed).update(vars(file), is_open=False)
    reduced = closed.__reduce_ex__(2)
    if len(reduced) > 2:
        reduced[2]["is_open"] = file.is_open
    return reduced


reducers.append(_reduce)
SETTINGS |= pillow.SETTINGS
