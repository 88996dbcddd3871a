"""Names of a package that are bound when they are first used: few programs need their modules."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def bound(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``.

    Args:
        package: Its ``__name__``.
        modules: Which module has a name; a name that is a module itself has its own.
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
    """Leave the garbage collector out of an import, which makes hardly any garbage.

    Beside a framework, a full collection takes 0.1 s, and what a hundred modules define brings one.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
