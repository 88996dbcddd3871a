"""Slots that there is no descriptor left for: the reader is told, and never waits for ever."""

from __future__ import annotations

import errno
import os
import sys
import threading
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from adapters.engine import Engine, Settings, memory
from tests.engine.workloads import Numbers, Slow
from tests.plans import plan_of

BATCHES = 8
_TIMEOUT_SECONDS = 20.0


def refused(*_: Any) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Refusing:
    """Makes slots, but for one of those that are asked for in another thread than the reader's.

    Args:
        number: Of that one.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.reader = threading.current_thread()
        self.asked = 0
        self._make = memory.Slot

    def __call__(self) -> memory.Slot:
        if threading.current_thread() is not self.reader:
            self.asked += 1
            if self.asked == self.number + 1:
                refused()
        return self._make()


def negated(batch: Any) -> Any:
    return -batch


def told_while_reading(transform: Any, queue: int) -> list[int | None]:
    """The errors that a reader gets who asks on until all batches are there, in their order."""
    plan = plan_of(Numbers(400), transform=transform, batch_transform=negated)
    batches, told = [], []
    with closing(Engine(plan, Settings(2, True, queue, {}, _TIMEOUT_SECONDS))) as engine:
        stream = engine.stream(0, 0, False)
        while len(batches) < BATCHES:
            try:
                batches.append(stream.next())
            except OSError as error:
                told.append(error.errno)
    assert np.concatenate(batches).tolist() == [-number for number in range(4 * BATCHES)]
    return told


@pytest.mark.parametrize(
    ("transform", "queue", "number"),
    [(None, 1, 0), (None, 4, 1), (Slow(0.02), 1, 1)],
    ids=["the one that is waited for", "one behind it", "one behind a slow one"],
)
def test_a_batch_that_there_is_no_slot_for_can_be_read_later(transform, queue, number, monkeypatch):
    """Whoever reports a job done, or a worker ready, starts the next one while the reader waits."""
    monkeypatch.setattr(memory, "Slot", Refusing(number))
    assert told_while_reading(transform, queue) == [errno.EMFILE]


@pytest.mark.parametrize("number", [0, 1, 5])
@pytest.mark.parametrize("transform", [None, Slow(0.02)], ids=["quick", "slow"])
def test_a_batch_whose_slot_cannot_be_mapped_can_be_read_later(transform, number, monkeypatch):
    view, seen = memory.Slot.view, []

    def sometimes(slot: memory.Slot) -> Any:
        seen.append(slot)
        return refused() if len(seen) == number + 1 else view(slot)

    monkeypatch.setattr(memory.Slot, "view", sometimes)
    assert told_while_reading(transform, 2) == [errno.EMFILE]


def test_memory_that_there_is_no_descriptor_for_is_an_error_and_nothing_else(monkeypatch):
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(memory.os, "memfd_create", refused)
    with pytest.raises(OSError, match="Too many open files"):
        memory.SharedFile()
    assert not unraisable
