"""Reducers for pickling frameworks' objects, registered by the modules that know them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

reducers: list[Callable[[Any], Any]] = []
"""Each returns what ``__reduce__`` would, or ``NotImplemented``. NumPy arrays in the result are
shared like any others."""
