"""What running rows would leave behind."""

from __future__ import annotations

import pytest
from tqdm import tqdm


@pytest.fixture(autouse=True)
def no_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tqdm's thread, which lives as long as the process."""
    monkeypatch.setattr(tqdm, "monitor_interval", 0)
