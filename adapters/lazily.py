"""Lazily bound names of a package, so that its modules are imported only when they are used."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def bound(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Make a package's ``__getattr__``.

    Args:
        package: The package's ``__name__``.
        modules: Module of each name; a submodule maps to its own full name.
    """

    def look_up(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with _without_collections():
            module = importlib.import_module(modules[name])
        value = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up


@contextmanager
def _without_collections() -> Iterator[None]:
    """Switch the garbage collector off during an import, which makes hardly any garbage.

    In a process with a framework, a full collection takes 0.1 s, and the definitions of a hundred
    modules trigger one.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
