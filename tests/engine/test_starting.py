"""While worker processes start: the consumer makes batches itself, if they were its to make."""

from __future__ import annotations

import os
import time
from contextlib import closing

import numpy as np
import pytest

from adapters.engine import Engine, Settings, usable_cpus
from adapters.engine.pool import shared_pool
from adapters.engine.supply import WorkerState
from adapters.engine.tuning import Choice, Trial
from adapters.engine.waits import Losses
from tests.engine.executors import end_idle_workers
from tests.plans import plan_of

# More than are made until processes have started.
BATCHES = 500_000


def with_pid(sample):
    return np.array([sample, os.getpid()])


@pytest.fixture
def measured(new_processes):
    """An engine whose measurement has just come to an end, in favour of two processes."""
    plan = plan_of(np.arange(4 * BATCHES), 4, transform=with_pid)
    engine = Engine(plan, Settings("auto"))
    engine._trial, engine._choice = Trial(plan, False), Choice("processes", 2, 2)
    yield engine
    engine.close()


def test_after_the_measurement_nobody_waits_for_processes_to_start(measured):
    stream = measured.stream(0, 0, False)
    first = stream.next()
    assert first.tolist() == [[number, os.getpid()] for number in range(4)]


def test_the_processes_take_over_and_no_batch_is_lost_or_repeated(measured):
    stream = measured.stream(0, 0, False)
    batches = [stream.next()]
    while batches[-1][0, 1] == os.getpid() and len(batches) < BATCHES - 10:
        batches.append(stream.next())
    batches += [stream.next() for _ in range(9)]
    samples = np.concatenate(batches)[:, 0].tolist()
    assert (samples == list(range(len(samples))), batches[-1][0, 1] == os.getpid()) == (True, False)


class SlowElsewhere:
    """A transform that waits in other processes alone, by too little to be a slow batch."""

    def __init__(self):
        self.home = os.getpid()

    def __call__(self, sample):
        if os.getpid() != self.home:
            time.sleep(0.0007)
        return with_pid(sample)


@pytest.fixture
def slow_elsewhere(new_processes):
    """An engine that has chosen two processes, which take much longer than none."""
    plan = plan_of(np.arange(80_000), 4, transform=SlowElsewhere())
    engine = Engine(plan, Settings("auto"))
    engine._trial, engine._choice = Trial(plan, False), Choice("processes", 2, 2)
    engine.retain()
    engine.start_workers()
    yield engine
    engine.close()


def read_until_they_rest(engine):
    stream, batches = engine.stream(0, 0, False), []
    while "none at work" not in engine.description:
        batches.append(stream.next())
    batches += [stream.next() for _ in range(20)]
    return stream, batches


def test_processes_that_auto_chose_rest_where_batches_come_faster_without(slow_elsewhere):
    _, batches = read_until_they_rest(slow_elsewhere)
    samples = np.concatenate(batches)[:, 0].tolist()
    assert samples == list(range(len(samples)))
    assert any(batch[0, 1] != os.getpid() for batch in batches)
    assert batches[-1][0, 1] == os.getpid()


def test_processes_that_were_asked_for_work_wherever_batches_come_faster(new_processes):
    plan = plan_of(np.arange(4000), 4, transform=SlowElsewhere())
    with closing(Engine(plan, Settings(2, True))) as engine:
        stream = engine.stream(0, 0, False)
        assert os.getpid() not in {int(stream.next()[0, 1]) for _ in range(400)}


def test_processes_that_bring_less_than_none_are_not_started_again(slow_elsewhere):
    stream, _ = read_until_they_rest(slow_elsewhere)
    stream.close()
    slow_elsewhere.release()
    slow_elsewhere.retain()
    stream = slow_elsewhere.stream(1, 0, False)
    assert {int(stream.next()[0, 1]) for _ in range(20)} == {os.getpid()}
    assert slow_elsewhere.state is WorkerState.DEFERRED


@pytest.mark.parametrize("workers", [2, "auto"])
def test_processes_that_were_asked_for_make_every_batch(workers):
    """What kills its process must not kill the trainer."""
    plan = plan_of(np.arange(40), 4, transform=with_pid)
    engine = Engine(plan, Settings(workers, True))
    stream = engine.stream(0, 0, False)
    pids = {int(pid) for _ in range(10) for pid in stream.next()[:, 1]}
    engine.close()
    assert os.getpid() not in pids


