"""Batches that take long, and several workers for them."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.batches import exact
from tests.engine.executors import opened, read
from tests.engine.workloads import Numbers
from tests.plans import epoch_of, plan_of

SEVERAL = ["threads-2", "threads-4", "processes-2"]
several_workers = pytest.mark.parametrize("executor", SEVERAL)
SECONDS, BATCH = 0.008, 8
QUEUE = 1


def heavy(sample: int, rng: np.random.Generator) -> tuple[int, Any, int]:
    """A sample, some noise and who made it."""
    time.sleep(SECONDS)
    return sample, rng.random(3), os.getpid() + threading.get_native_id()


def double(batch: Any) -> Any:
    """Writes into its batch: to do that twice would show."""
    batch[0][...] *= 2
    return batch


def without_makers(batches: list[Any]) -> list[Any]:
    return [exact(batch[:2]) for batch in batches]


@several_workers
@pytest.mark.parametrize("batch_transform", [None, double])
def test_a_batch_is_the_same_to_the_last_bit(executor, batch_transform):
    arguments = {"transform": heavy, "batch_transform": batch_transform, "shuffle": True}
    expected = without_makers(epoch_of(plan_of(Numbers(52), BATCH, **arguments)))
    with opened(Numbers(52), executor, BATCH, queue=QUEUE, **arguments) as engine:
        assert without_makers(read(engine, 7)) == expected


def changing(sample: int) -> Any:
    """Batches 0 to 2 are alike; batch 3 is longer, 4 mixed, 5 objects, 6 as the first."""
    time.sleep(SECONDS)
    number, row = divmod(sample, BATCH)
    if number == 3:
        return np.full(5, sample, np.float64)
    if number == 4:
        return np.full(2, sample, np.float32 if row == 6 else np.float64)
    if number == 5:
        return f"sample {sample}"
    return np.full(2, sample, np.float64)


@several_workers
def test_batches_of_several_layouts_come_as_they_are(executor):
    arguments = {"transform": changing}
    expected = [exact(batch) for batch in epoch_of(plan_of(Numbers(64), BATCH, **arguments))]
    with opened(Numbers(64), executor, BATCH, queue=QUEUE, **arguments) as engine:
        assert [exact(batch) for batch in read(engine, 8)] == expected


@several_workers
def test_an_exception_names_its_sample_and_spares_the_next_batches(executor):
    def spoilt(sample: int) -> int:
        time.sleep(SECONDS)
        if sample == 29:
            raise LookupError("spoilt")
        return sample

    with opened(Numbers(80), executor, BATCH, queue=QUEUE, transform=spoilt) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(3):
            stream.next()
        with pytest.raises(LookupError, match="spoilt") as info:
            stream.next()
        stream.close()
        assert info.value.__notes__[0] == "in sample 29, batch 3 of epoch 0"
        assert np.concatenate(read(engine, 3, step=4)).tolist() == list(range(32, 56))


@several_workers
def test_an_exception_may_be_long(executor):
    def spoilt(sample: int) -> int:
        time.sleep(SECONDS)
        if sample == 29:
            raise LookupError("spoilt" * 10_000)
        return sample

    with opened(Numbers(80), executor, BATCH, queue=QUEUE, transform=spoilt) as engine:
        with pytest.raises(LookupError) as info:
            read(engine, 4)
        assert info.value.args == ("spoilt" * 10_000,)
        assert info.value.__notes__[0] == "in sample 29, batch 3 of epoch 0"


@several_workers
def test_a_batch_may_become_objects_in_the_end(executor):
    def words(batch: Any) -> Any:
        return [f"word {n}" * 500 for n in batch[0].tolist()], batch[0].astype(object), batch[1]

    arguments = {"transform": heavy, "batch_transform": words}
    expected = [exact(batch) for batch in epoch_of(plan_of(Numbers(48), BATCH, **arguments))]
    with opened(Numbers(48), executor, BATCH, queue=QUEUE, **arguments) as engine:
        assert [exact(batch) for batch in read(engine, 6)] == expected


@several_workers
def test_skipped_samples_are_counted(executor, caplog):
    def spoilt(sample: int) -> int:
        time.sleep(SECONDS)
        if sample % BATCH in (0, 7):
            raise LookupError("spoilt")
        return sample

    arguments = {"transform": spoilt, "on_error": "skip"}
    expected = [exact(batch) for batch in epoch_of(plan_of(Numbers(40), BATCH, **arguments))]
    with opened(Numbers(40), executor, BATCH, queue=QUEUE, **arguments) as engine:
        assert [exact(batch) for batch in read(engine, 5)] == expected
    assert "epoch 0: on_error replaced 10 samples" in caplog.messages


@several_workers
def test_batches_that_nobody_wants_are_dropped(executor):
    with opened(Numbers(400), executor, BATCH, queue=10, transform=heavy) as engine:
        read(engine, 3)
        assert np.concatenate([b[0] for b in read(engine, 3, epoch=1)]).tolist() == [*range(24)]


def test_each_of_many_workers_has_a_batch_in_progress():
    """At most ``max_queue_size`` are ready; more workers than that are busy all the same."""

    def waits(sample: int) -> Any:
        started = time.monotonic()
        time.sleep(0.1)
        return np.array([started, time.monotonic()])

    with opened(Numbers(64), "threads-8", 1, queue=2, transform=waits) as engine:
        read(engine, 16)
        spans = np.concatenate(read(engine, 40, step=16))
    at_once = max(int(((spans[:, 0] <= t) & (spans[:, 1] > t)).sum()) for t in spans[:, 0])
    assert at_once >= 6
