"""Thread-safe calls of Gluon blocks.

In its first call, a block builds its graph, with names from a scope that all threads share. Two
threads that do so at once fail or get each other's names. So a lock lets one block build at a time.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

_building = threading.RLock()
_built: weakref.WeakSet[Any] = weakref.WeakSet()


def call(block: Any, *arguments: Any) -> Any:
    """Return ``block(*arguments)``. May be called from any thread."""
    if block in _built:
        return block(*arguments)
    with _building:
        result = block(*arguments)
        _built.add(block)
    return result
