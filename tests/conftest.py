"""After every test: no new thread, child process or shared memory is left."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from adapters.engine import arena
from tests.leftovers import Leftovers

_DEADLINE_SECONDS = 3.0
_POLL_SECONDS = 0.01


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves something behind."""
    before = Leftovers.now()
    yield
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while left := Leftovers.now().beyond(before):
        if time.monotonic() > deadline:
            pytest.fail("left behind:\n" + "\n".join(left))
        gc.collect()
        time.sleep(_POLL_SECONDS)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches on threads use memory again, however small they are."""
    monkeypatch.setattr(arena, "_LEAST_BYTES", 1)
