"""Tests that fork, beside libraries whose threads speak against it."""

from __future__ import annotations

import pytest

forks = pytest.mark.filterwarnings(
    "ignore:os.fork:RuntimeWarning", "ignore:.*multi-threaded:DeprecationWarning"
)
