"""Two processes do all that one does, and meet each other: one alone is for ``--full``."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what has one worker process."""
    callspec = getattr(item, "callspec", None)
    if callspec is not None and callspec.params.get("crew") == "processes-1":
        item.add_marker(pytest.mark.full)