class Imports:
    """A transform whose first call in a process computes, as the import of a framework does."""

    def __init__(self):
        self.imported = False

    def __call__(self, sample):
        if not self.imported:
            self.imported = True
            started = time.thread_time()
            while time.thread_time() - started < 0.3:
                pass
        time.sleep(0.01)
        return np.array(os.getpid())


def computes(sample):
    started = time.thread_time()
    while time.thread_time() - started < 0.01:
        pass
    return np.array(os.getpid())


@pytest.mark.parametrize(("transform", "grows"), [(Imports(), True), (computes, False)])
def test_processes_beyond_the_cpus_are_started_for_work_that_waits(transform, grows):
    """What each process does once, at its first batch, is no part of that work."""
    count = usable_cpus() + 2
    plan = plan_of(np.arange(4000), 1, transform=transform)
    engine = Engine(plan, Settings(count, True, 2 * count))
    stream = engine.stream(0, 0, False)
    pids: set[int] = set()
    for number in range(3500):  # On a busy machine, the others take their time to start.
        pids.add(int(stream.next()[0]))
        if number > 40 * count and (len(pids) == count or not grows):
            break
    engine.close()
    assert len(pids) == (count if grows else usable_cpus())


def waits(sample):
    time.sleep(0.002)
    return np.array([sample, os.getpid()])


def test_while_there_is_too_little_work_for_processes_batches_are_made_here(monkeypatch):
    end_idle_workers()
    monkeypatch.setattr(shared_pool(), "start_seconds", 0.0)  # Not measured yet.
    plan = plan_of(np.arange(160), 4, transform=with_pid)
    with closing(Engine(plan, Settings(2, True, at_once=False))) as engine:
        stream = engine.stream(0, 0, False)
        found = np.concatenate([stream.next() for _ in range(40)])
        assert found[:, 0].tolist() == list(range(160))
        assert set(found[:, 1].tolist()) == {os.getpid()}
        assert (engine.state, engine.at_full_speed) == (WorkerState.DEFERRED, False)
        later = "2 processes, which are started once there is work enough for them"
        assert engine.description == later


def of_waits(*waits: tuple[float, float]) -> Losses:
    losses = Losses()
    for waited, spare in waits:
        losses.note(waited, spare)
    return losses


def test_two_slow_batches_tell_whether_processes_pay(monkeypatch):
    end_idle_workers()
    monkeypatch.setattr(shared_pool(), "start_seconds", 0.0)  # Not measured yet.
    assert not of_waits((0.02, 0.0)).outweigh_processes(1000, 5.0)
    assert of_waits((0.02, 0.0), (0.02, 0.0)).outweigh_processes(1000, 5.0)
    assert not of_waits((0.02, 0.0), (0.02, 0.0)).outweigh_processes(100, 5.0)


def test_an_endless_source_pays_for_processes_by_what_was_lost(monkeypatch):
    end_idle_workers()
    monkeypatch.setattr(shared_pool(), "start_seconds", 0.0)
    assert of_waits(*100 * [(0.02, 0.0)], (0.0, 0.02)).outweigh_processes(float("inf"), 1.0)
    assert not of_waits((0.02, 0.0), (0.0, 0.02)).outweigh_processes(float("inf"), 1.0)


def test_a_reader_ahead_of_the_trainer_loses_nothing_while_it_has_time_to_spare(monkeypatch):
    """TensorFlow's thread reads eight short batches at once, and waits for the trainer then."""
    end_idle_workers()
    monkeypatch.setattr(shared_pool(), "start_seconds", 0.0)
    ahead = [(0.0003, 0.016), *7 * [(0.0003, 0.0)]]
    assert not of_waits(*9 * ahead).outweigh_processes(10_000, 1.0)
    behind = [(0.0003, 0.0005), *7 * [(0.0003, 0.0)]]
    assert of_waits(*9 * behind).outweigh_processes(10_000, 1.0)


def test_two_streams_are_read_on_when_processes_take_over():
    end_idle_workers()
    plan = plan_of(np.arange(400), 4, transform=waits)
    with closing(Engine(plan, Settings(2, True, at_once=False))) as engine:
        streams = [engine.stream(0, 0, False) for _ in range(2)]
        read = [[stream.next() for stream in streams] for _ in range(10)]
        engine._losses.seconds = 100.0
        streams[0].close()
        streams[0] = engine.stream(0, 10, False)
        read += [[stream.next() for stream in streams] for _ in range(90)]
        assert engine.state is WorkerState.WORKING
        for batches in zip(*read):
            assert np.concatenate(batches)[:, 0].tolist() == list(range(400))
