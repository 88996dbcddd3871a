"""Exceptions while a plan is sent to worker processes, and while a batch is sent back."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.engine.executors import PROCESSES, opened, read, workers
from tests.engine.faulty import FAULTS, Spoilt, fault
from tests.engine.workloads import Numbers
from tests.plans import notes_of

pytestmark = pytest.mark.timeout(30)
every_process_pool = pytest.mark.parametrize("executor", PROCESSES)
every_fault = pytest.mark.parametrize("name", FAULTS)


# --- submit: the plan on its way ---


class SpoiltWhenSent(Spoilt):
    def __reduce__(self) -> Any:
        raise fault(self.name)


class SpoiltWhenReceived(Spoilt):
    def __setstate__(self, state: Any) -> None:
        raise fault(state["name"])

    def __getstate__(self) -> Any:
        return vars(self)


@every_process_pool
@pytest.mark.parametrize("name", [name for name in FAULTS if isinstance(fault(name), Exception)])
def test_a_transform_that_fails_to_be_sent_runs_inline(executor, name, caplog):
    with opened(Numbers(), executor, transform=SpoiltWhenSent(name, -1)) as engine:
        assert np.concatenate(read(engine, 2)).tolist() == list(range(8))
        assert workers() == []
    assert f"{type(fault(name)).__name__}: " in caplog.text


@every_process_pool
@every_fault
def test_a_transform_that_fails_to_be_received_fails_as_itself(executor, name):
    with opened(Numbers(), executor, transform=SpoiltWhenReceived(name, -1)) as engine:
        for _ in range(2):
            with pytest.raises(type(fault(name)), match="spoilt") as info:
                read(engine, 1)
            assert "__setstate__" in info.value.__notes__[-1]


# --- deliver: the batch on its way back ---


class SpoiltMember:
    """A member of a batch that can't be sent, or can't be received."""

    def __init__(self, name: str, when: str) -> None:
        self.name = name
        self.when = when

    def __reduce__(self) -> Any:
        if self.when == "sent":
            raise fault(self.name)
        return raise_fault, (self.name,)


def raise_fault(name: str) -> Any:
    raise fault(name)


@every_process_pool
@pytest.mark.parametrize("when", ["sent", "received"])
@pytest.mark.parametrize("name", ["ValueError", "OwnError", "StopIteration", "MemoryError"])
def test_a_batch_that_fails_on_its_way_back_fails_as_itself(executor, when, name):
    def spoil(sample: int) -> Any:
        return SpoiltMember(name, when) if sample == 9 else sample

    with opened(Numbers(), executor, transform=spoil) as engine:
        stream = engine.stream(0, 0, False)
        assert [stream.next().tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(type(fault(name)), match="spoilt"):
            stream.next()
        stream.close()
        assert read(engine, 1, step=3)[0].tolist() == [12, 13, 14, 15]


@every_process_pool
@pytest.mark.parametrize("when", ["sent", "received"])
@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt"])
def test_a_batch_that_wants_to_leave_on_its_way_back_does_not_hang(executor, when, name):
    """It may end the worker; it is told one way or the other."""

    def spoil(sample: int) -> Any:
        return SpoiltMember(name, when)

    with (
        opened(Numbers(), executor, transform=spoil) as engine,
        pytest.raises(BaseException, match=r"spoilt|process"),
    ):
        read(engine, 1)


@pytest.mark.parametrize("executor", ["inline", "threads-2", "auto"])
def test_what_is_not_sent_anywhere_need_not_be_picklable(executor):
    with opened(Numbers(), executor, transform=lambda _: threading.Lock()) as engine:
        assert type(read(engine, 1)[0][3]) is type(threading.Lock())


@every_process_pool
def test_what_cannot_be_pickled_is_said_with_a_reason(executor):
    with opened(Numbers(), executor, transform=lambda _: threading.Lock()) as engine:
        with pytest.raises(TypeError, match="cannot pickle '_thread") as info:
            read(engine, 1)
        assert "can't be sent from a worker process" in notes_of(info.value)
