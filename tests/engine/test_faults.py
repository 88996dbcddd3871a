"""Exceptions: from every place, through every executor, as what they were."""

from __future__ import annotations

import builtins
import gc
import threading
from typing import Any

import pytest

from tests.engine.executors import end_idle_workers, opened, read, streamed, wait_until
from tests.engine.workloads import Numbers
from tests.leftovers import Leftovers
from tests.plans import notes_of


class OwnError(Exception):
    """Pickle can't make one of these."""

    def __init__(self, number: int, *, why: str) -> None:
        super().__init__(f"{number}: {why}")
        self.why = why


def fault(name: str) -> BaseException:
    """A new exception of this name."""
    return OwnError(9, why="spoilt") if name == "OwnError" else getattr(builtins, name)("spoilt")


class Spoilt:
    """Raises when it comes to ``number``."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number

    def __call__(self, item: Any) -> Any:
        if item == self.number:
            raise fault(self.name)
        return item


@pytest.mark.parametrize(
    ("executor", "name"),
    [
        ("inline", "StopIteration"),
        ("threads-2", "KeyboardInterrupt"),
        ("threads-2", "SystemExit"),
        ("auto", "SystemExit"),
        ("processes-2", "StopIteration"),
        ("processes-2", "SystemExit"),
        ("processes-2", "KeyboardInterrupt"),
        ("cluster", "OwnError"),
        ("cluster", "KeyboardInterrupt"),
        ("cluster", "MemoryError"),
    ],
)
def test_exception_comes_as_itself_after_all_batches_before(executor, name):
    # Python makes a ``RuntimeError`` of a ``StopIteration`` that leaves a generator.
    arrived = RuntimeError if name == "StopIteration" else type(fault(name))
    with streamed(Numbers(), executor, transform=Spoilt(name, 9)) as stream:
        assert [stream.next().tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(arrived, match=r"spoilt|StopIteration") as info:
            stream.next()
    assert type(info.value) is arrived
    first, *others = info.value.__notes__
    assert first == "in sample 9, batch 2 of epoch 0"
    elsewhere = executor in ("processes-2", "cluster")
    assert ["Traceback in worker process" in note for note in others] == [True] * elsewhere


def test_closing_frees_the_memory_of_a_kept_exception():
    before = Leftovers.now()
    with (
        streamed(Numbers(), "processes-2", transform=Spoilt("ValueError", 1)) as stream,
        pytest.raises(ValueError, match="spoilt") as info,
    ):
        stream.next()
    end_idle_workers()
    gc.collect()
    wait_until(lambda: Leftovers.now().beyond(before) == [], seconds=2)
    assert (info.value.args, stream.position) == (("spoilt",), (0, 0))


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


@pytest.mark.parametrize(("when", "name"), [("sent", "StopIteration"), ("received", "OwnError")])
def test_batch_that_fails_on_its_way_back_fails_as_itself(when, name):
    def spoil(sample: int) -> Any:
        return SpoiltMember(name, when) if sample == 9 else sample

    with opened(Numbers(), "processes-2", transform=spoil) as engine:
        stream = engine.stream(0, 0, False)
        assert [stream.next().tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(type(fault(name)), match="spoilt"):
            stream.next()
        stream.close()
        assert read(engine, 1, step=3)[0].tolist() == [12, 13, 14, 15]


@pytest.mark.parametrize(
    ("when", "name"), [("sent", "KeyboardInterrupt"), ("received", "SystemExit")]
)
def test_batch_that_wants_to_leave_does_not_hang(when, name, monkeypatch):
    """It may end the worker; it is told one way or the other."""
    monkeypatch.setattr("adapters.engine.pool._EXIT_SECONDS", 20)

    def spoil(sample: int) -> Any:
        return SpoiltMember(name, when)

    with (
        opened(Numbers(), "processes-2", transform=spoil) as engine,
        pytest.raises(BaseException, match=r"spoilt|process \d+ (exited|was killed by SIGINT)"),
    ):
        read(engine, 1)


def test_what_cannot_be_pickled_is_said_with_a_reason():
    with opened(Numbers(), "processes-2", transform=lambda _: threading.Lock()) as engine:
        with pytest.raises(TypeError, match="cannot pickle '_thread") as info:
            read(engine, 1)
        assert "can't be sent from a worker process" in notes_of(info.value)
