"""How far ahead of the consumer the workers are: up to the queue's length, and no further."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ClosedError
from adapters.sources import SequenceSource
from tests.engine.executors import POOLS, WITH_CLUSTER, opened, read, wait_until
from tests.engine.workloads import Gate, Numbers, Tally

BATCH = 4


def settled(tally: Tally, least: int) -> int:
    """The number of calls once it has been reached and stands still."""
    wait_until(lambda: tally.calls >= least)
    calls, since = tally.calls, time.monotonic()
    while time.monotonic() - since < 0.1:
        if tally.calls != calls:
            calls, since = tally.calls, time.monotonic()
    return calls


def window(queue: int, executor: str) -> int:
    """Batches that may be ready or in progress."""
    workers = int(executor.split("-")[1])
    return queue if 2 * workers <= queue else queue + workers


@pytest.mark.parametrize("executor", POOLS)
@pytest.mark.parametrize("queue", [1, 3])
def test_as_many_batches_are_ready_as_the_queue_is_long_and_one_in_progress_for_each_worker(
    executor, queue, tmp_path
):
    tally = Tally(tmp_path / "calls")
    with opened(Numbers(400), executor, BATCH, queue=queue, transform=tally) as engine:
        stream = engine.stream(0, 0, False)
        for taken in (1, 2, 7):
            while stream.position[1] < taken:
                stream.next()
            most = taken + window(queue, executor)
            assert settled(tally, most * BATCH) == most * BATCH
        stream.close()


@pytest.mark.parametrize("queue", [1, 4])
def test_inline_computes_nothing_ahead(queue, tmp_path):
    tally = Tally(tmp_path / "calls")
    with opened(Numbers(400), "inline", BATCH, queue=queue, transform=tally) as engine:
        stream = engine.stream(0, 0, False)
        calls = [(stream.next().tolist(), tally.calls)[1] for _ in range(3)]
    assert calls == [BATCH, 2 * BATCH, 3 * BATCH]


class Spin:
    """A transform that holds the GIL for 2 ms of its thread's own time."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def __call__(self, sample: Any) -> Any:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        return self.tally(sample)


@pytest.mark.parametrize("queue", [1, 2])
def test_measuring_computes_no_more_batches_ahead_than_that(queue, tmp_path):
    tally = Tally(tmp_path / "calls")
    with opened(Numbers(400), "auto", BATCH, queue=queue, transform=Spin(tally)) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        calls = tally.calls
        stream.close()
    assert calls <= (1 + queue) * BATCH


@pytest.mark.parametrize("executor", POOLS)
def test_the_next_epoch_is_begun_before_this_one_ends(executor, tmp_path):
    tally = Tally(tmp_path / "calls")
    with opened(Numbers(4 * BATCH), executor, BATCH, queue=2, transform=tally) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(3):
            stream.next()
        most = 3 + window(2, executor)
        assert settled(tally, most * BATCH) == most * BATCH
        assert stream.position == (0, 3)
        stream.close()


@pytest.mark.parametrize("executor", POOLS)
def test_a_stream_that_was_parked_at_an_epochs_end_goes_on(executor, tmp_path):
    tally = Tally(tmp_path / "calls")
    with opened(Numbers(4 * BATCH), executor, BATCH, queue=2, transform=tally) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(4):
            stream.next()
        engine.park(stream)
        again = engine.stream(1, 0, False)
        assert again is stream
        assert again.next().tolist() == [0, 1, 2, 3]
        most = 5 + window(2, executor)
        assert settled(tally, most * BATCH) == most * BATCH
        again.close()


@pytest.mark.parametrize("executor", POOLS)
@pytest.mark.parametrize("where", [(0, 0), (1, 1), (2, 0)])
def test_a_parked_stream_gives_way_to_one_at_another_place(executor, where):
    with opened(Numbers(4 * BATCH), executor, BATCH, transform=lambda sample: sample) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(4):
            stream.next()
        engine.park(stream)
        assert read(engine, 1, *where)[0][0] == where[1] * BATCH
        assert stream.closed


