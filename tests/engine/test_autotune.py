"""``auto``: which workers fit which work, how many, what the log says, and what changes later."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adapters.batch.plan import BatchKey
from adapters.batch.sourceplan import SourcePlan
from adapters.clock import Spent
from adapters.cpus import usable_cpus
from adapters.engine import autotune
from adapters.engine.autotune import Choice, Comparison, Trial
from adapters.engine.tasks import Future, State
from tests.engine.executors import opened, read
from tests.engine.workloads import Numbers
from tests.plans import plan_of

several_cpus = pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has nothing to choose from")


class Scripted:
    """A stream whose batches take what the test says."""

    def __init__(
        self,
        seconds: float,  # Of a batch on one thread,
        cpu_share: float = 1.0,  # of which this is work;
        scales: bool = True,  # two threads make twice as many.
        errors: int = 0,  # So many of the first batches fail.
        spent: Callable[[int], Spent] | None = None,  # By a batch's number, if these differ.
        slow_pairs: int = 0,  # So many of the first batches take longer on two threads.
    ) -> None:
        self.seconds, self.slow_pairs = seconds, slow_pairs
        self.spent = spent or (lambda number: Spent(seconds, seconds * cpu_share, 0.0, 1))
        self.guard = threading.Semaphore(2 if scales else 1)
        self.errors = errors
        self.made = 0

    def compute(self) -> Future:
        future = self.append_next()
        future.spent = self.spent(self.made - 1)
        return future

    def append_next(self, needed: bool = True) -> Future:
        future = Future(BatchKey(0, self.made), State.DONE)
        self.made += 1
        if self.made <= self.errors:
            future.error = ValueError("spoilt")
        return future

    def fulfil(self, future: Future) -> None:
        started = Spent.now()
        with self.guard:
            time.sleep(self.seconds * (2.5 if self.made <= self.slow_pairs else 1))
        future.spent = started.until_now()


def choice_for(stream: Scripted, plan: Any = None) -> Choice | None:
    """What is chosen, after as many steps as it takes."""
    trial = Trial(plan or plan_of(Numbers()))
    for _ in range(12):
        choice = trial.step(stream)
        if choice is not None:
            return choice
    return None


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "usable_cpus", lambda: 4)


def quickening(number: int) -> Spent:
    """Only the first batches take long, as those do that are read from the disk."""
    return Spent(0.0002 if number > 1 else 0.02, 0.02, 0.0, 1)


def held_up_twice(number: int) -> Spent:
    """Something holds up two of the first batches, and not by having the CPU."""
    return Spent(0.00505 if number in (1, 2) else 0.00005, 0.00005, 0.0, 1)


def disturbed(number: int) -> Spent:
    """Others have the CPUs for most of the first batches, which look as if they waited."""
    queued = 0.45 if number < 3 else 0.0
    return Spent(0.05 + queued, 0.05, queued, 1)


FIRST = "a batch takes {}, which needs no more"


@pytest.mark.parametrize(
    ("stream", "kind", "count", "words"),
    [
        (Scripted(0.0001), "threads", 1, FIRST.format("0.1 ms")),
        (Scripted(0.1, cpu_share=0.25), "threads", 16, "75% of it waiting"),
        (Scripted(0.1, cpu_share=0.0), "threads", 64, "100% of it waiting"),
        (Scripted(0.05), "threads", 4, "two threads make"),
        (Scripted(0.05, scales=False), "processes", 4, "two threads make"),
        (Scripted(0.05, scales=False, errors=3), "processes", 4, "two threads make"),
        (Scripted(0.02, scales=False, spent=quickening), "threads", 1, FIRST.format("0.2 ms")),
        (Scripted(0.00005, spent=held_up_twice), "threads", 1, FIRST.format("0.05 ms")),
        (Scripted(0.05, scales=False, spent=disturbed), "processes", 4, "a batch takes 50 ms"),
        (Scripted(0.05, slow_pairs=6), "threads", 4, "two threads make"),
    ],
    ids=[
        *("trivial", "mostly waiting", "sleeping", "releases the GIL", "holds the GIL", "errors"),
        *("quicker later", "held up twice", "busy machine", "slow first pair"),
    ],
)
@pytest.mark.usefixtures("four_cpus")
def test_workers_fit_the_work(stream, kind, count, words):
    choice = choice_for(copy.copy(stream))
    assert (choice.kind, choice.count, choice.only_if_busy) == (kind, count, count == 1)
    assert words in choice.reason


class OwnFunctions(SourcePlan):
    calls_users_functions = True


class Decoding(SourcePlan):
    only_decodes = True


@pytest.mark.usefixtures("four_cpus")
@pytest.mark.parametrize(
    ("plan", "stream", "kind", "made"),
    [
        (OwnFunctions, Scripted(0.02), "processes", 2),
        (OwnFunctions, Scripted(0.02, cpu_share=0.0), "threads", 2),
        (Decoding, Scripted(0.05, scales=False), "threads", 2),
        (Decoding, Scripted(0.02, scales=False), "threads", 2),
        (Decoding, Scripted(0.0125, scales=False), "processes", 11),
        (Decoding, Scripted(0.05, cpu_share=0.25), "threads", 2),
    ],
    ids=["functions", "that wait", "large images", "raw ones", "small ones", "on slow storage"],
)
def test_plan_decides_without_a_trial(plan, stream, kind, made):
    """Where the machine has other things to do, two threads may be no faster than one."""
    stream, own = copy.copy(stream), plan_of(Numbers(640), 320)
    own.__class__ = plan
    assert (choice_for(stream, own).kind, stream.made) == (kind, made)


def trivial(sample: int) -> int:
    return sample + 1


def holds_the_gil(sample: int) -> int:
    return sum(n * n for n in range(20_000)) + sample


def waits(sample: int) -> int:
    time.sleep(0.005)
    return sample


def logged_for(caplog: pytest.LogCaptureFixture, transform: Callable[..., Any]) -> list[str]:
    """The log's lines about the choice for this work."""
    caplog.clear()
    with (
        caplog.at_level(logging.INFO, "adapters"),
        opened(Numbers(1000), "auto", 8, transform=transform) as engine,
    ):
        read(engine, 16)
    return [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]


