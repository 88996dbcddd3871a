"""Exceptions sent from a worker process, with their own type, whatever their constructor takes.

Pickle calls an exception's class with ``args``, which fails if the constructor takes something
else. Here, class, args and attributes are pickled, and the exception is rebuilt without calling its
constructor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from dataclasses import dataclass
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
        parts = type(error), _arguments(error)
        attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        text = f"\nTraceback in worker process {os.getpid()}:\n{''.join(lines).rstrip()}"
        return cls(
            _pickled((*parts, attributes)) or _pickled((*parts, {})),
            (*getattr(error, "__notes__", ()), text),
            f"{type(error).__qualname__}: {error}",
        )

    def restore(self) -> BaseException:
        """Rebuild the exception, in the trainer's process."""
        try:
            if self.parts is None:
                raise ValueError("not pickled")
            error = _restored(*cloudpickle.loads(self.parts))
        except Exception:
            error = RuntimeError(f"{self.summary} (an exception that could not be sent as it is)")
        error.__notes__ = list(self.notes)  # type: ignore[attr-defined]
        return error


def _restored(kind: Any, args: Any, attributes: dict[str, Any]) -> BaseException:
    if kind.__module__ == "builtins":
        error: BaseException = kind(*args)
    else:
        error = kind.__new__(kind, *args)
        error.args = args
    vars(error).update(attributes)
    return error


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """Constructor arguments of an exception; built-in ones sometimes have more than ``args``."""
    reduced = error.__reduce__() if type(error).__module__ == "builtins" else ()
    return reduced[1] if len(reduced) > 1 and isinstance(reduced[1], tuple) else error.args


def _pickled(value: Any) -> bytes | None:
    try:
        data: bytes = cloudpickle.dumps(value)
        cloudpickle.loads(data)
    except Exception:
        return None
    return data


def exit_cause(exitcode: int | None) -> str:
    """Describe how a process ended."""
    if exitcode is None:
        return "ended, in an unknown way"
    if exitcode >= 0:
        return f"exited with code {exitcode}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exitcode).name} (signal {-exitcode})"
    return f"was killed by signal {-exitcode}"