class Epochs:
    """A sequence whose batches depend on how often its hooks were called."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.epoch = 0
        self.begun = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> Any:
        return self.tally(np.array([self.begun, self.epoch, number]))

    def on_epoch_begin(self) -> None:
        self.begun += 1

    def on_epoch_end(self) -> None:
        self.epoch += 1


@pytest.mark.parametrize("executor", WITH_CLUSTER)
def test_a_source_with_epochs_of_its_own_is_never_read_beyond_one(executor, tmp_path):
    tally = Tally(tmp_path / "calls")
    source = SequenceSource(Epochs(tally), changes_between_epochs=True)
    with opened(source, executor, 1, queue=5) as engine:
        stream = engine.stream(0, 0, False)
        batches = []
        for _ in range(3):
            batches += [stream.next().tolist() for _ in range(3)]
            settled(tally, 0)
        stream.close()
    assert batches == [[epoch + 1, epoch, i] for epoch in range(3) for i in range(3)]


@pytest.mark.parametrize("executor", WITH_CLUSTER)
def test_a_replayed_epoch_does_not_call_the_hooks_again(executor, tmp_path):
    source = SequenceSource(Epochs(Tally(tmp_path / "calls")), changes_between_epochs=True)
    with opened(source, executor, 1) as engine:
        first = [batch.tolist() for batch in read(engine, 2)]
        assert [batch.tolist() for batch in read(engine, 2)] == first == [[1, 0, 0], [1, 0, 1]]


@pytest.mark.parametrize("executor", WITH_CLUSTER)
def test_batches_that_were_looked_at_are_still_the_next_ones(executor):
    with opened(Numbers(), executor, BATCH) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        peeked = [batch.tolist() for batch in stream.peek(2)]
        assert peeked == [[4, 5, 6, 7], [8, 9, 10, 11]]
        assert [stream.next().tolist() for _ in range(3)] == [*peeked, [12, 13, 14, 15]]
        stream.close()


# --- closing ---


@pytest.mark.parametrize("executor", WITH_CLUSTER)
@pytest.mark.parametrize("close", ["stream", "engine"])
def test_a_closed_stream_says_so(executor, close):
    with opened(Numbers(), executor) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        (stream if close == "stream" else engine).close()
        with pytest.raises(ClosedError, match="closed"):
            stream.next()


@pytest.mark.parametrize("executor", ["inline", "threads-2", "processes-2"])
def test_after_closing_a_look_ahead_says_so_too(executor, tmp_path):
    tally = Tally(tmp_path / "calls")
    with opened(Numbers(), executor, transform=tally) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        if executor != "inline":
            settled(tally, 5 * BATCH)
        engine.close()
        with pytest.raises(ClosedError):
            stream.peek(1)


@pytest.mark.parametrize("executor", WITH_CLUSTER)
def test_a_closed_engine_gives_no_stream(executor):
    with opened(Numbers(), executor) as engine:
        read(engine, 2)
        engine.close()
        engine.close()
        with pytest.raises(ClosedError, match="make a new one"):
            engine.stream(0, 0, False)


@pytest.mark.parametrize("executor", POOLS)
@pytest.mark.parametrize("close", ["stream", "engine"])
def test_who_waits_for_a_batch_is_told_that_it_was_closed(executor, close, tmp_path: Path):
    gate = Gate(tmp_path / "gate", start=4)
    told: list[BaseException] = []
    with opened(Numbers(), executor, transform=gate) as engine:
        stream = engine.stream(0, 0, False)

        def consume() -> None:
            try:
                stream.next()
                stream.next()
            except BaseException as error:
                told.append(error)

        consumer = threading.Thread(target=consume)
        consumer.start()
        wait_until(lambda: stream.position == (0, 1) and gate.arrived.calls)
        closer = threading.Thread(target=(stream if close == "stream" else engine).close)
        closer.start()
        consumer.join(10)
        assert [type(error) for error in told] == [ClosedError]
        gate.open()
        closer.join(10)
        assert not closer.is_alive()


@pytest.mark.parametrize("executor", POOLS)
def test_what_was_read_ahead_is_dropped_with_its_stream(executor, tmp_path: Path):
    """A new stream doesn't wait for the queue of the old one."""
    gate = Gate(tmp_path / "gate", start=20)
    with opened(Numbers(400), executor, queue=20, transform=gate) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        wait_until(lambda: gate.arrived.calls)
        stream.close()
        gate.open()
        assert [batch.tolist() for batch in read(engine, 2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        asked = gate.arrived.calls
    assert asked < 20 * BATCH


@pytest.mark.parametrize("executor", POOLS)
def test_released_workers_start_again_when_they_are_needed(executor):
    with opened(Numbers(), executor) as engine:
        for _ in range(2):
            engine.retain()
            assert np.concatenate(read(engine, 7)).tolist() == list(range(26))
            engine.release()
