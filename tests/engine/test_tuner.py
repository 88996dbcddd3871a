"""``workers="auto"``, later on: how many workers are active, by how much the trainer waits."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest

from adapters.cpus import usable_cpus
from adapters.engine import tuning
from adapters.engine.tuning import Choice, Tuner
from tests.engine.executors import opened, read
from tests.engine.workloads import Numbers


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(tuning.time, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def observe(tuner: Tuner, clock: Clock, waiting_share: float, periods: int = 1) -> list[int]:
    """Active workers after each period in which the trainer waits that share of its time."""
    active = []
    for _ in range(periods):
        for _ in range(20):
            clock.now += 0.05
            tuner.observe(0.05 * waiting_share)
        active.append(tuner.active)
    return active


def test_a_starved_trainer_gets_more_workers_up_to_the_ceiling(clock):
    tuner = Tuner(Choice("threads", 4, 8))
    active = observe(tuner, clock, 0.5, periods=8)
    assert active == sorted(active)
    assert (active[0], active[-1]) == (5, 8)


def test_a_fed_trainer_gives_workers_back_one_at_a_time_and_keeps_one(clock):
    active = observe(Tuner(Choice("threads", 3, 8)), clock, 0.0, periods=40)
    assert all(later in (now, now - 1) for now, later in itertools.pairwise(active))
    assert (active[0], active[-1]) == (3, 1)


def test_what_was_given_back_and_needed_is_not_given_back_again(clock):
    tuner = Tuner(Choice("threads", 4, 4))
    observe(tuner, clock, 0.0, periods=5)
    assert tuner.active == 3
    observe(tuner, clock, 0.5, periods=1)
    assert observe(tuner, clock, 0.0, periods=30)[-1] == 4


def test_in_between_nothing_changes(clock):
    assert set(observe(Tuner(Choice("threads", 4, 8)), clock, 0.02, periods=20)) == {4}


def test_a_few_batches_or_a_moment_tell_nothing(clock):
    tuner = Tuner(Choice("threads", 4, 8))
    for _ in range(100):
        tuner.observe(1.0)
    assert tuner.active == 4


@pytest.mark.serial
def test_a_waiting_trainer_has_batches_computed_by_more_threads_than_cpus():
    names: set[str] = set()

    def wait(sample: int) -> int:
        names.add(threading.current_thread().name)
        time.sleep(0.005)
        return sample

    with opened(Numbers(4000), "auto", 8, transform=wait, queue=16) as engine:
        assert np.concatenate(read(engine, 60)).tolist() == list(range(480))
    assert len(names) > usable_cpus() + 1
