"""``Windows`` by themselves: what several data sets hold, in several threads."""

from __future__ import annotations

import sys
import threading
import time
import weakref

import pytest

from adapters.readahead import Window
from adapters.records import budget
from adapters.records.budget import Windows

MIB = 1 << 20


class File:
    """Of a remote one, what is asked of it."""

    uses_cache = False

    def prefetch_block(self, offset, size, window):
        """Nothing."""

    def leave(self, window):
        """Nothing."""


@pytest.fixture
def often():
    """Threads that take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_data_sets_come_and_hold_in_several_threads(often):
    """Each looks at what all others hold."""
    errors, ends = [], time.monotonic() + 1.0

    def hold():
        try:
            while time.monotonic() < ends:
                own = Windows(3 * budget.HALF_BYTES)
                for number in range(40):
                    for file in [File() for _ in range(8)]:
                        own.prefetch(file, 0, MIB, Window(0, number, 0, True))
                    own.leave(Window(0, number, number - 2, False))
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_all_data_sets_together_hold_no_more_than_may_be(monkeypatch):
    monkeypatch.setattr(budget, "MOST_BYTES", 10 * MIB)
    monkeypatch.setattr(budget, "_all", weakref.WeakKeyDictionary())
    several = [Windows(3 * budget.HALF_BYTES) for _ in range(3)]
    for each in several:
        for _ in range(6):
            each.prefetch(File(), 0, MIB, Window(0, 0, -2, True))
    assert [each.bytes for each in several] == [6 * MIB, 4 * MIB, 0]
    several[0].close()
    several[2].prefetch(File(), 0, MIB, Window(0, 0, -2, True))
    assert [each.bytes for each in several] == [0, 4 * MIB, MIB]
