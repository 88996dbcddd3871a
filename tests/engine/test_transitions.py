"""From which state to which a batch comes, and by what; and that it comes nowhere else."""

from __future__ import annotations

import ast
import multiprocessing
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import adapters.engine
from adapters.batch.key import BatchKey
from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine, Settings
from adapters.engine.jobs import FOLLOWING, IllegalTransition, Pending, State
from adapters.engine.stream import Stream
from adapters.errors import ClosedError, WorkerError
from tests.engine.hands import Stage
from tests.engine.workloads import Numbers
from tests.plans import plan_of

EDGES = [(state, after) for state in State for after in sorted(FOLLOWING[state])]
FORBIDDEN = [pair for pair in product(State, State) if pair not in EDGES]
SPOILT = LookupError("spoilt")
E, Q, M, H, F, G, D = State


def names(pair: Any) -> str:
    return "-".join(state.name for state in pair)


# --- the table ---


@pytest.mark.parametrize("pair", FORBIDDEN, ids=names)
def test_what_may_not_follow_is_refused_and_changes_nothing(pair):
    state, following = pair
    pending = Pending(BatchKey(0, 0), state)
    with pytest.raises(IllegalTransition, match=f"that is {state.name} can't .* {following.name}"):
        pending.become(following)
    assert pending.state is state


def test_nothing_but_become_changes_a_state():
    writers = []
    for path in Path(adapters.engine.__file__).parent.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                stored = (n for n in ast.walk(function) if isinstance(n, ast.Attribute))
                if any(n.attr == "state" and isinstance(n.ctx, ast.Store) for n in stored):
                    writers.append(function.name)
    # The other one is an exception's.
    assert sorted(writers) == ["__init__", "become"]


# --- each transition, once ---

HOW: dict[tuple[State, State], Callable[[], Pending]] = {}


def by(*pair: State) -> Any:
    """What brings a batch from the first of these states to the second."""

    def add(function: Callable[[], Pending]) -> Callable[[], Pending]:
        HOW[pair[0], pair[1]] = function
        return function

    return add


def stream_of(plan: SourcePlan | None = None) -> Stream:
    return Engine(plan or plan_of(Numbers()), Settings(0)).stream(0, 0, False)


def forked(pending: Pending) -> Pending:
    """What a forked process does with a batch in the window."""
    stream = stream_of()
    stream._window.append(pending)
    stream.forget_workers()
    return pending


@by(E, Q)
def asked_for() -> Pending:
    return Stage().ask()


@by(E, H)
def computed_by_its_reader() -> Pending:
    stream = stream_of()
    pending = stream.append_next()
    assert stream.next().tolist() == [0, 1, 2, 3]
    return pending


@by(E, F)
def spoilt_in_a_trial() -> Pending:
    def spoil(sample: int) -> int:
        raise SPOILT

    return stream_of(plan_of(Numbers(), transform=spoil)).compute()


@by(Q, M)
def made() -> Pending:
    stage = Stage()
    pending = stage.ask()
    stage.executor.do()
    return pending


@by(Q, H)
def made_by_a_thread() -> Pending:
    stage = Stage()
    pending = stage.ask()
    stage.executor.do(here=True)
    return pending


@by(Q, F)
def spoilt() -> Pending:
    stage = Stage()
    pending = stage.ask()
    stage.executor.do(error=SPOILT)
    return pending


@by(Q, G)
def deadly() -> Pending:
    stage = Stage()
    pending = stage.ask()
    for _ in range(3):
        stage.executor.do(lost=True)
        with pytest.raises((multiprocessing.TimeoutError, WorkerError)):
            stage.read(pending)
    return pending


@by(Q, D)
def dropped_while_a_worker_has_it() -> Pending:
    stage = Stage()
    pending = stage.ask()
    stage.dispatcher.drop([pending])
    assert pending.state is Q
    stage.executor.do()
    return pending


@by(M, H)
def read() -> Pending:
    stage = Stage()
    pending = stage.ask()
    stage.executor.do()
    assert stage.read(pending) == pending.key.index
    assert not stage.executor.held
    return pending


@by(M, D)
def dropped() -> Pending:
    stage = Stage()
    pending = stage.ask()
    stage.executor.do()
    stage.dispatcher.drop([pending])
    assert not stage.executor.held
    return pending


@by(F, E)
def told() -> Pending:
    stage = Stage()
    pending = stage.ask()
    stage.executor.do(error=SPOILT)
    with pytest.raises(LookupError, match="spoilt"):
        stage.read(pending)
    assert pending.error is None
    return pending


HOW |= {
    (Q, E): lambda: forked(asked_for()),
    (M, E): lambda: forked(made()),
    (G, E): lambda: forked(deadly()),
}


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[State, State]]:
    """What each state was, and became."""
    seen, become = [], Pending.become

    def noted(self: Pending, state: State) -> None:
        before = self.state
        become(self, state)
        seen.append((before, state))

    monkeypatch.setattr(Pending, "become", noted)
    return seen


@pytest.mark.parametrize("pair", EDGES, ids=names)
def test_what_may_follow_does(pair, changes):
    assert HOW[pair]().state is pair[1]
    assert changes[-1] == pair


def test_in_a_forked_process_what_failed_is_computed_and_what_is_here_stays():
    assert forked(spoilt()).state is E
    assert forked(made_by_a_thread()).state is H
    assert forked(Pending(BatchKey(0, 0))).state is E


# --- what else comes to a batch, in a state ---


def test_a_reader_need_not_wait_for_the_rest_of_a_threads_job():
    stage = Stage()
    pending = stage.ask()
    stage.executor.do(here=True, reports=False)
    assert (stage.read(pending), pending.state) == (pending.key.index, H)
    stage.executor.do(here=True)
    assert pending.state is H


def test_each_reader_of_a_batch_that_was_given_up_is_told_so():
    stage = Stage()
    pending = stage.ask()
    for _ in range(3):
        stage.executor.do(lost=True)
        with pytest.raises((multiprocessing.TimeoutError, WorkerError)):
            stage.read(pending)
    assert (pending.state, stage.executor.jobs) == (G, [])
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
    assert (pending.state, pending in stage.executor.held) == (D, False)


def test_a_batch_that_the_collector_drops_is_not_computed():
    stage = Stage()
    stage.active = 1
    first, second = stage.ask(), stage.ask()
    second.abandoned = True  # As Stream.__del__ does, with no lock.
    stage.executor.do()
    assert (first.state, second.state, stage.executor.jobs) == (M, D, [])


def test_a_batch_whose_workers_have_gone_is_computed_by_its_reader():
    engine = Engine(plan_of(Numbers()), Settings(2))
    stream = engine.stream(0, 0, False)
    stream.read_ahead()
    # As when the main thread has come to its end; what threads have made until then is here.
    engine._dispatcher.stop(for_good=False)
    first = stream._window[0]
    first.state, first.outcome = Q, None
    assert stream.next().tolist() == [0, 1, 2, 3]
    assert first.state is H
    engine.close()


def test_dropping_what_lay_in_the_memory_of_a_executor_that_is_gone_touches_nothing():
    stage = Stage()
    pending = stage.ask()
    stage.executor.do()
    stage.dispatcher.stop(for_good=False)
    stage.ask()
    stage.dispatcher.drop([pending])
    assert (pending.state, pending.abandoned) == (M, True)
    with pytest.raises(ClosedError):
        stage.read(pending)
