"""Data sets and batchifies that use their memory again: every batch stays as it was."""

from __future__ import annotations

import time
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet.gluon.data import Dataset

from tests.fuzzing import examples
from tests.gluon.executors import EXECUTORS, opened
from tests.memory import FRAMEWORKS, WAYS, Giver, Kind

SIZE = 48
# Long enough for another thread to come between.
WIDTH = 20_000


class Giving(Dataset):  # type: ignore[misc]
    """Sample ``number`` holds that number everywhere, in memory as ``way`` says."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.calls = 0
        self.ring = np.zeros((3, WIDTH), np.float32)
        self.nd = mx.nd.zeros((3, WIDTH))

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, number: int) -> Any:
        self.calls += 1
        place = self.calls % 3 if "ring" in self.way else 0
        if self.way == "new":
            return np.full(WIDTH, number, np.float32)
        if "NDArray" not in self.way:
            for part in np.array_split(self.ring[place], 10):
                part[:] = number
            return self.ring[place]
        self.nd[place] = number
        if "one" in self.way:
            self.nd[:] = number
            return self.nd
        return self.nd[place]


class Batchify:
    """Fills one buffer with a batch."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.buffer = np.zeros((4, WIDTH), np.float32)
        self.nd = mx.nd.zeros((4, WIDTH))

    def __call__(self, samples: list[Any]) -> Any:
        for row, sample in enumerate(samples):
            self.buffer[row] = sample.asnumpy() if hasattr(sample, "asnumpy") else sample
        if self.way == "array":
            return self.buffer[: len(samples)]
        self.nd[:] = mx.nd.array(self.buffer)
        return [self.nd] if self.way == "NDArray" else [self.nd[: len(samples)]]


def held(batch: Any) -> list[set[float]]:
    """What each sample of a batch holds."""
    array = batch[0] if isinstance(batch, list) else batch
    array = array.asnumpy() if hasattr(array, "asnumpy") else array
    return [set(np.unique(row)) for row in array]


EXPECTED = [{float(number)} for number in range(SIZE)]


@pytest.mark.parametrize("executor", EXECUTORS[:2])
@pytest.mark.parametrize(
    "way", ["new", "buffer", "ring", "one NDArray", "an NDArray's row", "a ring of NDArrays"]
)
def test_samples_in_memory_that_is_used_again_are_right(way, executor):
    with opened(Giving(way), executor, thread_safe=False) as loader:
        batches = list(loader)
    assert [each for batch in batches for each in held(batch)] == EXPECTED


@pytest.mark.parametrize("executor", EXECUTORS[:2])
@pytest.mark.parametrize(
    "way", ["array", "NDArray", "part of an NDArray", "a NumPy array's NDArray"]
)
def test_batches_in_memory_that_is_used_again_stay_as_they_were(way, executor):
    with opened(Giving("new"), executor, batchify_fn=Batchify(way), thread_safe=False) as loader:
        batches = list(loader)
    assert [each for batch in batches for each in held(batch)] == EXPECTED


def test_processes_deliver_them_as_they_were():
    with opened(Giving("buffer"), "processes-2", batchify_fn=Batchify("array")) as loader:
        batches = list(loader)
    assert [each for batch in batches for each in held(batch)] == EXPECTED


def test_a_new_array_of_a_batchify_is_not_copied():
    seen: list[int] = []

    def batchify(samples: list[Any]) -> Any:
        batch = np.stack(samples)
        seen.append(batch.__array_interface__["data"][0])
        return batch

    with opened(Giving("new"), "inline", batchify_fn=batchify) as loader:
        batches = list(loader)
    assert [batch.__array_interface__["data"][0] for batch in batches] == seen


class Masked:
    """A batchify whose batches have what can't lie in a slot, in memory that it uses again."""

    def __init__(self) -> None:
        self.array = np.ma.zeros((4,), np.float32)
        self.objects = np.empty(4, object)

    def __call__(self, samples: list[Any]) -> Any:
        self.array[:] = self.objects[:] = [float(sample) for sample in samples]
        return [self.array, self.objects]


def test_processes_that_make_several_batches_in_one_go_deliver_each_as_it_was():
    numbers = mx.gluon.data.SimpleDataset(list(range(4000)))
    with opened(numbers, "processes-1", batchify_fn=Masked(), prefetch=40) as loader:
        for first, (array, objects) in zip(range(0, 4000, 4), loader):
            if first % 100 == 0:
                time.sleep(0.01)  # As many as may be are ready, or under way.
            np.testing.assert_array_equal(array, range(first, first + 4))
            np.testing.assert_array_equal(objects, range(first, first + 4))


# --- memory that is used again at random ---

ROWS = 4
BATCHES = 6
OF_NUMPY = [way for way in WAYS if way not in FRAMEWORKS]
# MXNet knows no 64-bit integers by default.
kinds = st.builds(
    Kind,
    st.sampled_from(OF_NUMPY),
    st.sampled_from(["float32", "int32", "uint8"]),
    st.lists(st.integers(1, 40), min_size=1, max_size=2).map(tuple),
)
samples = st.one_of(kinds.map(lambda kind: (kind,)), st.tuples(kinds, kinds))


class Samples(Dataset):  # type: ignore[misc]
    """Arrays, one or more; with whose memory, the kinds say."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.givers = [Giver(kind) for kind in kinds]

    def __len__(self) -> int:
        return ROWS * BATCHES

    def __getitem__(self, number: int) -> Any:
        found = tuple(giver.give(number) for giver in self.givers)
        return found if len(found) > 1 else found[0]


class BatchifyAtRandom:
    """Stacks, and gives memory as the ways say."""

    def __init__(self, ways: list[str]) -> None:
        self.ways = ways
        self.givers: list[Giver] = []

    def __call__(self, batch: list[Any]) -> Any:
        columns = zip(*batch) if isinstance(batch[0], tuple) else [batch]
        return [self.given(place, np.stack(column)) for place, column in enumerate(columns)]

    def given(self, place: int, array: Any) -> Any:
        if place == len(self.givers):
            kind = Kind(self.ways[place % len(self.ways)], array.dtype.name, array.shape)
            self.givers.append(Giver(kind))
        giver = self.givers[place]
        giver.calls += 1
        return WAYS[giver.kind.way](giver, array)


def check(kinds: tuple[Kind, ...], executor: str, **options: Any) -> None:
    """Two passes, all of whose batches are kept."""
    with opened(Samples(kinds), executor, **options) as loader:
        passes = [list(loader), list(loader)]
    for batches in passes:
        assert len(batches) == BATCHES
        for number, batch in enumerate(batches):
            columns = batch if isinstance(batch, list) else [batch]
            for kind, column in zip(kinds, columns, strict=True):
                expected = [kind.content(number * ROWS + row) for row in range(ROWS)]
                found = column.asnumpy() if hasattr(column, "asnumpy") else column
                np.testing.assert_array_equal(found, np.stack(expected), f"{number} {kind}")


@settings(max_examples=examples(80))
@given(samples, st.sampled_from(["inline", "processes-2"]))
def test_samples(kinds, executor):
    check(kinds, executor)


@settings(max_examples=examples(80))
@given(
    samples,
    st.sampled_from(["inline", "processes-2"]),
    st.lists(st.sampled_from(OF_NUMPY), min_size=1),
)
def test_what_a_batchify_gives(kinds, executor, ways):
    check(kinds, executor, batchify_fn=BatchifyAtRandom(ways))
