"""An object within a plan that is made in a worker process only if somebody uses it there.

A ``transform`` that is a method brings the object that it belongs to, with all that this holds,
such as the very sequence that the plan is of, whose class takes a framework's import.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

_making = threading.RLock()


class Later:
    """Stands for an instance of a class, and is that for whoever uses it.

    Args:
        module: Where the class is.
        name: Its name.
    """

    def __init__(self, module: str, name: str) -> None:
        self._of = module, name

    def __setstate__(self, state: Any) -> None:
        """Take the instance's state, which may not be complete yet."""
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
        if name in ("_of", "_state"):  # It is being made itself.
            raise AttributeError(name)
        return getattr(self._itself(), name)

    def __len__(self) -> int:
        return len(self._itself())

    def __getitem__(self, key: Any) -> Any:
        return self._itself()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._itself())
