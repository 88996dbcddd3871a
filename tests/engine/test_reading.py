"""The one iterator, which begins late and ends once, and how long its reader waited."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

from adapters.engine import Engine, Reading, Settings, Stream, Wait, Waits
from adapters.engine.supply import Supply
from adapters.errors import ClosedError
from tests.engine.executors import opened, workers
from tests.engine.workloads import Numbers
from tests.forking import forks
from tests.plans import plan_of

BATCHES = 3


class Epoch(Reading):
    """Reads epoch 0."""

    def _begin(self) -> Stream:
        self._left = BATCHES
        return self._engine.stream(0, 0, False)

    def _made(self, assembled: Any) -> Any:
        return assembled.batch.tolist()


def hold(reading: Epoch) -> tuple[threading.Thread, threading.Event]:
    """Have another thread take its turn, until the event."""
    taken, done = threading.Event(), threading.Event()

    def held() -> None:
        with reading._reader_lock:
            taken.set()
            done.wait(20)

    thread = threading.Thread(target=held)
    thread.start()
    assert taken.wait(10)
    return thread, done


@pytest.fixture(params=[0, 2], ids=["inline", "threads"])
def engine(request):
    engine = Engine(plan_of(Numbers(4 * BATCHES)), Settings(request.param))
    yield engine
    engine.close()


def test_reading_within_a_batch_is_refused():
    """Whoever has it may wait for that code, as where both draw from a generator of the process."""
    shared = Epoch(Engine(plan_of(Numbers(4 * BATCHES)), Settings(0)))
    told = []

    class Takes(Numbers):
        def __getitem__(self, number):
            try:
                next(shared)
            except RuntimeError as error:
                told.append(str(error))
            return number

    thread, done = hold(shared)
    engine = Engine(plan_of(Takes(4 * BATCHES)), Settings(0))
    assert next(Epoch(engine)) == [0, 1, 2, 3]
    done.set()
    thread.join()
    assert len(told) == 4
    assert "give that code a pass of its own" in told[0]
    assert next(shared) == [0, 1, 2, 3]
    engine.close()


class EndsAtOnce(Epoch):
    """Its fit has ended by the time that it has begun."""

    def _begin(self) -> Stream:
        stream = super()._begin()
        self.close()
        self._engine.release()
        return stream


def test_pass_that_is_closed_while_it_begins_keeps_no_workers():
    with opened(Numbers(4 * BATCHES), "processes-2") as engine:
        engine.retain()
        assert next(Epoch(engine)) == [0, 1, 2, 3]
        assert workers()
        assert list(EndsAtOnce(engine)) == []
        assert workers() == []


def test_workers_started_while_a_pass_is_closed_end_with_it(monkeypatch):
    with opened(Numbers(4 * BATCHES), "processes-2") as engine:
        engine.retain()
        reading, ask = Epoch(engine), Supply.ask

        def late(*arguments: Any) -> None:
            """The call of Keras ends before its thread asks for the batch."""
            monkeypatch.setattr(Supply, "ask", ask)
            reading.close()
            engine.release()
            ask(*arguments)
            assert workers()

        monkeypatch.setattr(Supply, "ask", late)
        with contextlib.suppress(ClosedError):  # Or it has the batch that was under way.
            next(reading)
        assert workers() == []


@forks
def test_fork_reads_on_though_another_thread_had_its_turn(engine):
    reading = Epoch(engine)
    assert next(reading) == [0, 1, 2, 3]
    thread, done = hold(reading)
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            os._exit(0 if next(reading) == [4, 5, 6, 7] else 1)
        finally:
            os._exit(2)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_waits_are_counted_and_read_as_a_line():
    waits = Waits()
    assert (waits.batches, waits.share, str(waits)) == (0, 0.0, "no batches yet")
    waits.note((2, 3), ready=7.5, seconds=0.25, busy_seconds=0.75)
    assert waits.latest() == [Wait(2, 3, 7.5, 0.25, 0.75)]
    np.testing.assert_array_equal(waits.seconds, np.float64([0.25]), strict=True)
    assert waits.share == 0.25
    for step in range(10_005):
        waits.note((0, step), 0.0, 0.001, 0.003)
    assert [wait.step for wait in waits.latest()] == list(range(5, 10_005))
    assert waits.batches == 10_006
    assert waits.waited_seconds == pytest.approx(10.255)
    assert waits.busy_seconds == pytest.approx(30.765)
    assert str(waits) == (
        "10,006 batches: waited 10.3 s for them, 25% of the time; median 1 ms, 99% within 1 ms"
    )
