"""Functions that fill one buffer again are asked by one thread at a time, and no others are."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from adapters.batch.turns import Mixed, Turns
from tests.batches import exact
from tests.engine.crews import CREWS, opened, read

SIZE = 64
SECONDS = 20.0


class Filling:
    """Fills one buffer, or a ring of them, slowly enough for another thread to come between."""

    def __init__(self, buffers: int = 1) -> None:
        self.ring = np.zeros((buffers, 50_000), np.int32)
        self.calls = 0

    def fill(self, number: Any) -> Any:
        self.calls += 1
        buffer = self.ring[self.calls % len(self.ring)]
        for part in np.array_split(buffer, 20):
            part[:] = number
        return buffer

    def __len__(self) -> int:
        return SIZE


class Samples(Filling):
    def __getitem__(self, number: int) -> Any:
        return self.fill(number), number


class ManySamples(Samples):
    def __getitems__(self, numbers: list[int]) -> Any:
        return [(np.full(9, number), number) for number in numbers]


class Transform(Filling):
    def __call__(self, sample: Any) -> Any:
        return self.fill(sample), int(np.max(sample))


class BatchTransform(Filling):
    def __call__(self, batch: Any) -> Any:
        return self.fill(int(batch[0])), batch


def firsts(batches: list[Any]) -> list[Any]:
    """What the buffers hold, where all of one holds one number."""
    return [
        {int(x.min()), int(x.max())} if np.ndim(x) else {int(x)} for batch in batches for x in batch
    ]


@pytest.mark.parametrize("crew", CREWS)
@pytest.mark.parametrize("buffers", [1, 3])
@pytest.mark.parametrize("kind", ["source", "transform"])
def test_samples_in_one_buffer_are_right_with_all_workers(kind, buffers, crew):
    data = Samples(buffers) if kind == "source" else list(range(SIZE))
    transform = None if kind == "source" else Transform(buffers)
    with opened(data, crew, transform=transform) as engine:
        batches = read(engine, 16)
    assert firsts([batch[0] for batch in batches]) == [{n} for n in range(SIZE)]


@pytest.mark.parametrize("crew", CREWS)
@pytest.mark.parametrize("buffers", [1, 3])
def test_a_batch_transform_that_fills_one_buffer_is_right_with_all_workers(buffers, crew):
    data = np.arange(SIZE)
    with opened(data, crew, batch_transform=BatchTransform(buffers)) as engine:
        batches = read(engine, 16)
    assert firsts([batch[:1] for batch in batches]) == [{n} for n in range(0, SIZE, 4)]


@pytest.mark.parametrize("crew", CREWS)
def test_a_batch_transform_that_keeps_what_it_was_given_harms_nothing(crew):
    class Hoarding:
        last: Any = None

        def __call__(self, batch: Any) -> Any:
            if self.last is not None:
                self.last[...] = -1
            self.last = batch
            return batch

    with opened(np.arange(SIZE), crew, batch_transform=Hoarding()) as engine:
        batches = read(engine, 16)
    assert np.concatenate(batches).tolist() == list(range(SIZE))


def test_getitems_of_new_arrays_is_no_buffer():
    with opened(ManySamples(), "threads-2") as engine:
        read(engine, 16)
        assert not engine.plan._turns.one_at_a_time


@pytest.mark.parametrize(
    "make", [lambda sample: np.full(50, sample), lambda sample: (np.zeros(50) + sample, MASK)]
)
def test_new_arrays_beside_a_constant_one_are_computed_at_once(make):
    with opened(list(range(SIZE)), "threads-2", transform=make) as engine:
        batches = read(engine, 16)
        assert not engine.plan._turns.one_at_a_time
    assert len(exact(batches)) == 16


MASK = np.ones(50)
MASK.flags.writeable = False


def under_way() -> Turns:
    """After the first batches, which are computed one after the other."""
    turns = Turns()
    for _ in range(2):
        turns.compute(int)
    return turns


def test_the_first_batches_are_computed_one_after_the_other():
    turns, inside, barrier = Turns(), [], threading.Barrier(2)

    def batch() -> None:
        inside.append(len(turns._inside))
        if len(inside) <= 2:
            time.sleep(0.05)
            inside[-1] += len(inside)
        else:
            barrier.wait(SECONDS)
        if len(inside) == 1:
            raise ValueError("which doesn't keep the others from coming")

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(turns.compute, batch) for _ in range(4)]
    assert sum(each.exception() is not None for each in done) == 1
    assert inside[:2] == [1 + 1, 1 + 2]


def test_threads_meet_where_nothing_is_used_again():
    turns, barrier = under_way(), threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(turns.compute, [lambda: barrier.wait(SECONDS)] * 2))


def test_what_was_computed_beside_another_is_computed_again():
    turns, barrier, calls = under_way(), threading.Barrier(2), []

    def batch() -> int:
        calls.append(1)
        if len(calls) <= 2:
            barrier.wait(SECONDS)
            turns.one_at_a_time = True
            barrier.wait(SECONDS)
        return len(turns._inside)

    with ThreadPoolExecutor(2) as pool:
        inside = list(pool.map(turns.compute, [batch] * 2))
    assert (inside, len(calls)) == ([1, 1], 4)


def test_what_must_not_be_computed_again_is_told_so():
    turns, barrier = under_way(), threading.Barrier(2)

    def batch() -> None:
        barrier.wait(SECONDS)
        turns.one_at_a_time = True
        barrier.wait(SECONDS)

    def compute(_: int) -> bool:
        try:
            turns.compute_once(batch)
        except Mixed:
            return True
        return False

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(compute, range(2))) == [True, True]


def test_a_batch_within_a_batch_waits_for_nobody():
    turns = Turns()
    turns.one_at_a_time = True
    assert turns.compute(lambda: turns.compute(lambda: 5)) == 5


def test_waiting_for_a_turn_is_said_once(caplog):
    turns, inside, go = under_way(), threading.Event(), threading.Event()
    turns.one_at_a_time = True

    def first() -> None:
        inside.set()
        go.wait(SECONDS)

    with ThreadPoolExecutor(3) as pool:
        pool.submit(turns.compute, first)
        assert inside.wait(SECONDS)
        others = [pool.submit(turns.compute, lambda: None) for _ in range(2)]
        while not turns._warned:
            pass
        go.set()
        for other in others:
            other.result(SECONDS)
    assert caplog.text.count("return new arrays") == 1


def test_an_array_that_a_list_holds_several_times_is_no_memory_that_is_filled_again(caplog):
    """Two threads that meet in the same sample see the same in it, as they would by chance."""
    turns, sample = Turns(), np.full(3, 7)
    turns.watch(0, sample)
    turns.watch(4, sample)
    turns._inside[threading.get_ident()] = [True]
    turns.watch(8, sample)
    assert not turns.one_at_a_time
    other = np.full(3, 8)
    for number in (1, 5):
        turns.watch(number, other)
    assert turns.one_at_a_time
