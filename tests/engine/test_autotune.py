"""``auto``, later on: what is compared and decided for, and how many are active."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest

from adapters.clock import Spent
from adapters.cpus import usable_cpus
from adapters.engine import Engine, Settings
from adapters.engine.autotune import Comparison
from tests.engine.executors import opened
from tests.engine.workloads import Numbers
from tests.plans import plan_of

SETTLE = 12


class Loop:
    """A training loop with a clock of its own.

    Args:
        comparison: Is told of each batch.
        pace: Seconds for a batch, of a number of workers.
        alone: Seconds that a batch takes to compute.
    """

    def __init__(
        self, comparison: Comparison, pace: Callable[[int], float], alone: float = 0.0
    ) -> None:
        self.comparison, self.pace, self.alone = comparison, pace, alone
        self.now = 0.0
        self.used: list[int] = []

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.used.append(self.comparison.current)
            self.now += self.pace(self.comparison.current)
            self.comparison.delivered(self.now, self.alone)


@pytest.mark.parametrize(
    ("pace", "alone", "fastest"),
    [
        (lambda workers: 0.0012 - 0.0002 * (workers == 8), 0.0, 8),
        (lambda workers: 0.0012 - 0.0002 * (workers == 1), 0.0, 1),
        (lambda workers: 0.0012 - 0.0002 * (workers == 0), 0.0, 0),
        (lambda workers: 0.001 + 0.00001 * (workers == 8), 0.0, 8),
        (lambda workers: {8: 0.12, 1: 0.1, 0: 0.11}[workers], 0.1, 1),
    ],
    ids=["several", "one", "none", "hardly faster", "held up by several"],
)
def test_fastest_is_decided_for(pace, alone, fastest):
    comparison = Comparison([8, 1, 0], SETTLE)
    Loop(comparison, pace, alone).run(1000)
    assert (comparison.decided, comparison.current) == (True, fastest)


def test_loop_that_gets_faster_by_itself_changes_nothing():
    """Files and memory are slow when they are used for the first time."""
    comparison = Comparison([0, 1], SETTLE)
    loop = Loop(comparison, lambda workers: 0.0)
    loop.pace = lambda workers: (0.00008 + 0.002 * 0.01**loop.now) * (1.2 if workers else 1.0)
    while not comparison.decided:
        loop.run(1)
    assert loop.used.count(1) > 3 * 32
    assert comparison.current == 0


@pytest.mark.parametrize(("pace", "current"), [(0.004, 16), (0.002, 32)], ids=["fed", "starved"])
def test_starved_trainer_gets_more_workers(pace, current):
    """Batches wait, for longer than those that were measured."""
    comparison = Comparison([16, 32, 1, 0], SETTLE)
    loop = Loop(comparison, lambda workers: max(pace, 0.06 / max(workers, 1)), alone=0.06)
    loop.run(1000)
    assert (comparison.decided, comparison.current) == (True, current)
    assert {*loop.used} == {16, 32}


# Batches of 64 JPEGs on two cores: fewer workers were tried for nine epochs of 640.
@pytest.mark.parametrize(("pace", "alone"), [(0.02, 0.1), (0.009, 0.0175)])
def test_fewer_are_not_tried_with_slow_batches(pace, alone):
    comparison = Comparison([8, 1, 0], SETTLE)
    loop = Loop(comparison, lambda workers: pace, alone=alone)
    loop.run(200)
    assert {*loop.used} == {8}


def test_end_of_an_epoch_counts_for_none():
    comparison = Comparison([0, 1], SETTLE)
    loop = Loop(comparison, lambda workers: 0.0011 - 0.0001 * workers)
    for _ in range(30):
        loop.run(50)
        loop.now += 2.0
    assert comparison.current == 1


def test_another_pace_of_the_loop_is_another_comparison():
    comparison = Comparison([0, 1], SETTLE)
    loop = Loop(comparison, lambda workers: 0.002 if workers else 0.001)
    loop.run(1000)
    assert comparison.current == 0
    loop.pace = lambda workers: 0.010 if workers else 0.015
    loop.run(1000)
    assert comparison.current == 1


def test_little_noise_is_none():
    comparison = Comparison([0, 1], SETTLE)
    loop = Loop(comparison, lambda workers: 0.001 if workers == 0 else 0.002)
    loop.run(1000)
    loop.used.clear()
    loop.pace = lambda workers: 0.0013
    loop.run(1000)
    assert {*loop.used} == {0}


def test_long_waits_for_the_gil_are_no_gaps():
    """A thread that reads ahead may deliver in bursts: it is slower than none, in spite of them."""
    comparison = Comparison([0, 1], 4)
    now = 0.0
    for number in range(20_000):
        burst = comparison.current == 1
        now += (0.005 if number % 40 == 0 else 0.00001) if burst else 0.00006
        comparison.delivered(now, 0.00004)
        if comparison.decided:
            break
    assert (comparison.decided, comparison.current) == (True, 0)


# --- how many are active ---


@pytest.mark.serial
def test_waiting_trainer_gets_more_threads_than_cpus():
    names: set[str] = set()

    def wait(sample: int) -> int:
        names.add(threading.current_thread().name)
        time.sleep(0.005)
        return sample

    with opened(Numbers(4000), "auto", 8, transform=wait, queue=16) as engine:
        stream, batches = engine.stream(0, 0, False), []
        while len(names) <= usable_cpus() + 1 and len(batches) < 499:
            batches.append(stream.next())
        stream.close()
    assert np.concatenate(batches).tolist() == list(range(8 * len(batches)))
    assert len(names) > usable_cpus() + 1


# --- what is measured ---


def test_slow_first_batch_makes_no_batches_long():
    """Long batches are read ahead while the trainer's pace is measured, others computed inline."""
    threads: list[int] = []

    def transform(sample: int) -> int:
        if not threads:
            time.sleep(0.02)
        threads.append(threading.get_ident())
        return sample

    plan = plan_of(Numbers(4000), 4, transform=transform, thread_safe=True)
    with closing(Engine(plan, Settings("auto"))) as engine:
        stream = engine.stream(0, 0, False)
        while engine.undecided:
            stream.next()
        threads.clear()
        threads.append(threading.get_ident())
        for _ in range(30):
            stream.next()
    assert set(threads) == {threading.get_ident()}


def test_queue_behind_the_work_is_not_its_own(monkeypatch):
    """Trials told of batches that took 1e-06 ms."""
    queued = iter([0.0, 1.0])

    def asked() -> float:
        time.sleep(0.02)
        return next(queued) * 0.02

    monkeypatch.setattr("adapters.clock._queued_seconds", asked)
    began = Spent.now()
    spent = began.until_now()  # Others ran while it asked, but not while it worked.
    assert spent.queued_seconds < 0.001 < 0.019 < spent.own_seconds
