"""Memory that NDArrays lie in and NumPy arrays own, for as long as MXNet refers to it.

DLPack has whoever takes a tensor call its *deleter* when it is done with it. MXNet does so in a
thread of its engine, in the middle of whatever the program does. A deleter that needs the
interpreter, as the one of ``mx.nd.from_numpy``, hangs a ``fork`` that MXNet stops its engine for,
and ends the process badly when the interpreter is gone. So ours is the C library's ``sem_post``:

    | dl_tensor (48 bytes)     | manager_ctx | deleter = sem_post |     what MXNet reads, once
    | a semaphore of 0 |  ...                | deleter = sem_post |     what is there from then on

It counts the semaphore up to 1, and nothing else. Whoever lends the next array, ends a pass, or
runs the garbage collector looks whose semaphore has been counted up, and lets go of these arrays.
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

# In glibc and musl, a semaphore begins with its count and with how many wait for it; what is behind
# them says how those are woken.
_Semaphore = ctypes.c_int64
# Arrays that are looked at each time that another one is lent: more than are lent meanwhile.
_LOOKED_AT = 8

_lent: collections.deque[tuple[ctypes.c_int64, NDArray[Any]]] = collections.deque()
_collections = 0
"""Of everything, by the collector, when that was last looked at."""
sem_post = _ndarray.DeleterFunc(ctypes.cast(ctypes.CDLL(None).sem_post, ctypes.c_void_p).value)


def lend(array: NDArray[Any], template: Any) -> Any:
    """Have MXNet make a handle to the memory of a C-contiguous array.

    Args:
        array: Kept until MXNet is done with it.
        template: The ``DLManagedTensor`` of such arrays, whose deleter is ``sem_post``.

    Returns:
        The ``NDArrayHandle``.
    """
    take_back(_LOOKED_AT)
    managed = _ndarray.DLManagedTensor.from_buffer_copy(template)
    managed.dl_tensor.data = address_of(array)
    handle = NDArrayHandle()
    # Not a transient one, of which MXNet would make a copy that we don't know.
    check_call(_LIB.MXNDArrayFromDLPackEx(ctypes.byref(managed), False, ctypes.byref(handle)))
    semaphore = _Semaphore.from_buffer(managed)
    semaphore.value = 0
    _lent.append((semaphore, array))
    return handle


def take_back(most: int) -> None:
    """Let go of arrays that MXNet is done with, looking at this many of them."""
    for _ in range(min(most, len(_lent))):
        try:
            semaphore, array = _lent.popleft()
        except IndexError:  # Another thread looks, too.
            return
        if not semaphore.value:
            _lent.append((semaphore, array))


def _when_collected(_: None) -> int:
    global _collections
    whole = gc.get_stats()[2]["collections"]
    take_back(_LOOKED_AT if whole == _collections else len(_lent))
    _collections = whole
    return 0


# What a callback of the collector's raises is ignored, and a Ctrl-C that comes during a collection
# is raised in the first Python function behind it: one in three was lost. So the callback is none.
# It has the main thread look at its next step, before which that raises what there is to raise.
_Pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_pending = _Pending(_when_collected)
_at_next_step: Any = ctypes.pythonapi["Py_AddPendingCall"]
_at_next_step.argtypes = (_Pending, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
_callback = functools.partial(_at_next_step, _pending, None)


def _stop() -> None:
    """The interpreter ends: what the callback needs is taken down before its last collections."""
    with contextlib.suppress(ValueError):
        gc.callbacks.remove(_callback)


gc.callbacks.append(_callback)
atexit.register(_stop)
