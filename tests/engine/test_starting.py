"""While worker processes start, or can't, the trainer makes the batches if it may."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing

import numpy as np
import pytest

from adapters.cpus import usable_cpus
from adapters.engine import Engine, Settings
from adapters.engine.autotune import Choice
from adapters.engine.pool import shared_pool
from adapters.engine.supply import WorkerState
from tests.engine.executors import end_idle_workers, workers
from tests.engine.workloads import Numbers, Slow
from tests.plans import plan_of

# More than are made until processes have started.
BATCHES = 500_000


def with_pid(sample):
    return np.array([sample, os.getpid()])


class SlowElsewhere:
    """A transform that waits in other processes alone, by too little to be a slow batch."""

    def __init__(self):
        self.home = os.getpid()

    def __call__(self, sample):
        if os.getpid() != self.home:
            time.sleep(0.0007)
        return with_pid(sample)


def chosen(batches, transform):
    """An engine whose measurement has just come to an end, in favour of two processes."""
    plan = plan_of(np.arange(4 * batches), 4, transform=transform)
    engine = Engine(plan, Settings("auto"))
    engine._choose(Choice("processes", 2))
    return closing(engine)


def test_processes_take_over_and_lose_no_batch(new_processes):
    with chosen(BATCHES, with_pid) as engine:
        stream = engine.stream(0, 0, False)
        batches = [stream.next()]
        assert batches[0].tolist() == [[number, os.getpid()] for number in range(4)]
        while batches[-1][0, 1] == os.getpid() and len(batches) < BATCHES - 10:
            batches.append(stream.next())
        batches += [stream.next() for _ in range(9)]
    assert np.concatenate(batches)[:, 0].tolist() == list(range(4 * len(batches)))
    assert batches[-1][0, 1] != os.getpid()


def test_processes_killed_while_they_start_are_replaced(new_processes):
    with chosen(BATCHES, with_pid) as engine:
        engine.start_workers()
        for worker in workers():
            worker.kill()
        stream = engine.stream(0, 0, False)
        while engine.state is WorkerState.STARTING:
            stream.next()
        assert engine.state is WorkerState.WORKING


def test_processes_that_bring_nothing_rest(new_processes):
    with chosen(20_000, SlowElsewhere()) as engine:
        engine.retain()
        engine.start_workers()
        stream, batches = engine.stream(0, 0, False), []
        while "none at work" not in engine.description:
            batches.append(stream.next())
        batches += [stream.next() for _ in range(20)]
        assert np.concatenate(batches)[:, 0].tolist() == list(range(4 * len(batches)))
        assert any(batch[0, 1] != os.getpid() for batch in batches)
        assert batches[-1][0, 1] == os.getpid()
        stream.close()
        engine.release()
        engine.retain()
        stream = engine.stream(1, 0, False)
        assert {int(stream.next()[0, 1]) for _ in range(20)} == {os.getpid()}
        assert engine.state is WorkerState.DEFERRED


@pytest.mark.parametrize("workers", [2, "auto"])
def test_processes_that_were_asked_for_make_all_batches(workers):
    """What kills its process must not kill the trainer."""
    plan = plan_of(np.arange(40), 4, transform=with_pid)
    engine = Engine(plan, Settings(workers, True))
    stream = engine.stream(0, 0, False)
    pids = {int(pid) for _ in range(10) for pid in stream.next()[:, 1]}
    engine.close()
    assert os.getpid() not in pids


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


def test_later_pass_starts_as_many_waiting_processes_as_the_first_found_useful():
    count = usable_cpus() + 1
    plan = plan_of(Numbers(8000), 4, transform=Slow(0.002))
    for at_first in (usable_cpus(), count):
        with closing(Engine(plan, Settings(count, True))) as engine:
            stream = engine.stream(0, 0, False)
            stream.next()
            assert engine.dispatcher.executor.count == at_first
            while engine.dispatcher.executor.count < count:
                stream.next()


@pytest.mark.parametrize("executable", ["/nowhere/python", None, "/bin/false"])
def test_processes_that_cannot_start_leave_work_inline(executable, monkeypatch, caplog):
    end_idle_workers()
    monkeypatch.setattr(sys, "executable", executable)
    with closing(
        Engine(plan_of(Numbers(8000), 4, transform=Slow(0.002)), Settings("auto"))
    ) as engine:
        # The measurement has just come to an end, in favour of two processes.
        engine._choose(Choice("processes", 2))
        engine._losses.seconds = 100.0
        stream, found = engine.stream(0, 0, False), []
        while engine.state is not WorkerState.INLINE and len(found) < 1900:
            found.append(stream.next())
        found += [stream.next() for _ in range(5)]
        assert np.concatenate(found).tolist() == list(range(4 * len(found)))
        assert engine.state is WorkerState.INLINE
    assert sum("processes can't be used" in line for line in caplog.messages) == 1
