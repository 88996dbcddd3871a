"""Exceptions sent from a worker process, with their own type, whatever their constructor takes.

Pickle calls an exception's class with ``args``, which fails if the constructor takes something
else. Here, class, args and attributes are pickled, and the exception is rebuilt without calling its
constructor. Arguments that can't be pickled are replaced by their texts. An exception that can't be
rebuilt so, such as one of a library in C, is pickled as it is.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
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
    """Pickled parts of an exception, and a text in case they can't be pickled."""

    parts: bytes | None
    notes: tuple[str, ...]
    summary: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Take ``error`` apart, in the worker; attributes that can't be pickled are left out."""
        kind, args, members = type(error), _arguments(error), _members(error)
        attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        text = f"\nTraceback in worker process {os.getpid()}:\n{''.join(lines).rstrip()}"
        parts = _pickled((kind, _sendable(args), _picklable(members), _picklable(attributes)))
        try:
            _opened(parts)
        except Exception:
            parts = _pickled(error)
        return cls(parts, (*getattr(error, "__notes__", ()), text), summary(error))

    def restore(self) -> BaseException:
        """Rebuild the exception, in the trainer's process."""
        try:
            error = _opened(self.parts)
        except Exception:
            error = RuntimeError(f"{self.summary} (an exception that could not be sent as it is)")
        error.__notes__ = list(self.notes)  # type: ignore[attr-defined]
        return error


def summary(error: BaseException) -> str:
    """Class and message of an exception; the class alone if ``__str__`` raises."""
    with contextlib.suppress(Exception):
        return f"{type(error).__qualname__}: {error}"
    return type(error).__qualname__


def _opened(parts: bytes | None) -> BaseException:
    if parts is None:
        raise ValueError("not pickled")
    opened = cloudpickle.loads(parts)
    return opened if isinstance(opened, BaseException) else _restored(*opened)


def _restored(
    kind: Any, args: Any, members: dict[str, Any], attributes: dict[str, Any]
) -> BaseException:
    if kind.__module__ == "builtins":
        error: BaseException = kind(*args)
    else:
        # The class's own ``__new__`` may take something else.
        base = next(each for each in kind.__mro__ if each.__module__ == "builtins")
        error = base.__new__(kind, *args)
        error.args = args
    vars(error).update(attributes)
    for name, value in members.items():
        # None may be set or unset, which makes a difference to OSError's text.
        if getattr(error, name, error) is not value:
            with contextlib.suppress(AttributeError, TypeError):  # It is read-only.
                object.__setattr__(error, name, value)
    return error


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """Constructor arguments of an exception; built-in ones sometimes have more than ``args``."""
    reduced = error.__reduce__() if type(error).__module__ == "builtins" else ()
    return reduced[1] if len(reduced) > 1 and isinstance(reduced[1], tuple) else error.args


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


def _sendable(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each if _pickled(each) else _text(each) for each in args)


def _text(value: Any) -> str:
    with contextlib.suppress(Exception):
        return repr(value)
    return f"<{type(value).__qualname__}>"


def _picklable(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if _pickled(value)}


def _pickled(value: Any) -> bytes | None:
    try:
        data = dumps(value)
        cloudpickle.loads(data)
    except Exception:
        return None
    return data


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
    stream = io.BytesIO()
    _Pickler(stream, protocol=5).dump(value)
    return stream.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) and value in _keys:
            return _class_of, (_keys[value],)
        return super().reducer_override(value)


def _class_of(key: bytes) -> type:
    return _known[key]


def exit_cause(exitcode: int | None) -> str:
    """Describe how a process ended."""
    if exitcode is None:
        return "ended, in an unknown way"
    if exitcode >= 0:
        return f"exited with code {exitcode}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exitcode).name} (signal {-exitcode})"
    return f"was killed by signal {-exitcode}"
