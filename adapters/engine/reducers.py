"""Pickling of frameworks' objects for worker processes, registered by the modules that know them.

Apart from ``serialization``, which is imported only when processes may be used.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

reducers: list[Callable[[Any], Any]] = []
"""Reducers for frameworks' objects, registered by the modules that know them. Each returns what
``__reduce__`` would, or ``NotImplemented``. NumPy arrays in the result are shared like any others.
"""
IMPORTERS: dict[str, str] = {}
"""Modules that can't always be imported directly, and the modules to import before them."""

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
        self.__dict__["_state"] = state

    def _itself(self) -> Any:
        with _making:
            if "_made" not in self.__dict__:
                module, name = self._of
                kind = getattr(importlib.import_module(module), name)
                made = kind.__new__(kind)
                made.__setstate__(self._state)
                self.__dict__["_made"] = made
        return self.__dict__["_made"]

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
