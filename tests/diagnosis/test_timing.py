"""A loop on a clock: what is skipped, what is counted, and when it stops."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from adapters.diagnosis import timing
from adapters.diagnosis.timing import Clock, endless, timed, wait_for_devices


class Time:
    """Stands in for ``time``: goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(timing, "time", time)
    return time


def batches(time: Time, seconds: float, first: float = 0.0) -> Iterator[int]:
    """Each takes so long; the first one longer."""
    time.now += first
    for number in itertools.count():
        time.now += seconds
        yield number


def steps(time: Time, seconds: float) -> Any:
    def step(batch: Any) -> None:
        time.now += seconds

    return step


# --- what is counted ---


def test_a_batch_takes_what_loader_and_step_do(time):
    timing = timed(batches(time, 1.0), steps(time, 3.0), 40.0, 1)
    assert timing.batch_seconds == 4.0


def test_waits_are_those_for_the_loader(time):
    timing = timed(batches(time, 1.0), steps(time, 3.0), 40.0, 1)
    assert timing.waits_seconds == (1.0,) * 10


def test_without_a_step_batches_are_only_read(time):
    assert timed(batches(time, 1.0), None, 10.0, 1).batch_seconds == 1.0


def test_the_first_batches_do_not_count(time):
    assert timed(batches(time, 1.0, first=100.0), None, 10.0, 1).seconds == 10.0


def test_as_many_batches_are_skipped_as_were_asked_for(time):
    seen: list[int] = []
    found = timed(batches(time, 1.0), seen.append, 10.0, 5)
    assert (len(seen), found.batches) == (15, 10)


def test_slow_batches_are_skipped_for_as_long_as_is_measured_at_the_most(time):
    seen: list[int] = []
    found = timed(batches(time, 1.0), seen.append, 3.0, 14)
    assert len(seen) - found.batches == 5


def test_three_batches_count_however_slow_they_are(time):
    assert timed(batches(time, 50.0), None, 1.0, 1).batches == 3


def test_nothing_counts_before_the_loader_has_settled(time):
    left = iter([False] * 7 + [True])
    seen: list[int] = []
    found = timed(batches(time, 1.0), seen.append, 3.0, 1, lambda: next(left))
    assert len(seen) - found.batches == 1 + 7


def test_a_loader_that_never_settles_is_measured_all_the_same(time):
    assert timed(batches(time, 1.0), None, 3.0, 1, lambda: False).batches == 3


def test_the_clock_knows_the_batch_that_it_gave_last(time):
    clock = Clock(batches(time, 1.0), 5.0, 1)
    assert [clock.latest == batch for batch in clock] == [True] * 6
    assert clock.stop().batches == 5


# --- devices that compute on their own ---


class Pending:
    """An array that isn't there yet."""

    shape = ()

    def __init__(self, waited: list[Any], name: Any) -> None:
        self.waited = waited
        self.name = name

    def wait_to_read(self) -> None:
        self.waited.append(self.name)


def test_every_array_is_waited_for():
    waited: list[Any] = []
    wait_for_devices(
        {"loss": Pending(waited, "loss"), "more": [Pending(waited, "more"), 1.5, None]}
    )
    assert waited == ["loss", "more"]


def test_nothing_has_to_be_waited_for_in_what_numpy_makes():
    wait_for_devices((np.zeros(3), "text", None))


def test_a_framework_that_was_imported_is_waited_for(monkeypatch):
    waited: list[Any] = []
    monkeypatch.setitem(sys.modules, "toys", Pending(waited, "toys"))
    for name in ("toys", "not imported"):
        monkeypatch.setitem(timing.DEVICES, name, lambda module: waited.append(module.name))
    wait_for_devices()
    assert waited == ["toys"]


def test_the_last_step_is_waited_for(time):
    waited: list[Any] = []
    found = timed(batches(time, 1.0), lambda batch: Pending(waited, batch), 3.0, 1)
    assert waited == list(range(1 + found.batches))


def test_a_device_is_one_step_behind_at_the_most(time):
    waited: list[Any] = []
    behind = []

    def step(batch: int) -> Any:
        behind.append(batch - len(waited))
        return Pending(waited, batch)

    timed(batches(time, 1.0), step, 5.0, 1)
    assert max(behind) == 1


# --- without an end ---


def test_pass_follows_on_pass():
    assert list(itertools.islice(endless([1, 2]), 5)) == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("once", [[], iter([1, 2])], ids=["nothing", "an iterator"])
def test_a_pass_without_a_batch_is_an_error(once):
    with pytest.raises(ValueError, match=r"loader must give batches each time .* got none from"):
        list(itertools.islice(endless(once), 5))
