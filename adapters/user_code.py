"""User code runs in one thread at a time, unless it is declared thread-safe.

A data set that seeks and reads in its own file handle, or a transform that fills one buffer, is
right on one thread and silently wrong on two; and two data sets may share one handle. So this
process has one lock for all user code (data sets, transforms, collate and decode functions) that
isn't thread-safe. A ``Gate`` holds it while such code runs.

A gate may be entered from any thread, and is reentrant. It blocks while another thread runs such
code. A thread inside that waits for another loader's workers lets them in, see ``left_to_others``.
Each worker process has its own lock.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

log = logging.getLogger("adapters")

_CONTAINERS = (list, tuple, dict, range, str, bytes, bytearray, memoryview, np.ndarray)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, np.ufunc)
_LIBRARIES = ("builtins", "numpy", "operator", "math", "keras", "mxnet", "adapters")
# Objects with no state that another call could disturb.
_STATELESS = ("operator", "adapters")
_PREPROCESSING = frozenset(
    ("CategoryEncoding", "CenterCrop", "Discretization", "Hashing", "Normalization", "Pipeline")
    + ("Rescaling", "Resizing")
)
_SYSTEM = frozenset({*sys.stdlib_module_names, "numpy"})
# Members of a list, and objects in total, that are inspected within an MXNet object.
_MOST_MEMBERS, _MOST_OBJECTS = 100, 10_000
_PATIENCE_SECONDS = 10.0


def owner_of(code: Any) -> Any:
    """Return the object whose state a callable uses; for a bound method, its instance."""
    while True:
        if isinstance(code, functools.partial):
            code = code.func
            continue
        bound = isinstance(code, (types.MethodType, types.BuiltinFunctionType))
        if not bound or isinstance(code.__self__, (types.ModuleType, type(None))):
            return code
        code = code.__self__


def is_thread_safe(code: Any) -> bool:
    """True if several threads may run the code at once: declared by ``thread_safe``, or known."""
    owner = owner_of(code)
    for each in (code, owner):
        declared = getattr(each, "thread_safe", None)
        if isinstance(declared, (bool, np.bool_)):
            return bool(declared)
    if type(owner) in _CONTAINERS:
        return True
    if isinstance(owner, _FUNCTIONS):
        return _is_of(getattr(owner, "__module__", None) or "numpy", _LIBRARIES)
    if isinstance(owner, type):
        return _is_of(owner.__module__, ("builtins", "numpy"))
    module = type(owner).__module__
    if _is_of(module, ("mxnet",)):  # A block, a data set or an augmenter; may have user code.
        return all(map(is_thread_safe, _held_by_mxnet(owner)))
    if _is_of(module, ("keras",)):
        return _is_preprocessing(code, owner)
    return _is_of(module, _STATELESS)


def _is_preprocessing(code: Any, owner: Any) -> bool:
    """True for a Keras layer whose calls leave nothing behind, such as ``Rescaling``."""
    called = code is owner or getattr(code, "__name__", "") in ("__call__", "call")
    if not called or not hasattr(owner, "_flatten_layers"):
        return False
    unbuilt = sys.modules["keras"].Layer.build
    return all(
        type(layer).__name__ in _PREPROCESSING
        and _is_of(type(layer).__module__, ("keras",))
        and layer.activity_regularizer is None
        and (layer.built or type(layer).build is unbuilt)
        for layer in owner._flatten_layers()
    )


def _held_by_mxnet(owner: Any) -> Iterator[Any]:
    """Yield objects within MXNet objects that aren't MXNet's, such as a ``Lambda``'s function."""
    seen: dict[int, Any] = {}
    left = [owner]
    while left and len(seen) < _MOST_OBJECTS:
        each = owner_of(left.pop())
        if id(each) in seen:
            continue
        seen[id(each)] = each  # Ids are unique only while the object is alive.
        function = isinstance(each, (*_FUNCTIONS, type))
        module = (each if function else type(each)).__module__ or "builtins"
        if isinstance(each, (list, tuple)):
            left += each[:_MOST_MEMBERS]
        elif isinstance(each, dict):
            left += [*each.values()][:_MOST_MEMBERS]
        elif _is_of(module, ("mxnet",)):
            left += [] if function else getattr(each, "__dict__", {}).values()
        elif module.partition(".")[0] not in _SYSTEM:
            yield each


