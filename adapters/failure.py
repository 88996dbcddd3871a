"""Exceptions sent to or from a worker process, whatever their constructor takes.

Pickle calls an exception's class with ``args``, which fails if the constructor takes something
else. Here, class, args and attributes are pickled, and the exception is rebuilt without calling its
constructor. Arguments that can't be pickled are replaced by their texts. An exception that can't be
rebuilt so, such as one of a library in C, is pickled as it is.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import traceback
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from types import MemberDescriptorType
from typing import Any

import cloudpickle


@dataclass(frozen=True)
class Failure:
    """A pickled exception, and a text in case it can't be pickled."""

    pickled: bytes
    notes: tuple[str, ...]
    summary: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Pickle ``error``, in the worker; attributes that can't be pickled are left out."""
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        text = f"\nTraceback in worker process {os.getpid()}:\n{''.join(lines).rstrip()}"
        try:
            pickle.loads(pickled := dumps(error))
        except Exception:
            pickled = b""
        return cls(pickled, (*getattr(error, "__notes__", ()), text), _summary(error))

    def restore(self) -> BaseException:
        """Rebuild the exception, in the trainer's process."""
        try:
            error: BaseException = pickle.loads(self.pickled)
        except Exception:
            error = RuntimeError(f"{self.summary} (an exception that could not be sent as it is)")
        error.__notes__ = list(self.notes)  # type: ignore[attr-defined]
        return error


def _summary(error: BaseException) -> str:
    """Class and message of an exception; the class alone if ``__str__`` raises."""
    with contextlib.suppress(Exception):
        return f"{type(error).__qualname__}: {error}"
    return type(error).__qualname__


def reduce_exception(error: BaseException) -> Any:
    """Reduce an exception as ``__reduce__`` would; ``NotImplemented`` if it can't be rebuilt."""
    kind, args = type(error), error.args
    if kind.__module__ == "builtins":  # These sometimes take more than ``args``.
        reduced: Any = error.__reduce__()
        args = reduced[1]
    args = tuple(each if _is_picklable(each) else _text(each) for each in args)
    try:
        _made(kind, args)
    except Exception:
        return NotImplemented
    members, attributes = (
        {name: value for name, value in values.items() if _is_picklable(value)}
        for values in (_members(error), vars(error))
    )
    return _made, (kind, args), (members, attributes), None, None, _set_state


def _made(kind: Any, args: tuple[Any, ...]) -> BaseException:
    if kind.__module__ == "builtins":
        error: BaseException = kind(*args)
    else:
        # The class's own ``__new__`` may take something else.
        base = next(each for each in kind.__mro__ if each.__module__ == "builtins")
        error = base.__new__(kind, *args)
        error.args = args
    return error


def _set_state(error: BaseException, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    members, attributes = state
    vars(error).update(attributes)
    for name, value in members.items():
        # None may be set or unset, which makes a difference to OSError's text.
        if getattr(error, name, error) is not value:
            with contextlib.suppress(AttributeError, TypeError):  # It is read-only.
                object.__setattr__(error, name, value)


def _members(error: BaseException) -> dict[str, Any]:
    """Values of slots, and of the members of built-in classes, such as ``errno``."""
    members = {}
    for kind in reversed(type(error).__mro__):
        for name, member in vars(kind).items():
            # The object of an AttributeError may be the whole data set.
            if isinstance(member, MemberDescriptorType) and member is not AttributeError.obj:
                with contextlib.suppress(AttributeError):  # It isn't set.
                    members[name] = member.__get__(error)
    return {name: value for name, value in members.items() if not name.startswith("__")}


def _text(value: Any) -> str:
    with contextlib.suppress(Exception):
        return repr(value)
    return f"<{type(value).__qualname__}>"


def _is_picklable(value: Any) -> bool:
    try:  # An exception in it, which may refer to the outer one, must pickle by itself.
        pickle.loads(_dumped(value, _ClassPickler))
    except Exception:
        return False
    return True


# --- classes that the trainer has ---

_known: weakref.WeakValueDictionary[bytes, type] = weakref.WeakValueDictionary()
_keys: weakref.WeakKeyDictionary[type, bytes] = weakref.WeakKeyDictionary()


def key_of(kind: type) -> bytes:
    """Name a class that is sent with its definition, the same for all plans."""
    key = _keys.setdefault(kind, uuid.uuid4().bytes)
    _known[key] = kind
    return key


def know(classes: Mapping[bytes, type]) -> None:
    """Note the classes that came with a plan, in a worker."""
    _known.update(classes)
    _keys.update({kind: key for key, kind in classes.items()})


def dumps(value: Any) -> bytes:
    """Pickle a value by cloudpickle, for the trainer, whose classes stay as they are there.

    Cloudpickle would send their definitions, and overwrite the trainer's class attributes.
    """
    return _dumped(value, _Pickler)


def _dumped(value: Any, pickler: type[_ClassPickler]) -> bytes:
    stream = io.BytesIO()
    pickler(stream, protocol=5).dump(value)
    return stream.getvalue()


class _ClassPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) and value in _keys:
            return _class_of, (_keys[value],)
        return super().reducer_override(value)


class _Pickler(_ClassPickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            return reduce_exception(value)
        return super().reducer_override(value)


def _class_of(key: bytes) -> type:
    return _known[key]
