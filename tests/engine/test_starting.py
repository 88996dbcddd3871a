"""While worker processes start, or can't, the trainer makes the batches if it may."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.engine import Engine, Settings
from adapters.engine.pool import shared_pool
from adapters.engine.supply import WorkerState
from adapters.engine.tuning import Choice, Trial
from adapters.engine.waits import Losses
from tests.engine.executors import end_idle_workers
from tests.engine.workloads import Numbers
from tests.plans import epoch_of, plan_of

# More than are made until processes have started.
BATCHES = 500_000


def with_pid(sample):
    return np.array([sample, os.getpid()])


@pytest.fixture
def measured(new_processes):
    """An engine whose measurement has just come to an end, in favour of two processes."""
    plan = plan_of(np.arange(4 * BATCHES), 4, transform=with_pid)
    engine = Engine(plan, Settings("auto"))
    engine._trial, engine._choice = Trial(plan, False), Choice("processes", 2)
    yield engine
    engine.close()


def test_processes_take_over_and_lose_no_batch(measured):
    stream = measured.stream(0, 0, False)
    batches = [stream.next()]
    assert batches[0].tolist() == [[number, os.getpid()] for number in range(4)]
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
    engine._trial, engine._choice = Trial(plan, False), Choice("processes", 2)
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


def test_processes_that_bring_nothing_rest(slow_elsewhere):
    stream, batches = read_until_they_rest(slow_elsewhere)
    samples = np.concatenate(batches)[:, 0].tolist()
    assert samples == list(range(len(samples)))
    assert any(batch[0, 1] != os.getpid() for batch in batches)
    assert batches[-1][0, 1] == os.getpid()
    stream.close()
    slow_elsewhere.release()
    slow_elsewhere.retain()
    stream = slow_elsewhere.stream(1, 0, False)
    assert {int(stream.next()[0, 1]) for _ in range(20)} == {os.getpid()}
    assert slow_elsewhere.state is WorkerState.DEFERRED


@pytest.mark.parametrize("workers", [2, "auto"])
def test_processes_that_were_asked_for_make_all_batches(workers):
    """What kills its process must not kill the trainer."""
    plan = plan_of(np.arange(40), 4, transform=with_pid)
    engine = Engine(plan, Settings(workers, True))
    stream = engine.stream(0, 0, False)
    pids = {int(pid) for _ in range(10) for pid in stream.next()[:, 1]}
    engine.close()
    assert os.getpid() not in pids


def waits(sample):
    time.sleep(0.002)
    return np.array([sample, os.getpid()])


def test_too_little_work_starts_no_processes(monkeypatch):
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


def test_two_streams_go_on_when_processes_take_over():
    end_idle_workers()
    plan = plan_of(np.arange(40_000), 4, transform=waits)
    with closing(Engine(plan, Settings(2, True, at_once=False))) as engine:
        streams = [engine.stream(0, 0, False) for _ in range(2)]
        read = [[stream.next() for stream in streams] for _ in range(10)]
        engine._losses.seconds = 100.0
        streams[0].close()
        streams[0] = engine.stream(0, 10, False)
        while engine.state is not WorkerState.WORKING and len(read) < 5000:
            read.append([stream.next() for stream in streams])
        read += [[stream.next() for stream in streams] for _ in range(20)]
        assert engine.state is WorkerState.WORKING
        for batches in zip(*read):
            samples = np.concatenate(batches)[:, 0].tolist()
            assert samples == list(range(len(samples)))


class SlowToOpen:
    """Takes its time in one of the worker processes that open it: the one that comes second."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __call__(self, sample: int) -> int:
        time.sleep(0.02)
        return sample

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            time.sleep(2.5)


def test_slow_start_of_one_process_delays_no_batch(tmp_path):
    plan = plan_of(Numbers(60), 2, transform=SlowToOpen(tmp_path / "first"))
    engine = Engine(plan, Settings(2, True, 4, timeout_seconds=1.5))
    stream = engine.stream(0, 0, False)
    assert np.concatenate([stream.next() for _ in range(30)]).tolist() == list(range(60))
    stream.close()
    engine.close()


def test_auto_starts_no_processes_that_cannot_pay():
    end_idle_workers()
    plan = plan_of(Numbers(56), 8, transform=spin)
    engine = Engine(plan, Settings("auto"))
    for epoch in range(3):
        stream = engine.stream(epoch, 0, False)
        batches = [stream.next() for _ in range(7)]
        assert len(batches) == len(epoch_of(plan))
        stream.close()
    assert not shared_pool()._workers
    engine.close()


def spin(sample: int) -> int:
    started = time.thread_time()
    while time.thread_time() - started < 0.0006:
        pass
    return sample


# --- workers that can't start ---


def waiting(sample: int) -> Any:
    time.sleep(0.002)
    return sample


def auto_in_processes(batches: int = 4000) -> Engine:
    """An engine whose measurement has just come to an end, in favour of two processes."""
    engine = Engine(plan_of(Numbers(4 * batches), 4, transform=waiting), Settings("auto"))
    engine._choice = Choice("processes", 2)
    engine._losses.seconds = 100.0
    return engine


@pytest.mark.parametrize("executable", ["/nowhere/python", None], ids=["missing", "unknown"])
def test_processes_that_cannot_start_leave_work_inline(executable, monkeypatch, caplog):
    end_idle_workers()
    monkeypatch.setattr(sys, "executable", executable)
    with closing(auto_in_processes()) as engine:
        stream = engine.stream(0, 0, False)
        found = np.concatenate([stream.next() for _ in range(20)])
        assert found.tolist() == list(range(80))
        assert engine.state is WorkerState.INLINE
    assert sum("processes can't be used" in line for line in caplog.messages) == 1


def test_processes_that_end_at_once_leave_work_inline(tmp_path, monkeypatch, caplog):
    end_idle_workers()
    ends = tmp_path / "python"
    ends.write_text("#!/bin/sh\nexit 3\n")
    ends.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(ends))
    with closing(auto_in_processes()) as engine:
        stream, found = engine.stream(0, 0, False), []
        while engine.state is not WorkerState.INLINE and len(found) < 2000:
            found.append(stream.next())
        found += [stream.next() for _ in range(5)]
        assert np.concatenate(found).tolist() == list(range(4 * len(found)))
        assert engine.state is WorkerState.INLINE
    assert sum("processes can't be used" in line for line in caplog.messages) == 1


# --- whether they pay ---

SLOW = (0.02, 0.0)
AHEAD = [(0.0003, 0.016), *7 * [(0.0003, 0.0)]]
BEHIND = [(0.0003, 0.0005), *7 * [(0.0003, 0.0)]]


# TensorFlow's thread reads eight short batches at once, and waits for the trainer then.
@pytest.mark.parametrize(
    ("waits", "batches", "start_seconds", "pays"),
    [
        ([SLOW], 1000, 5.0, False),
        ([SLOW, SLOW], 1000, 5.0, True),
        ([SLOW, SLOW], 100, 5.0, False),
        ([*100 * [SLOW], (0.0, 0.02)], float("inf"), 1.0, True),
        ([SLOW, (0.0, 0.02)], float("inf"), 1.0, False),
        (9 * AHEAD, 10_000, 1.0, False),
        (9 * BEHIND, 10_000, 1.0, True),
    ],
)
def test_processes_pay_by_what_was_lost(waits, batches, start_seconds, pays, monkeypatch):
    end_idle_workers()
    monkeypatch.setattr(shared_pool(), "start_seconds", 0.0)  # Not measured yet.
    assert of_waits(*waits).outweigh_processes(batches, start_seconds) == pays
