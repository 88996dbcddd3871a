"""How objects of frameworks are pickled on their way to processes, by those who know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

reducers: list[Callable[[Any], Any]] = []
"""Each returns what ``__reduce__`` would, or ``NotImplemented``. NumPy arrays in there are shared
like any others."""
