"""Zero-copy NDArrays over the memory of NumPy arrays, through DLPack.

A DLPack consumer calls the *deleter* of a tensor when it no longer needs it. MXNet does so in a
thread of its engine, at any time. A deleter that needs the interpreter, like the one of
``mx.nd.from_numpy``, deadlocks a ``fork``, for which MXNet stops its engine, and crashes the
process once the interpreter is gone. Our deleter is the C library's ``sem_post``:

    | dl_tensor (48 bytes)     | manager_ctx | deleter = sem_post |     MXNet reads this once
    | a semaphore of 0 |  ...                | deleter = sem_post |     the layout from then on

The deleter only increments the semaphore to 1. When the next array is lent, a pass ends, or the
garbage collector runs, arrays with an incremented semaphore are released.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import functools
import gc
from typing import Any

from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray import ndarray as _ndarray
from numpy.typing import NDArray

from adapters.alignment import address_of

# In glibc and musl, a semaphore starts with its count and its number of waiters. The fields after
# them are only for waking waiters.
_Semaphore = ctypes.c_int64
# Arrays to check each time that one is lent, so that checking outpaces lending.
_LOOKED_AT = 8

_lent: collections.deque[tuple[ctypes.c_int64, NDArray[Any]]] = collections.deque()
_collections = 0
"""Number of full garbage collections at the last check."""
sem_post = _ndarray.DeleterFunc(ctypes.cast(ctypes.CDLL(None).sem_post, ctypes.c_void_p).value)


def lend(array: NDArray[Any], template: Any) -> Any:
    """Make an MXNet handle to the memory of a C-contiguous array.

    Args:
        array: The array. It is kept alive until MXNet releases it.
        template: ``DLManagedTensor`` for the array's shape and dtype, with deleter ``sem_post``.

    Returns:
        The ``NDArrayHandle``.
    """
    take_back(_LOOKED_AT)
    managed = _ndarray.DLManagedTensor.from_buffer_copy(template)
    managed.dl_tensor.data = address_of(array)
    handle = NDArrayHandle()
    # Not transient: MXNet would make its own copy of a transient handle.
    check_call(_LIB.MXNDArrayFromDLPackEx(ctypes.byref(managed), False, ctypes.byref(handle)))
    semaphore = _Semaphore.from_buffer(managed)
    semaphore.value = 0
    _lent.append((semaphore, array))
    return handle


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
    global _collections
    whole = gc.get_stats()[2]["collections"]
    take_back(_LOOKED_AT if whole == _collections else len(_lent))
    _collections = whole
    return 0


# Errors in a collector callback are ignored, and Ctrl-C during a collection is raised in the first
# Python function that runs: with a Python callback, one in three was lost. So the callback is a C
# function that schedules the check as a pending call. The main thread handles signals before it.
_Pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_pending = _Pending(_when_collected)
_at_next_step: Any = ctypes.pythonapi["Py_AddPendingCall"]
_at_next_step.argtypes = (_Pending, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
_callback = functools.partial(_at_next_step, _pending, None)


def _stop() -> None:
    """Remove the callback at exit, because the last collections run after its module is gone."""
    with contextlib.suppress(ValueError):
        gc.callbacks.remove(_callback)


gc.callbacks.append(_callback)
atexit.register(_stop)
