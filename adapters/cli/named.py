"""Resolution of names on the command line: objects in a file or module, or paths of data."""

from __future__ import annotations

import importlib
import inspect
import os
import runpy
import sys
from typing import Any

from adapters.diagnosis.script import code_of
from adapters.errors import ScriptError


def is_path(name: str) -> bool:
    """True if a name is a path or URL rather than an object in the user's code."""
    _, colon, attribute = name.rpartition(":")
    return not colon or not attribute.isidentifier() or os.path.exists(name)


def object_named(name: str) -> Any:
    """Find the object of a ``FILE.py:NAME`` or ``MODULE:NAME``; a function is called."""
    place, _, attribute = name.rpartition(":")
    names = _names_in(place)
    if attribute not in names:
        raise ValueError(
            f"{place} must define {attribute} when it is imported, and doesn't; what is below "
            'if __name__ == "__main__": isn\'t defined then'
        )
    found = names[attribute]
    if not callable(found) or hasattr(found, "__len__"):
        return found
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # A builtin without a signature: the call itself will tell.
        signature = inspect.Signature()
    try:
        signature.bind()
    except TypeError:
        raise ValueError(
            f"{name} must be called without arguments, got {attribute}{signature}: name a function "
            "that calls it with them"
        ) from None
    with code_of(name):
        return found()


def _names_in(place: str) -> dict[str, Any]:
    """Run a file or import a module, and return the names that it defines."""
    if not place or (place.startswith(".") and not place.endswith(".py")):
        raise ValueError(
            f"FILE.py:NAME or MODULE:NAME must name a file or a module, got {place!r} before the "
            "colon"
        )
    if place.endswith(".py"):
        if not os.path.exists(place):
            raise FileNotFoundError(
                f"FILE.py:NAME must name a file before its colon, got {place!r}: there is none"
            )
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        with code_of(place):  # As a module, so that its functions can be sent to processes.
            return runpy.run_path(place, run_name="adapters_target")
    sys.path.insert(0, os.getcwd())
    try:
        return vars(importlib.import_module(place))
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{place}.".startswith(f"{missing}."):
            raise
        raise ScriptError(place) from error
