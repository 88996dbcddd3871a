"""What is measured: a loop on a clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from adapters.diagnosis import timing
from adapters.diagnosis.timing import Clock, wait_for_devices


class Time:
    """Stands in for ``time``: goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Time:
    fake = Time()
    monkeypatch.setattr(timing, "time", fake)
    return fake


def batches(fake: Time, seconds: float, first: float = 0.0) -> Iterator[int]:
    """Each takes so long; the first one longer."""
    fake.now += first
    for number in itertools.count():
        fake.now += seconds
        yield number


def steps(fake: Time, seconds: float) -> Any:
    def step(batch: Any) -> None:
        fake.now += seconds

    return step


@pytest.mark.parametrize(
    ("seconds", "step", "limit", "found"),
    [
        (1.0, 3.0, 40.0, (10, 4.0)),
        (1.0, None, 10.0, (10, 1.0)),  # Batches are only read.
        (50.0, None, 1.0, (1, 50.0)),  # However slow they are.
    ],
)
def test_batch_takes_what_loader_and_step_do(fake, seconds, step, limit, found):
    """But for the first one; waits are those for the loader."""
    made = batches(fake, seconds, first=100.0)
    timing = Clock(limit, 1).timed(made, None if step is None else steps(fake, step))
    assert (timing.batches, timing.batch_seconds) == found
    assert timing.waits_seconds == (seconds,) * timing.batches


def test_skipped_batches_are_those_before_the_loader_settles(fake):
    left = iter([False] * 7 + [True])
    seen: list[int] = []
    found = Clock(3.0, 1, lambda: next(left)).timed(batches(fake, 1.0), seen.append)
    assert len(seen) - found.batches == 1 + 7
    assert Clock(3.0, 1, lambda: False).timed(batches(fake, 1.0)).batches == 3  # It never does.


class Pending:
    """An array that isn't there yet."""

    shape = ()

    def __init__(self, waited: list[Any], name: Any) -> None:
        self.waited = waited
        self.name = name

    def wait_to_read(self) -> None:
        self.waited.append(self.name)


def test_devices_finish_every_array():
    waited: list[Any] = []
    more = [Pending(waited, "more"), 1.5, None]
    wait_for_devices({"loss": Pending(waited, "loss"), "more": more})
    assert waited == ["loss", "more"]
    wait_for_devices((np.zeros(3), "text", None))


def test_devices_are_one_step_behind_at_the_most(fake):
    waited: list[Any] = []
    behind = []

    def step(batch: int) -> Any:
        behind.append(batch - len(waited))
        return Pending(waited, batch)

    found = Clock(5.0, 1).timed(batches(fake, 1.0), step)
    assert max(behind) == 1
    assert waited == list(range(1 + found.batches))
