"""Exceptions: from every place, through every executor, as what they were.

While a batch is computed, and when it is closed; ``test_transit.py`` has the ways there and back.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from adapters.sources import SequenceSource
from tests.engine.executors import PROCESSES, end_idle_workers, opened, read, wait_until
from tests.engine.faulty import FAULTS, OwnError, Spoilt, fault
from tests.engine.workloads import Numbers, Tally
from tests.leftovers import Leftovers
from tests.plans import notes_of

pytestmark = pytest.mark.timeout(30)
every_executor = pytest.mark.parametrize(
    "executor", ["inline", "threads-1", "threads-2", "processes-1", "processes-2", "auto"]
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
def test_an_exception_in_a_transform_comes_as_itself_after_all_batches_before(executor, name):
    with opened(Numbers(), executor, transform=Spoilt(name, 9)) as engine:
        stream = engine.stream(0, 0, False)
        assert [stream.next().tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(arrived(name), match=r"spoilt|StopIteration") as info:
            stream.next()
        stream.close()
    assert type(info.value) is arrived(name)


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
    expected = ["Traceback in worker process"] if executor.startswith("processes") else []
    assert [text.split(" process")[0].strip() + " process" for text in notes[1:]] == expected


@every_executor
def test_the_sample_that_raised_stop_iteration_is_named(executor):
    with opened(Numbers(), executor, transform=Spoilt("StopIteration", 9)) as engine:
        with pytest.raises(RuntimeError) as info:
            read(engine, 3)
        assert notes_of(info.value).startswith("in sample 9, batch 2 of epoch 0")


@every_executor
@pytest.mark.parametrize("length", [5_000, 2_000_000])
def test_a_long_exception_arrives_whole(executor, length):
    """A pipe takes no more than 4 kB at once; a traceback alone may be longer."""

    def spoil(sample: int) -> int:
        raise OwnError(sample, why="x" * length)

    with opened(Numbers(), executor, transform=spoil) as engine:
        with pytest.raises(OwnError) as info:
            read(engine, 1)
        assert (str(info.value), len(info.value.why)) == ("0: " + "x" * length, length)


@every_executor
def test_an_error_is_there_again_when_the_same_batch_is_asked_for_again(executor):
    with opened(Numbers(), executor, transform=Spoilt("ValueError", 9)) as engine:
        stream = engine.stream(0, 2, False)
        for _ in range(3):
            with pytest.raises(ValueError, match="spoilt"):
                stream.next()
        stream.close()


@every_executor
def test_batches_behind_an_error_can_be_had(executor):
    with opened(Numbers(), executor, transform=Spoilt("OwnError", 9)) as engine:
        with pytest.raises(OwnError):
            read(engine, 3)
        assert [batch[0] for batch in read(engine, 4, step=3)] == [12, 16, 20, 24]


@every_executor
def test_every_sample_may_be_spoilt(executor):
    def spoil(sample: Any) -> Any:
        raise OwnError(sample, why="all")

    with opened(Numbers(), executor, transform=spoil) as engine:
        for step in range(7):
            with pytest.raises(OwnError, match=f"{4 * step}: all"):
                read(engine, 1, step=step)


@every_executor
def test_an_error_in_the_next_epoch_waits_for_it(executor):
    def spoil(sample: Any, rng: Any) -> Any:
        if rng.integers(2**62) == FIRST_OF_EPOCH_1:
            raise OwnError(sample, why="second epoch")
        return sample

    from adapters.generators import generator

    FIRST_OF_EPOCH_1 = generator(0, 1, 0, 0).integers(2**62)
    with opened(Numbers(8), executor, transform=spoil) as engine:
        stream = engine.stream(0, 0, False)
        assert np.concatenate([stream.next(), stream.next()]).tolist() == list(range(8))
        with pytest.raises(OwnError, match="second epoch"):
            stream.next()
        stream.close()


# --- close ---


@every_executor
@pytest.mark.parametrize("name", ["OwnError", "KeyboardInterrupt"])
def test_errors_that_nobody_read_are_forgotten_when_it_is_closed(executor, name, tmp_path):
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
def test_closing_frees_the_memory_though_somebody_keeps_the_exception_and_the_stream(executor):
    before = Leftovers.now()
    with opened(Numbers(), executor, transform=Spoilt("ValueError", 1)) as engine:
        stream = engine.stream(0, 0, False)
        with pytest.raises(ValueError, match="spoilt") as info:
            stream.next()
    end_idle_workers()
    gc.collect()
    wait_until(lambda: Leftovers.now().beyond(before) == [], seconds=2)
    assert (info.value.args, stream.position) == (("spoilt",), (0, 0))
