"""``auto``: which workers fit which work, how many, and what the log says."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from adapters.batch.key import BatchKey
from adapters.batch.sourceplan import SourcePlan
from adapters.clock import Spent
from adapters.cpus import usable_cpus
from adapters.engine import tuning
from adapters.engine.jobs import Pending, State
from adapters.engine.tuning import Choice, Trial
from adapters.sources import SequenceSource
from tests.engine.executors import opened, read
from tests.engine.workloads import Numbers
from tests.plans import plan_of

several_cpus = pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has nothing to choose from")


class Scripted:
    """A stream whose batches take what the test says.

    Args:
        seconds: Of a batch on one thread.
        cpu_share: How much of that is work.
        scales: Whether two threads make twice as many.
        errors: How many of the first batches fail.
    """

    def __init__(
        self, seconds: float, cpu_share: float = 1.0, scales: bool = True, errors: int = 0
    ) -> None:
        self.seconds = seconds
        self.cpu_share = cpu_share
        self.guard = threading.Semaphore(2 if scales else 1)
        self.errors = errors
        self.made = 0

    def compute(self) -> Pending:
        pending = self.append_next()
        pending.spent = self.spent()
        return pending

    def spent(self) -> Spent:
        return Spent(self.seconds, self.seconds * self.cpu_share, 0.0, 1)

    def append_next(self, needed: bool = True) -> Pending:
        pending = Pending(BatchKey(0, self.made), State.HERE)
        self.made += 1
        if self.made <= self.errors:
            pending.state, pending.error = State.FAILED, ValueError("spoilt")
        return pending

    def fulfil(self, pending: Pending) -> None:
        started = Spent.now()
        with self.guard:
            time.sleep(self.seconds)
        pending.spent = started.until_now()


def choice_for(
    stream: Scripted, plan: Any = None, use_multiprocessing: bool = False, steps: int = 12
) -> Choice | None:
    """What is chosen, after as many steps as it takes."""
    trial = Trial(plan or plan_of(Numbers()), use_multiprocessing)
    for _ in range(steps):
        choice = trial.step(stream)
        if choice is not None:
            return choice
    return None


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "usable_cpus", lambda: 4)


@pytest.mark.parametrize(
    ("stream", "kind", "count", "words"),
    [
        (Scripted(0.0001), "threads", 1, "a batch takes 0.1 ms, which needs no more"),
        (Scripted(0.1, cpu_share=0.25), "threads", 16, "75% of it waiting"),
        (Scripted(0.1, cpu_share=0.0), "threads", 64, "100% of it waiting"),
        (Scripted(0.05), "threads", 4, "two threads make"),
        (Scripted(0.05, scales=False), "processes", 4, "two threads make"),
        (Scripted(0.05, scales=False, errors=3), "processes", 4, "two threads make"),
    ],
    ids=["trivial", "mostly waiting", "sleeping", "releases the GIL", "holds the GIL", "errors"],
)
@pytest.mark.usefixtures("four_cpus")
def test_workers_fit_the_work(stream, kind, count, words):
    choice = choice_for(copy.copy(stream))
    assert (choice.kind, choice.count) == (kind, count)
    assert words in choice.reason


class Quickening(Scripted):
    """Only the first batches take long, as those do that are read from the disk."""

    def compute(self) -> Pending:
        pending = super().compute()
        if self.made > 2:
            pending.spent = pending.spent._replace(seconds=self.seconds / 100)
        return pending


class Delayed(Scripted):
    """Something holds up one of the first batches, or two of them, and not by having the CPU."""

    def __init__(self, seconds: float, held_up: tuple[int, ...]) -> None:
        super().__init__(seconds)
        self.held_up = held_up

    def spent(self) -> Spent:
        wait = 0.005 if self.made - 1 in self.held_up else 0.0
        return Spent(self.seconds + wait, self.seconds, 0.0, 1)


class Slow(Scripted):
    """Two threads are no faster the first times."""

    def fulfil(self, pending: Pending) -> None:
        started = Spent.now()
        time.sleep(self.seconds if self.made > 6 else 2.5 * self.seconds)
        pending.spent = started.until_now()


class Disturbed(Scripted):
    """Others have the CPUs for most of the first batches, which look as if they waited."""

    def spent(self) -> Spent:
        queued = 9 * self.seconds if self.made <= 3 else 0.0
        return Spent(self.seconds + queued, self.seconds, queued, 1)


class OwnFunctions(SourcePlan):
    calls_users_functions = True


@pytest.mark.usefixtures("four_cpus")
@pytest.mark.parametrize(("cpu_share", "kind"), [(1.0, "processes"), (0.0, "threads")])
def test_users_functions_get_processes_unless_they_wait(cpu_share, kind):
    plan = plan_of(Numbers())
    plan.__class__ = OwnFunctions
    stream = Scripted(0.02, cpu_share)
    assert choice_for(stream, plan).kind == kind
    assert stream.made == 2  # Nothing was tried on threads.


class Decoding(SourcePlan):
    only_decodes = True


@pytest.mark.usefixtures("four_cpus")
@pytest.mark.parametrize(
    ("stream", "kind", "made"),
    [
        (Scripted(0.05, scales=False), "threads", 2),
        (Scripted(0.002, scales=False), "threads", 4),
        (Scripted(0.00125, scales=False), "processes", 13),
        (Scripted(0.05, cpu_share=0.25), "threads", 2),
    ],
    ids=["large images", "raw ones", "small ones", "on slow storage"],
)
def test_decoding_gets_threads_without_a_trial(stream, kind, made):
    """Where the machine has other things to do, two threads may be no faster than one."""
    stream, plan = copy.copy(stream), plan_of(Numbers(64), 32)
    plan.__class__ = Decoding
    assert (choice_for(stream, plan).kind, stream.made) == (kind, made)


@pytest.mark.usefixtures("four_cpus")
def test_who_asks_for_processes_is_not_measured():
    stream = Scripted(0.05)
    choice = choice_for(stream, use_multiprocessing=True)
    assert (choice.kind, choice.count, stream.made) == ("processes", 4, 0)


def test_one_cpu_leaves_one_thread(monkeypatch):
    monkeypatch.setattr(tuning, "usable_cpus", lambda: 1)
    choice = choice_for(Scripted(0.05))
    assert (choice.kind, choice.count) == ("threads", 1)
    assert "there is one CPU" in choice.reason


@pytest.mark.usefixtures("four_cpus")
def test_sequence_asked_one_at_a_time_gets_processes():
    plan = plan_of(SequenceSource(Numbers(), changes_between_epochs=False), 1, thread_safe=None)
    choice = choice_for(Scripted(0.05), plan)
    assert (choice.kind, choice.count) == ("processes", 4)


@pytest.mark.usefixtures("four_cpus")
def test_nothing_is_chosen_while_batches_fail():
    assert choice_for(Scripted(0.05, errors=20), steps=5) is None


# --- real work ---


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


def test_choice_that_was_given_is_not_logged(caplog):
    with caplog.at_level(logging.INFO, "adapters"), opened(Numbers(), "threads-2") as engine:
        read(engine, 7)
    assert caplog.messages == []


FIRST = "a batch takes {}, which needs no more"


@pytest.mark.usefixtures("four_cpus")
@pytest.mark.parametrize(
    ("stream", "kind", "count", "words"),
    [
        (Quickening(0.02, scales=False), "threads", 1, FIRST.format("0.2 ms")),
        (Delayed(0.00005, (1, 2)), "threads", 1, FIRST.format("0.05 ms")),
        (Disturbed(0.05, scales=False), "processes", 4, "a batch takes 50 ms"),
        (Slow(0.05), "threads", 4, ""),
    ],
    ids=["quicker later", "held up twice", "busy machine", "slow first pair"],
)
def test_first_batches_mislead_nobody(stream, kind, count, words):
    choice = choice_for(copy.copy(stream))
    assert (choice.kind, choice.count, choice.only_if_busy) == (kind, count, count == 1)
    assert words in choice.reason


class Stubborn:
    def __reduce__(self) -> Any:
        raise TypeError("first line\nsecond line")

    def __call__(self, sample: int) -> int:
        return sample


@pytest.mark.usefixtures("four_cpus")
def test_unsendable_work_is_inline_and_one_line_says_why():
    plan = plan_of(Numbers(), transform=Stubborn(), thread_safe=None)
    choice = choice_for(Scripted(0.05, scales=False), plan)
    assert (choice.kind, choice.count) == ("inline", 0)
    assert "TypeError: first line" in choice.reason
    assert "\n" not in choice.reason
