"""Threads that hang in the user's own code: nobody can end them, and nobody waits for ever."""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from typing import Any

import pytest

from adapters.engine import Engine, Settings, threads
from tests.engine.scripts import script
from tests.plans import plan_of

SECONDS = 10
HANGS = """
from adapters.engine import Settings, threads
threads._PATIENCE_SECONDS = 0.5
engine = Engine(plan_of(list(range(8)), transform=lambda sample: threading.Event().wait()),
    Settings(2, False, 4, timeout_seconds=0.2))
stream = engine.stream(0, 0, False)
try:
    stream.next()
except Exception as error:
    print(type(error).__name__)
engine.close()
print("ends")
"""


class Hanging:
    """A transform that waits for its owner."""

    def __init__(self) -> None:
        self.allowed = threading.Event()

    def __call__(self, sample: Any) -> Any:
        assert self.allowed.wait(SECONDS)
        return sample


@pytest.mark.serial
def test_closing_leaves_a_thread_that_hangs(monkeypatch, caplog):
    monkeypatch.setattr(threads, "_PATIENCE_SECONDS", 0.2)
    hanging = Hanging()
    plan = plan_of(list(range(8)), transform=hanging)
    engine = Engine(plan, Settings(2, False, 4, timeout_seconds=0.2))
    stream = engine.stream(0, 0, False)
    with pytest.raises(multiprocessing.TimeoutError):
        stream.next()
    stream.close()
    before = time.monotonic()
    with caplog.at_level(logging.WARNING):
        engine.close()
    assert time.monotonic() - before < SECONDS / 2
    assert "still in the source or a transform" in caplog.text
    hanging.allowed.set()
    for thread in threading.enumerate():
        if thread.name.startswith("adapters-worker"):
            thread.join(SECONDS)


@pytest.mark.serial
def test_a_program_ends_beside_a_thread_that_hangs():
    with script(HANGS) as running:
        running.wait_for("TimeoutError")
        running.wait_for("ends")
        assert running.wait(SECONDS) == 0
