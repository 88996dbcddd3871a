"""Lazily bound names of a package, so that its modules are imported only when they are used."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def required(module: str, message: str) -> Any:
    """Import a module of an optional dependency; ``message`` says how it is installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(message) from None


def bound(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Make a package's ``__getattr__`` from the module of each name.

    A submodule maps to its own full name.
    """

    def look_up(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # An import makes hardly any garbage, and the definitions of a hundred modules would trigger
        # a full collection, which takes 0.1 s in a process with a framework.
        collects = gc.isenabled()
        gc.disable()
        try:
            module = importlib.import_module(modules[name])
        finally:
            if collects:
                gc.enable()
        value = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up
