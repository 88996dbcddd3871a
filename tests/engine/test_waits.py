"""How long the reader waited for each batch: noted for each, at next to no cost."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

from adapters.engine import Wait, Waits
from tests.engine.executors import opened
from tests.engine.workloads import Numbers, Slow


def noted(*pairs: tuple[float, float]) -> Waits:
    """So many waited and busy seconds."""
    waits = Waits()
    for step, (seconds, busy) in enumerate(pairs):
        waits.note((0, step), float(step), seconds, busy)
    return waits


def test_nothing_was_waited_for_before_the_first_batch():
    waits = Waits()
    assert (waits.batches, waits.share, waits.seconds.tolist()) == (0, 0.0, [])
    assert str(waits) == "no batches yet"


def test_a_wait_is_kept_as_it_was_noted():
    waits = Waits()
    waits.note((2, 3), ready=7.5, seconds=0.25, busy_seconds=0.75)
    assert waits.latest() == [Wait(2, 3, 7.5, 0.25, 0.75)]


def test_the_share_is_that_of_all_the_time():
    assert noted((1.0, 0.0), (0.0, 3.0)).share == 0.25


def test_the_share_of_a_reader_that_never_waits_is_0():
    assert noted((0.0, 1.0)).share == 0


def test_the_latest_ten_thousand_are_kept():
    waits = Waits()
    for step in range(10_005):
        waits.note((0, step), 0.0, 1.0, 1.0)
    assert [wait.step for wait in waits.latest()] == list(range(5, 10_005))


def test_the_sums_are_over_all():
    waits = Waits()
    for step in range(10_005):
        waits.note((0, step), 0.0, 1.0, 2.0)
    assert (waits.batches, waits.waited_seconds, waits.busy_seconds) == (10_005, 10_005, 20_010)


def test_seconds_are_an_array():
    seconds = noted((0.25, 1.0), (0.5, 1.0)).seconds
    np.testing.assert_array_equal(seconds, np.float64([0.25, 0.5]), strict=True)


def test_they_can_be_read_as_a_line():
    assert str(noted(*[(0.001, 0.003)] * 1000)) == (
        "1,000 batches: waited 1 s for them, 25% of the time; median 1 ms, 99% within 1 ms"
    )


def test_another_thread_may_look_while_they_are_noted():
    waits, ended = Waits(), threading.Event()

    def note() -> None:
        for step in itertools.count():
            waits.note((0, step), 0.0, 0.0, 0.0)
            if ended.is_set():
                break

    thread = threading.Thread(target=note)
    thread.start()
    try:
        for _ in range(20):
            assert len(waits.seconds) <= 10_000
    finally:
        ended.set()
        thread.join()


@pytest.mark.serial
def test_noting_costs_microseconds():
    """At most 10 of them; a batch of the fastest loader takes 125."""
    waits, count = Waits(), 100_000
    started = time.perf_counter()
    for step in range(count):
        waits.note((0, step), 0.0, 0.0, 0.0)
    assert time.perf_counter() - started < 10e-6 * count


# --- of an engine ---


@pytest.mark.parametrize("executor", ["inline", "threads-2"])
def test_every_batch_that_is_delivered_is_noted(executor):
    with opened(Numbers(), executor) as engine:
        stream = engine.stream(0, 0, False)
        places = [position for position, _ in ((stream.position, stream.next()) for _ in range(9))]
        assert [(wait.epoch, wait.step) for wait in engine.waits.latest()] == places
        assert places[6:8] == [(0, 6), (1, 0)]


def waits_of(engine: Any, batches: int, away: float) -> Waits:
    """A reader that is away for a while after each batch."""
    stream = engine.stream(0, 0, False)
    for _ in range(batches):
        stream.next()
        time.sleep(away)
    return engine.waits


def test_a_reader_of_slow_batches_waits():
    with opened(Numbers(), "inline", transform=Slow(0.005)) as engine:
        waits = waits_of(engine, 6, 0.0)
        assert waits.seconds.min() >= 0.02
        assert waits.share > 0.9


def test_a_slow_reader_of_quick_batches_does_not():
    with opened(Numbers(), "inline") as engine:
        waits = waits_of(engine, 6, 0.02)
        assert waits.busy_seconds >= 5 * 0.02
        assert waits.share < 0.2


def test_batches_that_are_looked_at_early_are_noted_when_they_are_read():
    with opened(Numbers(), "inline") as engine:
        stream = engine.stream(0, 0, False)
        stream.peek(2)
        assert engine.waits.batches == 0
        stream.next()
        assert engine.waits.batches == 1
