"""How far ahead of the consumer the workers are: up to the queue's length, and no further."""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import closing
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from adapters.engine import Engine, Settings, memory
from adapters.engine.processes import Processes
from adapters.sources import SequenceSource
from tests.engine.executors import opened, streamed, wait_until
from tests.engine.scripts import ended
from tests.engine.workloads import Numbers, Slow, Tally
from tests.keras.samples import slowly
from tests.plans import plan_of

BATCH = 4


def settled(tally: Tally, least: int) -> int:
    """The number of calls once it has been reached and stands still."""
    wait_until(lambda: tally.calls >= least)
    calls, since = tally.calls, time.monotonic()
    while time.monotonic() - since < 0.1:
        if tally.calls != calls:
            calls, since = tally.calls, time.monotonic()
    return calls


def test_inline_computes_nothing_ahead(tmp_path):
    tally = Tally(tmp_path / "calls")
    with streamed(Numbers(400), "inline", BATCH, transform=tally) as stream:
        calls = [(stream.next().tolist(), tally.calls)[1] for _ in range(3)]
    assert calls == [BATCH, 2 * BATCH, 3 * BATCH]


@pytest.mark.parametrize("queue", [1, 2])
def test_measuring_keeps_to_the_queue(queue, tmp_path):
    tally = Tally(tmp_path / "calls")
    options = {"queue": queue, "transform": tally, "batch_transform": slowly}
    with streamed(Numbers(400), "auto", BATCH, **options) as stream:
        stream.next()
        calls = tally.calls
    assert calls <= (1 + queue) * BATCH


# Two batches may be ready, and one in progress for each worker.
@pytest.mark.parametrize(("executor", "ahead"), [("threads-4", 6), ("processes-2", 4)])
def test_next_epoch_is_begun_before_this_one_ends(executor, ahead, tmp_path):
    tally = Tally(tmp_path / "calls")
    with streamed(Numbers(4 * BATCH), executor, BATCH, queue=2, transform=tally) as stream:
        for _ in range(3):
            stream.next()
        most = 3 + ahead
        assert settled(tally, most * BATCH) == most * BATCH
        assert stream.position == (0, 3)


class Epochs:
    """A sequence whose batches depend on how often its hooks were called."""

    epoch = begun = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> Any:
        return np.array([self.begun, self.epoch, number])

    def on_epoch_begin(self) -> None:
        self.begun += 1

    def on_epoch_end(self) -> None:
        self.epoch += 1


def test_source_with_own_epochs_is_sent_anew_to_a_cluster(dask_client):
    source = SequenceSource(Epochs(), changes_between_epochs=True)
    with streamed(source, "cluster", 1, queue=5) as stream:
        batches = [stream.next().tolist() for _ in range(9)]
    assert batches == [[epoch + 1, epoch, i] for epoch in range(3) for i in range(3)]


@pytest.mark.parametrize(
    ("step", "error"), [("_packed", KeyboardInterrupt), ("_send_plan", OSError)]
)
def test_changed_source_that_could_not_be_sent_is_sent_later(step, error, monkeypatch):
    source = SequenceSource(Epochs(), changes_between_epochs=True)
    with opened(source, "processes-2", 1) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(3):
            stream.next()
        with monkeypatch.context() as broken:
            broken.setattr(Processes, step, Mock(side_effect=error))
            with pytest.raises(error):
                stream.next()
        stream.close()
        stream = engine.stream(1, 0, False)
        assert [stream.next().tolist() for _ in range(3)] == [[2, 1, i] for i in range(3)]
        stream.close()


class Mixed:
    """Samples of sizes from nothing to 40 kB, or to 30 MiB, each told by its number."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes

    def __len__(self) -> int:
        return 3000

    def __getitem__(self, number: int) -> Any:
        luck = (number * 2_654_435_761 % 2**32 + 1) / 2**32
        size = int(400 * luck) if number % 3 else min(int(1024 / luck), self.most_bytes)
        return np.full(size // 8, number)


@pytest.mark.parametrize(
    ("window", "most_bytes"),
    [(2000, 40_000), pytest.param(500, 30 * 2**20, marks=pytest.mark.full)],
)
def test_deep_window_mixes_no_batches(window, most_bytes):
    mixed = Mixed(most_bytes)
    with streamed(mixed, "processes-2", 1, queue=window) as stream:
        for number in range(3000):
            np.testing.assert_array_equal(stream.next()[0], mixed[number])


SCARCE = """
import logging, resource, sys, time
import numpy as np
logging.basicConfig(stream=sys.stdout, format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from tests.engine.executors import streamed
from tests.engine.workloads import Numbers
depth, batches = map(int, sys.argv[1:])
with streamed(Numbers(4 * batches), "processes-2", 4, queue=depth) as stream:
    held = [stream.next()]
    time.sleep(0.5)  # Whatever was asked for is ready by then.
    held += [stream.next() for _ in range(2 * batches - 1)]
    stream.close()
    assert np.concatenate(held).tolist() == 2 * list(range(4 * batches))
print("right")
"""


@pytest.mark.parametrize(("depth", "batches", "times"), [(2, 50, 0), (20000, 300, 1)])
def test_window_is_as_deep_as_descriptors_allow(depth, batches, times):
    finished = ended("-c", SCARCE, depth, batches)
    *said, last = finished.stdout.splitlines()
    assert (last, finished.returncode) == ("right", 0), finished.stderr
    assert len(said) == times
    assert all(f", not {depth}: " in each for each in said)
    assert all("raise the limit by `ulimit -n`" in each for each in said)


# --- no descriptor left ---


def refused(*_: Any) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def told_while_reading(transform: Any, queue: int) -> list[int | None]:
    """The errors that a reader gets who asks on until eight batches are there, in their order."""
    plan = plan_of(Numbers(400), transform=transform)
    batches, told = [], []
    with closing(Engine(plan, Settings(2, True, queue, {}, timeout_seconds=20.0))) as engine:
        stream = engine.stream(0, 0, False)
        while len(batches) < 8:
            try:
                batches.append(stream.next())
            except OSError as error:
                told.append(error.errno)
    assert np.concatenate(batches).tolist() == list(range(32))
    return told


@pytest.mark.parametrize(
    ("transform", "queue"), [(None, 4), (Slow(0.02), 1)], ids=["light batches", "slow ones"]
)
def test_batch_without_a_slot_is_read_later(transform, queue, monkeypatch):
    """Who reports a task done, or a worker ready, starts the next one while the reader waits."""
    make, reader = os.memfd_create, threading.current_thread()
    second = iter([False, True])  # Of those that another thread than the reader's asks for.

    def sometimes(*arguments: Any) -> Any:
        elsewhere = threading.current_thread() is not reader
        return refused() if elsewhere and next(second, False) else make(*arguments)

    monkeypatch.setattr(os, "memfd_create", sometimes)
    assert told_while_reading(transform, queue) == [errno.EMFILE]


@pytest.mark.parametrize(("transform", "number"), [(None, 0), (Slow(0.02), 1)])
def test_batch_whose_slot_is_not_mapped_is_read_later(transform, number, monkeypatch):
    view, seen = memory.Slot.view, []

    def sometimes(slot: memory.Slot) -> Any:
        seen.append(slot)
        return refused() if len(seen) == number + 1 else view(slot)

    monkeypatch.setattr(memory.Slot, "view", sometimes)
    assert told_while_reading(transform, 2) == [errno.EMFILE]
