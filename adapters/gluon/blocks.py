"""Blocks that several threads call.

In its first call a block builds its graph, under names that it takes from a scope which all threads
share; two threads that do so at once fail, or get each other's. So nobody else builds meanwhile.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

_building = threading.RLock()
_built: weakref.WeakSet[Any] = weakref.WeakSet()


def call(block: Any, *arguments: Any) -> Any:
    """``block(*arguments)``, from any thread."""
    if block in _built:
        return block(*arguments)
    with _building:
        result = block(*arguments)
        _built.add(block)
    return result
