"""Exceptions: from every place, through every executor, as what they were."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from adapters.sources import SequenceSource
from tests.engine.executors import PROCESSES, end_idle_workers, opened, read, wait_until
from tests.engine.workloads import Numbers, Tally
from tests.leftovers import Leftovers
from tests.plans import notes_of

FAULTS = [
    "ValueError",
    "OwnError",
    "StopIteration",
    "SystemExit",
    "KeyboardInterrupt",
    "MemoryError",
]


class OwnError(Exception):
    """Pickle can't make one of these."""

    def __init__(self, number: int, *, why: str) -> None:
        super().__init__(f"{number}: {why}")
        self.why = why


def fault(name: str) -> BaseException:
    """A new exception of this name."""
    return {
        "ValueError": lambda: ValueError("spoilt"),
        "OwnError": lambda: OwnError(9, why="spoilt"),
        "StopIteration": lambda: StopIteration("spoilt"),
        "SystemExit": lambda: SystemExit("spoilt"),
        "KeyboardInterrupt": lambda: KeyboardInterrupt("spoilt"),
        "MemoryError": lambda: MemoryError("spoilt"),
    }[name]()


class Spoilt:
    """Raises when it comes to ``number``, as a transform, a data set or a batch transform."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number

    def __call__(self, item: Any) -> Any:
        if np.any(item == self.number):
            raise fault(self.name)
        return item

    def __len__(self) -> int:
        return 26

    def __getitem__(self, number: int) -> Any:
        return self(number)


every_executor = pytest.mark.parametrize(
    "executor", ["inline", "threads-2", "processes-2", "auto", "cluster"]
)
every_process_pool = pytest.mark.parametrize("executor", PROCESSES)
every_fault = pytest.mark.parametrize("name", FAULTS)


def arrived(name: str) -> type[BaseException]:
    """Python makes a ``RuntimeError`` of a ``StopIteration`` that leaves a generator."""
    return RuntimeError if name == "StopIteration" else type(fault(name))


class SpoiltBatches(Spoilt):
    def __len__(self) -> int:
        return 7

    def __getitem__(self, number: int) -> Any:
        return self(np.array([number]))


# --- run ---


@every_executor
@every_fault
def test_exception_comes_as_itself_after_all_batches_before(executor, name):
    with opened(Numbers(), executor, transform=Spoilt(name, 9)) as engine:
        stream = engine.stream(0, 0, False)
        assert [stream.next().tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(arrived(name), match=r"spoilt|StopIteration") as info:
            stream.next()
        stream.close()
    assert type(info.value) is arrived(name)
    assert notes_of(info.value).startswith("in sample 9, batch 2 of epoch 0")


@every_executor
@pytest.mark.parametrize(
    ("data", "batch_size", "arguments", "note"),
    [
        (Numbers(), 4, {"transform": Spoilt("OwnError", 9)}, "in sample 9, batch 2 of epoch 0"),
        (Spoilt("OwnError", 9), 4, {}, "in sample 9, batch 2 of epoch 0"),
        (
            Numbers(),
            4,
            {"batch_transform": Spoilt("OwnError", 9)},
            "in batch_transform, batch 2 of epoch 0",
        ),
        (
            SequenceSource(SpoiltBatches("OwnError", 2), False),
            1,
            {},
            "in item 2 of the source, batch 2 of epoch 0",
        ),
    ],
    ids=["transform", "source", "batch_transform", "sequence"],
)
def test_notes_say_where_it_happened(executor, data, batch_size, arguments, note):
    with opened(data, executor, batch_size, **arguments) as engine:
        stream = engine.stream(0, 2, False)
        with pytest.raises(OwnError, match="9: spoilt") as info:
            stream.next()
        stream.close()
    notes = info.value.__notes__
    assert (info.value.why, notes[0]) == ("spoilt", note)
    elsewhere = executor in ("processes-2", "cluster")
    expected = ["Traceback in worker process"] if elsewhere else []
    assert [text.split(" process")[0].strip() + " process" for text in notes[1:]] == expected


@every_process_pool
def test_long_exception_arrives_whole(executor):
    """A pipe takes no more than 4 kB at once; a traceback alone may be longer."""
    length = 2_000_000

    def spoil(sample: int) -> int:
        raise OwnError(sample, why="x" * length)

    with opened(Numbers(), executor, transform=spoil) as engine:
        with pytest.raises(OwnError) as info:
            read(engine, 1)
        assert (str(info.value), len(info.value.why)) == ("0: " + "x" * length, length)


# --- close ---


@every_executor
@pytest.mark.parametrize("name", ["OwnError", "KeyboardInterrupt"])
def test_unread_errors_are_forgotten_at_the_end(executor, name, tmp_path):
    tally = Tally(tmp_path / "calls")
    spoilt = Spoilt(name, 5)

    def counted(sample: int) -> int:
        return spoilt(tally(sample))

    with opened(Numbers(), executor, transform=counted) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        wait_until(lambda: tally.calls >= 4)
        stream.close()


@every_process_pool
def test_closing_frees_the_memory_of_a_kept_exception(executor):
    before = Leftovers.now()
    with opened(Numbers(), executor, transform=Spoilt("ValueError", 1)) as engine:
        stream = engine.stream(0, 0, False)
        with pytest.raises(ValueError, match="spoilt") as info:
            stream.next()
    end_idle_workers()
    gc.collect()
    wait_until(lambda: Leftovers.now().beyond(before) == [], seconds=2)
    assert (info.value.args, stream.position) == (("spoilt",), (0, 0))


# --- submit: the plan on its way ---


class SpoiltWhenReceived(Spoilt):
    def __setstate__(self, state: Any) -> None:
        raise fault(state["name"])

    def __getstate__(self) -> Any:
        return vars(self)


@every_process_pool
@every_fault
def test_fault_at_arrival_fails_as_itself(executor, name):
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
@pytest.mark.parametrize("name", ["OwnError", "StopIteration"])
def test_batch_that_fails_on_its_way_back_fails_as_itself(executor, when, name):
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
@pytest.mark.parametrize(
    ("when", "name"), [("sent", "KeyboardInterrupt"), ("received", "SystemExit")]
)
def test_batch_that_wants_to_leave_does_not_hang(executor, when, name):
    """It may end the worker; it is told one way or the other."""

    def spoil(sample: int) -> Any:
        return SpoiltMember(name, when)

    with (
        opened(Numbers(), executor, transform=spoil) as engine,
        pytest.raises(BaseException, match=r"spoilt|process"),
    ):
        read(engine, 1)


@every_process_pool
def test_what_cannot_be_pickled_is_said_with_a_reason(executor):
    with opened(Numbers(), executor, transform=lambda _: threading.Lock()) as engine:
        with pytest.raises(TypeError, match="cannot pickle '_thread") as info:
            read(engine, 1)
        assert "can't be sent from a worker process" in notes_of(info.value)
