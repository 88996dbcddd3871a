"""Arrays as a source: rows gathered a batch at a time."""

from __future__ import annotations

import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import concatenate
from adapters.sources import ArraySource, as_source
from tests.batches import exact
from tests.plans import batch_of, epoch_of, plan_of


class Pair(NamedTuple):
    image: Any
    label: Any


class Frame:
    """A column as pandas has it: no array, but as good as one."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def to_numpy(self) -> np.ndarray:
        return np.array(self.values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.values, dtype)


def gathered(data: Any, numbers: list[int]) -> Any:
    return ArraySource(data).gather(np.array(numbers), np.empty)


ROWS = np.arange(24).reshape(8, 3)


@pytest.mark.parametrize(
    ("data", "batch"),
    [
        (np.arange(8), np.array([3, 0])),
        (ROWS[:, ::2], ROWS[[3, 0]][:, ::2]),
        (ROWS[::-1], ROWS[[4, 7]]),
        (np.asfortranarray(ROWS), ROWS[[3, 0]]),
        (ROWS.astype(">f4"), ROWS[[3, 0]].astype(">f4")),
        (np.zeros((8, 0)), np.zeros((2, 0))),
        (np.broadcast_to(ROWS[0], (8, 3)), ROWS[[0, 0]]),
        ((ROWS, np.arange(8)), (ROWS[[3, 0]], np.array([3, 0]))),
        (Pair(ROWS, np.arange(8)), Pair(ROWS[[3, 0]], np.array([3, 0]))),
        ({"x": (ROWS, None)}, {"x": (ROWS[[3, 0]], None)}),
        (([1, 2, 3, 4], [[1], [2], [3], [4]]), (np.array([4, 1]), np.array([[4], [1]]))),
        (Frame([5, 6, 7, 8]), np.array([8, 5])),
        (np.array([(i, i) for i in range(8)], "i4,f8"), np.array([(3, 3), (0, 0)], "i4,f8")),
    ],
)
def test_batch_is_rows_of_every_array(data, batch):
    found = gathered(data, [3, 0])
    assert type(found) is type(batch)
    assert exact(found) == exact(batch)


@given(st.lists(st.integers(0, 19), min_size=1, max_size=12), st.booleans())
def test_any_numbers_are_gathered(numbers, as_slice):
    if as_slice:
        numbers = list(range(min(numbers), max(numbers) + 1, len(numbers)))
    data = np.arange(60).reshape(20, 3)
    assert gathered(data, numbers).tolist() == data[numbers].tolist()


@pytest.mark.parametrize("dtype", ["u1", "f2", "?", "c16", "g", ">i4", "M8[s]", "U3", "O"])
def test_any_dtype_is_gathered(dtype):
    array, numbers = np.arange(60).astype(dtype).reshape(30, 2), np.array([7, 29, 0, 7])
    for source in (ArraySource(array), concatenate([array[:9], array[9:]])):
        rows = source.gather(numbers, np.empty)
        assert rows.dtype == array.dtype
        np.testing.assert_array_equal(rows, array[numbers])


@pytest.mark.parametrize("numbers", [[2, 3, 4], [7, 0]], ids=["a stretch", "scattered"])
def test_batch_and_sample_are_copies(numbers):
    data = np.zeros(8)
    gathered(data, numbers)[:] = 1
    ArraySource((data[:, None], data)).sample(3)[0][:] = 1
    assert data.tolist() == [0] * 8


@pytest.mark.parametrize(
    "layout",
    [
        np.ascontiguousarray,
        lambda rows: rows.astype(">f8"),
        np.asfortranarray,
        lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
        lambda rows: rows[::-1],
    ],
    ids=["C", "big endian", "Fortran", "every other column", "reversed"],
)
def test_gathering_copies_rows_and_not_the_array(layout):
    data = layout(np.ones((20_000, 16)))
    source, numbers = ArraySource(data), np.random.default_rng(0).permutation(20_000)[:32]
    tracemalloc.start()
    try:
        source.gather(numbers, np.empty)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < data.nbytes / 20


def test_rows_are_written_into_given_memory():
    memory = np.zeros((2, 3), ROWS.dtype)
    batch = ArraySource(ROWS).gather(np.array([5, 1]), lambda shape, dtype: memory)
    assert batch is memory
    assert memory.tolist() == ROWS[[5, 1]].tolist()


def test_gathering_and_collating_are_the_same():
    data = {"x": np.random.default_rng(0).random((30, 2, 3)), "y": np.arange(30, dtype=np.uint8)}
    plain = plan_of(data, 7, shuffle=True)
    collated = plan_of(data, 7, shuffle=True, transform=lambda sample: sample)
    assert [exact(batch) for batch in epoch_of(plain)] == [exact(b) for b in epoch_of(collated)]


def test_pytorch_tensors_are_not_copied():
    torch = pytest.importorskip("torch", reason="PyTorch is one of the optional frameworks")
    tensor = torch.zeros(4, 2)
    source = as_source((tensor, torch.arange(4)))
    tensor[1] = 5
    assert exact(source.gather(np.array([1]), np.empty)) == exact(
        (np.array([[5, 5]], np.float32), np.array([1]))
    )


def test_jax_arrays():
    jnp = pytest.importorskip("jax.numpy", reason="JAX is one of the optional frameworks")
    batch = batch_of(plan_of(jnp.arange(6, dtype=jnp.float32), 2), 0, 1)
    assert exact(batch) == exact(np.array([2, 3], np.float32))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.zeros(3), np.zeros(4)), r"equal lengths, got source\[0\]: 3, source\[1\]: 4"),
        (
            {"x": (np.zeros(3), np.zeros(3)), "y": np.zeros(2)},
            r"got source\['x'\]\[0\]: 3, source\['x'\]\[1\]: 3, source\['y'\]: 2",
        ),
        (([1, 2], [1]), r"got source\[0\]: 2, source\[1\]: 1"),
        pytest.param(
            {"y": [1, 2], "x": [1]},
            r"got (source\['x'\]: 1, source\['y'\]: 2|source\['y'\]: 2, source\['x'\]: 1)",
        ),
        ((), "at least one array"),
        ((None,), "at least one array"),
        ({}, "at least one array"),
        (np.zeros((0, 3)), "at least one sample, got 0"),
        (([], []), "at least one sample, got 0"),
    ],
)
def test_unequal_or_no_lengths_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        as_source(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.zeros(3), 5), r"source\[1\] must be an array with one row per sample, got int"),
        (np.float32(5), "random access"),
        (np.array(5), "source must be an array with one row per sample, got ndarray"),
        ({"x": "text"}, r"source\['x'\] must be an array with one row per sample, got str"),
        (([[1, 2], [3]], [0, 1]), r"lengths that differ .*list\(zip\(x, y\)\), with collate=pad"),
    ],
)
def test_member_without_rows_is_named(data, message):
    with pytest.raises(TypeError, match=message):
        as_source(data)


def test_array_made_shorter_is_an_error():
    array = np.arange(300).reshape(100, 3).copy()
    source = as_source((array, np.arange(100)))
    array.resize((50, 3), refcheck=False)
    with pytest.raises(ValueError, match="must keep their 100 rows, got 50 by now"):
        source.gather(np.array([5, 99]), np.empty)
    array.resize((200, 3), refcheck=False)
    rows, numbers = source.gather(np.array([5, 99]), np.empty)
    assert rows[0].tolist() == array[5].tolist()
    assert numbers.tolist() == [5, 99]