def _is_of(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


class Gate:
    """Lets one thread at a time run code that isn't thread-safe; true if there is such code.

    The ``code`` comes with names for messages. ``thread_safe`` is the user's declaration for all of
    it; None to check each one.
    """

    def __init__(self, code: Iterable[tuple[str, Any]], thread_safe: bool | None = None) -> None:
        self._code = [(name, each) for name, each in code if each is not None]
        self._declared = thread_safe
        owners = [owner_of(each) for _, each in self._code]
        self._objects = [_objects.setdefault(id(each), _Object(each)) for each in owners]
        unsafe = [
            name
            for name, each in self._code
            if not (is_thread_safe(each) if thread_safe is None else thread_safe)
        ]
        self.names = tuple(dict.fromkeys(unsafe))
        """Arguments whose code isn't thread-safe."""

    def __bool__(self) -> bool:
        return bool(self.names)

    def __enter__(self) -> None:
        if self.names and not _lock.acquire(timeout=_PATIENCE_SECONDS):
            _say_what_waits(self.names)
            _lock.acquire()

    def __exit__(self, *_: object) -> None:
        if self.names:
            _lock.release()

    def __reduce__(self) -> Any:
        return Gate, (self._code, self._declared)


_lock: Any = threading.RLock()


@functools.cache  # Warn once.
def _say_what_waits(names: tuple[str, ...]) -> None:
    log.warning(
        "%s: waiting for other code that isn't declared thread-safe to return, for %g seconds by "
        "now; if that code waits for this, write thread_safe=True for one of the two",
        " and ".join(names),
        _PATIENCE_SECONDS,
    )


def is_within() -> bool:
    """True if this thread is within a gate; it must not wait for other threads then."""
    return bool(_lock._is_owned())


@contextlib.contextmanager
def left_to_others() -> Iterator[None]:
    """Let other threads enter the gate while this thread, which may be within, waits for them."""
    if not is_within():
        yield
        return
    held = _lock._release_save()
    try:
        yield
    finally:
        _lock._acquire_restore(held)


def renew_lock() -> None:
    """Replace the lock, whose holder never releases it, as in a forked worker."""
    global _lock
    _lock = threading.RLock()


def _after_fork() -> None:
    """Replace the lock in a forked process, whose holder may not have been forked."""
    if not _lock._is_owned():
        renew_lock()


os.register_at_fork(after_in_child=_after_fork)


class _Object:
    """A user's object, kept alive so that no other object gets its ``id``."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.unused = dict(getattr(owner, "__dict__", ()))
        """Attributes before a loader used the object."""


_objects: weakref.WeakValueDictionary[int, _Object] = weakref.WeakValueDictionary()


def users_objects() -> list[Any]:
    """Users' objects that loaders have now."""
    return [known.owner for known in list(_objects.values())]


def attributes_before_use(owner: Any) -> dict[str, Any] | None:
    """Attributes of an object before a loader used it; None for an unknown object.

    A file opened on first use isn't among them.
    """
    known = _objects.get(id(owner))
    return None if known is None or known.owner is not owner else known.unused


def name_of(function: Any) -> str:
    """Name of a user's function, with file and line if known; one of this package in full."""
    kind = type(function)
    if kind.__module__.startswith(("adapters.collating", "adapters.transforms.")):
        return repr(function)
    name = getattr(function, "__qualname__", kind.__name__)
    code = getattr(function, "__code__", None)
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})" if code else name
