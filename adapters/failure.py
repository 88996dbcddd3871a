"""An exception on its way from a worker process: its own type, whatever its constructor asks for.

Pickle calls an exception's class with ``args`` again, which fails for every class whose constructor
takes something else. So class, args, attributes and notes travel apart, and the object is put
together without calling the constructor.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import signal
import traceback
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())  # Since Python 3.11.


@dataclass(frozen=True)
class Failure:
    """What crosses over: pickled parts, and a text for those that don't pickle."""

    kind: bytes | None
    args: bytes | None
    attributes: bytes | None
    notes: tuple[str, ...]
    summary: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Take apart ``error``, in the worker."""
        attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        told = f"\nTraceback in worker process {os.getpid()}:\n{''.join(lines).rstrip()}"
        return cls(
            _pickled(type(error)),
            _pickled(_arguments(error)),
            _pickled(attributes),
            (*getattr(error, "__notes__", ()), told),
            f"{type(error).__qualname__}: {error}",
        )

    def restore(self) -> BaseException:
        """Put the exception together, in the trainer's process."""
        try:
            error = self._restored()
        except Exception:
            error = RuntimeError(f"{self.summary} (an exception that could not be sent as it is)")
        error.__notes__ = list(self.notes)  # type: ignore[attr-defined]
        return error

    def _restored(self) -> BaseException:
        if self.kind is None or self.args is None:
            raise ValueError("not pickled")
        kind, args = cloudpickle.loads(self.kind), cloudpickle.loads(self.args)
        if issubclass(kind, _GROUP):
            error: BaseException = kind.__new__(kind, args[0], [each.restore() for each in args[1]])
        elif kind.__module__ == "builtins":
            error = kind(*args)
        else:
            error = kind.__new__(kind, *args)
            error.args = args
        if self.attributes is not None:
            vars(error).update(cloudpickle.loads(self.attributes))
        return error


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """What makes the exception again; Python's own ones have more than ``args`` at times."""
    if isinstance(error, _GROUP):
        return error.message, [_member(each) for each in error.exceptions]
    reduced = error.__reduce__() if type(error).__module__ == "builtins" else ()
    return reduced[1] if len(reduced) > 1 and isinstance(reduced[1], tuple) else error.args


def _member(error: BaseException) -> Failure:
    """One of a group, whose own note has its traceback."""
    failure = Failure.of(error)
    return replace(failure, notes=failure.notes[:-1])


def _pickled(value: Any) -> bytes | None:
    try:
        data: bytes = cloudpickle.dumps(value)
        cloudpickle.loads(data)
    except Exception:
        return None
    return data


def exit_cause(exitcode: int | None) -> str:
    """How a process has ended, in words."""
    if exitcode is None:
        return "ended, nobody knows how"
    if exitcode >= 0:
        return f"exited with code {exitcode}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exitcode).name} (signal {-exitcode})"
    return f"was killed by signal {-exitcode}"
