"""Jobs are done, lost and dropped in any order: each batch is read once, or its reader is told.

``ADAPTERS_FUZZ_STATES=20`` tries twenty times as much.
"""

from __future__ import annotations

import multiprocessing
import threading

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapters.batch.plan import Assembled
from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine, Settings
from adapters.engine.jobs import Pending, State
from adapters.errors import ClosedError, WorkerError
from tests.engine.hands import Stage
from tests.engine.machines import run
from tests.engine.workloads import Numbers, SpoiltError
from tests.plans import plan_of

DEEDS = st.sampled_from(["made", "here", "unreported", "error", "lost"])


class Dispatching(RuleBasedStateMachine):
    """A dispatcher, whose executor does what the rules say."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(batch_transform=lambda batch: batch)
        self.stage.active = 3
        self.wanted: list[Pending] = []

    @rule(start=st.sampled_from([True, True, False]))
    def ask(self, start: bool) -> None:
        self.wanted.append(self.stage.ask(start))

    @precondition(lambda self: self.stage.executor.jobs)
    @rule(deeds=st.lists(st.tuples(st.integers(0, 2), DEEDS), min_size=1, max_size=4))
    def do(self, deeds: list[tuple[int, str]]) -> None:
        executor = self.stage.executor
        for number, what in deeds[: len(executor.jobs)]:
            number %= len(executor.jobs)
            if what in ("here", "unreported"):
                executor.do(number, here=True, reports=what == "here")
            elif what == "error":
                executor.do(number, error=SpoiltError())
            else:
                executor.do(number, lost=what == "lost")

    @precondition(lambda self: self.wanted)
    @rule(number=st.integers(0, 3))
    def read(self, number: int) -> None:
        pending = self.wanted[number % len(self.wanted)]
        try:
            found = self.stage.read(pending)
        except multiprocessing.TimeoutError:
            assert pending.state is State.QUEUED
            return
        except WorkerError:
            assert pending.state is State.GIVEN_UP
            return
        except SpoiltError:
            assert pending.state is State.UNSUBMITTED
        except ClosedError:
            assert pending.executor is not self.stage.dispatcher._executor
        else:
            assert (found, pending.state) == (pending.key.index, State.HERE)
        self.wanted.remove(pending)

    @precondition(lambda self: self.stage.executor.jobs)
    @rule(number=st.integers(0, 2))
    def kill_each_worker(self, number: int) -> None:
        """Of a batch that is waited for."""
        executor = self.stage.executor
        job, _ = executor.jobs[number % len(executor.jobs)]
        pending = job.batches[0]
        for _ in range(3):
            own = [i for i, (job, _) in enumerate(executor.jobs) if pending in job.batches]
            if own and pending in self.wanted:
                executor.do(own[0], lost=True)
                self.read(self.wanted.index(pending))

    @precondition(lambda self: self.wanted)
    @rule(first=st.integers(0, 3), count=st.integers(1, 4), collected=st.booleans())
    def drop(self, first: int, count: int, collected: bool) -> None:
        dropped = self.wanted[first : first + count]
        del self.wanted[first : first + count]
        if collected:  # By the garbage collector.
            for pending in dropped:
                pending.abandoned = True
        else:
            self.stage.dispatcher.drop(dropped)

    @rule(really=st.sampled_from([False] * 7 + [True]))
    def stop(self, really: bool) -> None:
        if really:
            self.stage.dispatcher.stop(for_good=False)

    @invariant()
    def states_say_what_is_there(self) -> None:
        for pending in self.stage.asked:
            if pending.state is State.HERE:
                assert pending.outcome is not None
            if pending.state in (State.FAILED, State.GIVEN_UP):
                assert pending.error is not None
            if pending.state is State.MADE and pending.executor is self.stage.dispatcher._executor:
                assert pending in pending.executor.held

    def teardown(self) -> None:
        """What is wanted can be read in the end, and nothing else is left."""
        self.read_all()
        self.wanted.append(self.stage.ask())  # Its reader sees to jobs of others that are lost.
        self.read_all()
        while self.stage.executor.jobs:
            self.stage.executor.do()
        dispatcher = self.stage.dispatcher
        assert not [*dispatcher._ready, *dispatcher._running, *dispatcher._lost]
        # What the collector dropped too late waits for the end of the executor.
        left = {(pending.abandoned, pending.state) for pending in self.stage.executor.held}
        assert left <= {(True, State.MADE)}

    def read_all(self) -> None:
        self.stage.dispatcher.start_jobs()
        left = 20 * len(self.stage.asked)
        for pending in list(self.wanted):
            while pending in self.wanted and pending.state is not State.GIVEN_UP:
                assert left, "a batch is waited for, and nobody makes it"
                left -= 1
                self.read(self.wanted.index(pending))
                if pending in self.wanted and self.stage.executor.jobs:
                    self.stage.executor.do()


def test_jobs_that_are_done_by_hand():
    run(Dispatching, 200, 50)


# --- what can't be made ---


class Late(SourcePlan):
    """Its errors come after its functions have returned, as those of MXNet's engine do."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.returned, self.allowed = threading.Event(), threading.Event()

    def wait_for(self, assembled: Assembled) -> None:
        self.returned.set()
        assert self.allowed.wait(20)
        raise SpoiltError


@pytest.fixture
def late() -> Late:
    plan = plan_of(Numbers())
    return Late(plan.source, plan.order)


def test_a_batch_on_a_thread_is_not_there_before_its_late_errors(late):
    engine = Engine(late, Settings(1))
    stream = engine.stream(0, 0, False)
    stream.read_ahead()
    assert late.returned.wait(20)
    timer = threading.Timer(0.05, late.allowed.set)
    timer.start()
    with pytest.raises(SpoiltError):
        stream.next()
    timer.join()
    engine.close()


def test_nor_is_one_in_a_trial(late):
    stream = Engine(late, Settings(0)).stream(0, 0, False)
    late.allowed.set()
    stream.compute()
    with pytest.raises(SpoiltError):
        stream.next()
