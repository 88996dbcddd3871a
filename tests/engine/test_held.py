"""Batches that the consumer keeps stay as they are, for as long as it keeps them."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest

from adapters import WorkerError
from tests.batches import exact
from tests.engine.executors import POOLS, PROCESSES, end_idle_workers, opened, read, wait_until
from tests.engine.workloads import Numbers
from tests.leftovers import Leftovers

pytestmark = pytest.mark.usefixtures("small_blocks")

every_pool = pytest.mark.parametrize("executor", POOLS)
every_process_pool = pytest.mark.parametrize("executor", PROCESSES)


def image(sample: int) -> Any:
    return np.full((16, 16), sample, np.int32), sample


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@every_pool
def test_a_held_batch_is_unchanged_by_all_that_follow(executor):
    with opened(Numbers(400), executor, transform=image) as engine:
        stream = engine.stream(0, 0, False)
        held = [stream.next() for _ in range(3)]
        before = [exact(batch) for batch in held]
        for _ in range(150):
            stream.next()
        stream.close()
        assert [exact(batch) for batch in held] == before


@every_pool
@pytest.mark.parametrize(
    "part",
    [
        lambda batch: batch[1],
        lambda batch: batch[0][1:3],
        lambda batch: batch[0][1:3].T[::2].reshape(-1, 2)[1],
        lambda batch: np.asarray(memoryview(batch[0])),
        lambda batch: batch[0].view(np.uint8),
    ],
    ids=["a member", "a view", "a view of views", "a buffer", "other bytes"],
)
def test_a_piece_of_a_batch_holds_all_that_it_needs(executor, part):
    with opened(Numbers(400), executor, transform=image) as engine:
        stream = engine.stream(0, 0, False)
        held = part(stream.next())
        before = exact(held)
        for _ in range(60):
            stream.next()
        stream.close()
        assert exact(held) == before


@every_pool
def test_held_batches_outlive_their_stream_and_their_engine(executor):
    with opened(Numbers(400), executor, transform=image) as engine:
        held = read(engine, 40)
        before = [exact(batch) for batch in held]
    gc.collect()
    assert [exact(batch) for batch in held] == before
    for batch in held:
        batch[0][...] = 0
    assert {int(batch[0].sum()) for batch in held} == {0}


@every_process_pool
def test_a_held_batch_survives_the_death_of_its_worker(executor):
    def deadly(sample: int) -> Any:
        if sample == 40:
            os._exit(3)
        return image(sample)

    with opened(Numbers(400), executor, transform=deadly, on_error="skip") as engine:
        held = read(engine, 3)
        before = [exact(batch) for batch in held]
        with pytest.raises(WorkerError, match="exited with code 3"):
            read(engine, 3, step=9)
    assert [exact(batch) for batch in held] == before


@every_process_pool
def test_memory_that_nobody_refers_to_is_used_again(executor):
    """Not a new memory file for every batch."""
    with opened(Numbers(2000), executor, queue=3, transform=image) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(50):
            stream.next()
        descriptors_then = descriptors()
        for _ in range(300):
            stream.next()
        assert descriptors() <= descriptors_then + 2
        stream.close()


@every_process_pool
def test_keeping_every_batch_of_an_epoch_does_not_exhaust_descriptors(executor):
    queue = 3
    before = descriptors()
    with opened(Numbers(2400), executor, queue=queue, transform=image) as engine:
        held = []
        stream = engine.stream(0, 0, False)
        most = 0
        for _ in range(600):
            held.append(stream.next())
            most = max(most, descriptors() - before)
        stream.close()
    # Slots that are held or under way, two descriptors each (Python's mmap has one of its own),
    # and the pool's pipes.
    assert most < 2 * ((2 * queue + 8) + (2 * queue + 4)) + 40
    assert [int(batch[0][0, 0, 0]) for batch in held] == list(range(0, 2400, 4))


@every_process_pool
def test_the_last_reference_gives_the_memory_back_after_the_end_too(executor):
    before = Leftovers.now()
    with opened(Numbers(400), executor, transform=image) as engine:
        held = read(engine, 2)[1][0][1:2]
    end_idle_workers()
    assert Leftovers.now().beyond(before) != []
    del held
    gc.collect()
    wait_until(lambda: not Leftovers.now().beyond(before))


def test_arrays_of_no_bytes_hold_no_slot():
    with opened(Numbers(4000), "processes-1", transform=lambda _: np.zeros((0, 3))) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        before = descriptors()
        held = [stream.next() for _ in range(40)]
        assert descriptors() <= before + 20
        assert {batch.shape for batch in held} == {(4, 0, 3)}
        stream.close()
