"""The one iterator: it begins late, ends once, and leaves the stream where somebody can go on."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from adapters.engine import Engine, Reading, Settings, Stream
from adapters.errors import ClosedError
from tests.engine.workloads import Numbers
from tests.forking import forks
from tests.plans import plan_of

BATCHES = 3


class Epoch(Reading):
    """Reads epoch 0, and takes note of what it is asked."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.fetched = self.handed_out = self.finished = 0

    def _next(self) -> Any:
        batch = self._fetch()
        self.handed_out += 1
        return batch

    def _begin(self) -> Stream:
        self._left = BATCHES
        return self._engine.stream(0, 0, False)

    def _made(self, batch: Any) -> Any:
        self.fetched += 1
        return batch.tolist()

    def _finish(self) -> None:
        self.finished += 1
        super()._finish()


@pytest.fixture(params=[0, 2], ids=["inline", "threads"])
def engine(request):
    engine = Engine(plan_of(Numbers(4 * BATCHES)), Settings(request.param))
    yield engine
    engine.close()


def test_all_batches_are_read_once_and_in_order(engine):
    reading = Epoch(engine)
    assert list(reading) == np.arange(4 * BATCHES).reshape(BATCHES, 4).tolist()
    assert (reading.handed_out, reading.finished) == (BATCHES, 1)


def test_once_ended_it_stays_so(engine):
    reading = Epoch(engine)
    list(reading)
    assert list(reading) == []
    assert reading.finished == 1


def test_a_stream_that_was_read_to_the_end_is_there_for_the_next_epoch(engine):
    reading = Epoch(engine)
    next(reading)
    stream = reading._stream
    list(reading)
    assert engine.stream(1, 0, False) is stream


def test_one_that_is_given_up_is_closed(engine):
    reading = Epoch(engine)
    next(reading)
    stream = reading._stream
    reading.close()
    assert stream.closed
    assert list(reading) == []


def test_so_is_one_that_nobody_holds(engine):
    reading = Epoch(engine)
    next(reading)
    stream = reading._stream
    del reading
    assert stream.closed


def test_nothing_begins_before_the_first_batch_is_asked_for(engine):
    reading = Epoch(engine)
    reading.close()
    assert (reading._begun, list(reading)) == (False, [])


def test_an_error_ends_it():
    def spoil(sample: int) -> int:
        if sample == 5:
            raise StopIteration
        return sample

    reading = Epoch(Engine(plan_of(Numbers(4 * BATCHES), transform=spoil), Settings(0)))
    assert next(reading) == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        next(reading)
    assert list(reading) == []
    assert (reading.handed_out, reading.finished) == (1, 0)


def test_whoever_waits_while_another_thread_closes_it_is_told():
    entered, allowed = threading.Event(), threading.Event()

    def wait(sample: int) -> int:
        entered.set()
        assert allowed.wait(20)
        return sample

    engine = Engine(plan_of(Numbers(4 * BATCHES), transform=wait), Settings(1))
    reading = Epoch(engine)

    def close() -> None:
        assert entered.wait(20)
        reading.close()
        allowed.set()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(ClosedError):
        next(reading)
    closer.join()
    engine.close()


class Failing:
    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> Any:
        if number == 5:
            raise KeyError("missing")
        return number


def test_after_an_error_nothing_waits_for_the_garbage_collector():
    """Who caught it and dropped the iterator has no threads and processes of it any more."""
    gc.disable()
    try:
        engine = Engine(plan_of(Failing()), Settings(2))
        reading = Epoch(engine)
        gone = weakref.ref(reading)
        with contextlib.suppress(KeyError):
            list(reading)
        del reading
        assert gone() is None
        engine.close()
    finally:
        gc.enable()


def test_code_that_makes_a_batch_does_not_wait_for_its_turn():
    """Whoever has it may wait for that code, as where both draw from a generator of the process."""
    shared = Epoch(Engine(plan_of(Numbers(4 * BATCHES)), Settings(0)))
    taken, told = threading.Event(), []

    def hold():
        with shared._reader_lock:
            taken.set()
            done.wait(20)

    class Takes(Numbers):
        def __getitem__(self, number):
            try:
                next(shared)
            except RuntimeError as error:
                told.append(str(error))
            return number

    done, thread = threading.Event(), threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(10)
        engine = Engine(plan_of(Takes(4 * BATCHES)), Settings(0))
        assert next(Epoch(engine)) == [0, 1, 2, 3]
    finally:
        done.set()
        thread.join()
    assert len(told) == 4
    assert "give that code a pass of its own" in told[0]
    assert next(shared) == [0, 1, 2, 3]
    engine.close()


@forks
def test_a_forked_child_reads_on_though_another_thread_had_its_turn(engine):
    reading = Epoch(engine)
    assert next(reading) == [0, 1, 2, 3]
    taken, done = threading.Event(), threading.Event()

    def hold():
        with reading._reader_lock:
            taken.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(10)
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
