"""Jobs are done, lost and dropped in any order: each batch is read once, or its reader is told.

``ADAPTERS_FUZZ_STATES=20`` tries twenty times as much.
"""

from __future__ import annotations

import multiprocessing
import threading
from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapters.batch.key import BatchKey
from adapters.batch.plan import Assembled
from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine, Settings
from adapters.engine.jobs import FOLLOWING, IllegalTransition, Pending, State
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
            assert pending.state is State.EXPECTED
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
                pending.dropped = True
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
        left = {(pending.dropped, pending.state) for pending in self.stage.executor.held}
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


# --- the table of states ---

FORBIDDEN = [pair for pair in product(State, State) if pair[1] not in FOLLOWING[pair[0]]]


def names(pair: tuple[State, State]) -> str:
    return "-".join(state.name for state in pair)


@pytest.mark.parametrize("pair", FORBIDDEN, ids=names)
def test_what_may_not_follow_is_refused_and_changes_nothing(pair):
    state, following = pair
    pending = Pending(BatchKey(0, 0), state)
    with pytest.raises(IllegalTransition, match=f"that is {state.name} can't .* {following.name}"):
        pending.become(following)
    assert pending.state is state


@pytest.mark.parametrize("state", State)
def test_in_a_forked_process_all_but_what_is_here_is_computed(state):
    stream = Engine(plan_of(Numbers()), Settings(0)).stream(0, 0, False)
    pending = Pending(BatchKey(0, 0), state)
    stream._window.append(pending)
    stream.forget_workers()
    kept = state in (State.HERE, State.DROPPED)
    assert pending.state is (state if kept else State.EXPECTED)


# --- what else comes to a batch, in a state ---


def test_a_reader_need_not_wait_for_the_rest_of_a_threads_job():
    stage = Stage()
    pending = stage.ask()
    stage.executor.do(here=True, reports=False)
    assert (stage.read(pending), pending.state) == (pending.key.index, State.HERE)
    stage.executor.do(here=True)
    assert pending.state is State.HERE


def test_each_reader_of_a_batch_that_was_given_up_is_told_so():
    stage = Stage()
    pending = stage.ask()
    for _ in range(3):
        stage.executor.do(lost=True)
        with pytest.raises((multiprocessing.TimeoutError, WorkerError)):
            stage.read(pending)
    assert (pending.state, stage.executor.jobs) == (State.GIVEN_UP, [])
    for _ in range(2):
        with pytest.raises(WorkerError, match="tried 3 times"):
            stage.read(pending)
    stage.dispatcher.drop([pending])


def test_what_nobody_wants_is_not_done_again():
    stage = Stage()
    pending, other = stage.ask(), stage.ask()
    stage.executor.do(lost=True)
    stage.dispatcher.drop([pending])
    with pytest.raises(multiprocessing.TimeoutError):
        stage.read(other)
    assert [job.batches for job, _ in stage.executor.jobs] == [[other]]
    assert (pending.state, pending in stage.executor.held) == (State.DROPPED, False)


def test_a_batch_that_the_collector_drops_is_not_computed():
    stage = Stage()
    stage.active = 1
    first, second = stage.ask(), stage.ask()
    second.dropped = True  # As Stream.__del__ does, with no lock.
    stage.executor.do()
    assert (first.state, second.state, stage.executor.jobs) == (State.MADE, State.DROPPED, [])


def test_a_batch_whose_workers_have_gone_is_computed_by_its_reader():
    engine = Engine(plan_of(Numbers()), Settings(2))
    stream = engine.stream(0, 0, False)
    stream.read_ahead()
    # As when the main thread has come to its end; what threads have made until then is here.
    engine._dispatcher.stop(for_good=False)
    first = stream._window[0]
    first.state, first.outcome = State.QUEUED, None
    assert stream.next().tolist() == [0, 1, 2, 3]
    assert first.state is State.HERE
    engine.close()


def test_dropping_what_lay_in_the_memory_of_a_executor_that_is_gone_touches_nothing():
    stage = Stage()
    pending = stage.ask()
    stage.executor.do()
    stage.dispatcher.stop(for_good=False)
    stage.ask()
    stage.dispatcher.drop([pending])
    assert (pending.state, pending.dropped) == (State.MADE, True)
    with pytest.raises(ClosedError):
        stage.read(pending)