@pytest.mark.serial
@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (trivial, "inline, with one thread that reads ahead"),
        pytest.param(holds_the_gil, "processes", marks=several_cpus),
        (waits, "% of it waiting"),
    ],
)
def test_log_says_what_was_chosen_and_why(caplog, transform, words):
    """Up to five tries: another program may take the CPUs away while it is measured."""
    tries = []
    for _ in range(5):
        lines = logged_for(caplog, transform)
        assert len(lines) == 1
        assert lines[0].startswith('workers="auto": ')
        assert "\n" not in lines[0]
        tries += lines
        if words in lines[0]:
            return
    pytest.fail("\n".join(tries))


def test_choice_of_another_streams_thread_stays(monkeypatch):
    with opened(Numbers(4000), "auto", 8) as engine:
        one, other = (engine.stream(0, 0, False) for _ in range(2))
        plain = Trial.step

        def step(trial: Trial, stream: Any) -> None:
            """Undecided, as the other stream decides meanwhile."""
            monkeypatch.setattr(Trial, "step", plain)
            for _ in range(20):
                other.next()

        monkeypatch.setattr(Trial, "step", step)
        one.next()
        assert "will decide" not in engine.description


# --- later on: what is compared and decided for ---

SETTLE = 12


class Loop:
    """A training loop with a clock of its own, and a pace by the number of workers."""

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
    Loop(comparison, pace, alone).run(5000)
    assert (comparison.decided, comparison.current) == (True, fastest)


@pytest.mark.parametrize("factor", [1.2, 1.9, 2.9])
def test_trying_a_slower_setting_costs_a_short_epoch_little(factor):
    loop = Loop(Comparison([0, 1], SETTLE), lambda workers: 0.00025 * (factor if workers else 1))
    loop.run(1000)
    assert 1 in loop.used
    assert loop.now < 1.035 * 1000 * 0.00025


def test_fewer_are_not_tried_with_slow_batches():
    """Of 64 JPEGs, on two cores."""
    comparison = Comparison([8, 1, 0], SETTLE)
    loop = Loop(comparison, lambda workers: 0.009, alone=0.0175)
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
    loop.run(3000)
    assert comparison.current == 0
    loop.pace = lambda workers: 0.010 if workers else 0.015
    loop.run(3000)
    assert comparison.current == 1


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
