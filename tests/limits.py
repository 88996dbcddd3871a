"""A test's time limit begins anew each time that the test is run again.

pytest-timeout sets its timer once for a test and all of its reruns: without this, a test that hangs
once more after its limit hangs for ever.
"""

from __future__ import annotations

from typing import Any

import pytest

_settings = pytest.StashKey[Any]()


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Keep the settings; the timer is pytest-timeout's."""
    item.stash[_settings] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set the timer again where pytest-rerunfailures runs a test again."""
    if getattr(item, "execution_count", 1) > 1 and _settings in item.stash:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[_settings])
