"""What the benchmarks' own transforms and data sets are declared as: safe to call from threads."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def thread_safe(loader: Callable[..., Any]) -> dict[str, Any]:
    """The argument that says so, of a loader that has it."""
    return {"thread_safe": True} if "thread_safe" in inspect.signature(loader).parameters else {}
