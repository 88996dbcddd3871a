"""Pickling of frameworks' objects and settings for worker processes, registered by who knows them.

Apart from ``serialization``, which is imported only when processes may be used.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

reducers: list[Callable[[Any], Any]] = []
"""Reducers for frameworks' objects, registered by the modules that know them. Each returns what
``__reduce__`` would, or ``NotImplemented``. NumPy arrays in the result are shared like any others.
"""
IMPORTERS: dict[str, str] = {}
"""Modules that can't always be imported directly, and the modules to import before them."""
SETTINGS: set[tuple[str, ...]] = set()
"""Settings of libraries that workers take over: a module, the attribute or function in it that
returns one, the function that sets it, and that function's arguments before the value.
"""

_making = threading.RLock()


class Later:
    """Proxy for an instance of a class; a worker process creates the object only when it is used.

    A method as ``transform`` brings its instance along, with everything in it, such as the very
    sequence that the plan belongs to. Its class requires the import of a framework.

    Args:
        module: Module of the class.
        name: Name of the class.
    """

    def __init__(self, module: str, name: str) -> None:
        self._of = module, name

    def __setstate__(self, state: Any) -> None:
        """Store the instance's state, which may not be complete yet."""
        self._state = state

    def _itself(self) -> Any:
        """Turn into the instance, and return it."""
        with _making:
            if type(self) is Later:
                (module, name), state = self._of, self._state
                kind = getattr(importlib.import_module(module), name)
                vars(self).clear()
                self.__class__ = kind
                self.__setstate__(state)
        return self

    def __getattr__(self, name: str) -> Any:
        if name in ("_of", "_state"):  # The proxy itself is being created.
            raise AttributeError(name)
        return getattr(self._itself(), name)

    def __len__(self) -> int:
        return len(self._itself())

    def __getitem__(self, key: Any) -> Any:
        return self._itself()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._itself())


# --- settings of libraries ---


def pickled_settings() -> bytes:
    """Pickle the settings of the libraries that this process has imported."""
    found = []
    for module, get, *how in SETTINGS:
        with contextlib.suppress(KeyError, AttributeError):  # It isn't imported to its end.
            value = operator.attrgetter(get)(sys.modules[module])
            # Apart, as its class may be the library's.
            found.append((module, how, pickle.dumps(value() if callable(value) else value)))
    return pickle.dumps(found)


def take_over(settings: bytes) -> None:
    """Take over settings from ``pickled_settings``; those of other libraries on their import."""
    _importer.settings = pickle.loads(settings)
    if _importer not in sys.meta_path:
        sys.meta_path.insert(0, _importer)
    for name in {name for name, *_ in _importer.settings} & sys.modules.keys():
        _importer.apply(sys.modules[name])


class _Importer:
    """Import hook that applies the settings of a library once it is imported."""

    settings: Sequence[tuple[str, Sequence[str], bytes]] = ()

    def apply(self, module: ModuleType) -> None:
        for name, (setter, *arguments), value in self.settings:
            if name == module.__name__:
                operator.attrgetter(setter)(module)(*arguments, pickle.loads(value))

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        known = any(name == each for each, *_ in self.settings)
        spec = PathFinder.find_spec(name, path, target) if known else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_apply(module: ModuleType) -> None:
                execute(module)
                self.apply(module)

            spec.loader.exec_module = execute_and_apply  # type: ignore[method-assign]
        return spec


_importer = _Importer()
