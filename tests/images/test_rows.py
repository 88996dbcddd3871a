"""The compiled gatherer: what it writes, and what it refuses to touch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adapters.images import kernel, rows

KERNEL = kernel.load()
needs_kernel = pytest.mark.skipif(KERNEL is None, reason="the kernel wasn't built")


# --- rows of arrays ---

SHAPES = [("u1", (28, 28)), ("f4", (512,)), ("c8", (140, 2)), ("i8", ()), ("f4", ()), ("?", (3,))]


def rows_of(dtype: str, shape: tuple[int, ...], count: int = 50) -> Any:
    return np.random.default_rng(0).integers(0, 99, (count, *shape)).astype(dtype)


@pytest.mark.parametrize(("dtype", "shape"), SHAPES)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64, 3000])
def test_rows_of_arrays_are_taken(dtype, shape, count):
    array, labels = rows_of(dtype, shape), np.arange(50)
    numbers = np.random.default_rng(1).integers(0, 50, count)
    outs = np.zeros((count, *shape), dtype), np.full(count, -1)
    assert rows.take((array, labels), numbers, outs) == (KERNEL is not None)
    backwards = np.repeat(numbers, 2)[::-2]
    reversed_ = outs[0][::-1].copy(), outs[1][::-1].copy()
    assert rows.take((array, labels), backwards, outs) == (KERNEL is not None)
    for got, wanted in zip(outs, reversed_):
        np.testing.assert_array_equal(got, wanted)
    rows.take((array, labels), numbers, outs)
    if KERNEL is not None:
        np.testing.assert_array_equal(outs[0], array[numbers])
        np.testing.assert_array_equal(outs[1], numbers)


@needs_kernel
def test_places_say_into_which_rows():
    array, out = rows_of("u1", (5,)), np.full((6, 5), 255, "u1")
    assert rows.take((array,), np.array([49, 0, 7]), (out,), np.array([4, 1, 4]))
    expected = np.full((6, 5), 255, "u1")
    expected[[1, 4]] = array[[0, 7]]
    np.testing.assert_array_equal(out, expected)


@needs_kernel
@pytest.mark.parametrize("count", [1, 2, 9, 10, 40])
def test_rows_in_parts_are_numbered_through(count):
    rng = np.random.default_rng(count)
    given = [rng.random((length, 3)) for length in [*rng.integers(0, 6, count).tolist(), 5]]
    array = np.concatenate(given)
    numbers = rng.permutation(np.repeat(np.arange(len(array)), 2))
    out, beside = np.empty((len(numbers), 3)), np.empty(len(numbers), np.int64)
    parted = rows.parts_of(given, list(map(len, given)))
    assert rows.take((parted, np.arange(len(array))), numbers, (out, beside))
    np.testing.assert_array_equal(out, array[numbers])
    np.testing.assert_array_equal(beside, numbers)


ARRAY, ROOM = np.zeros((5, 3), "u1"), np.zeros((2, 3), "u1")


@needs_kernel
@pytest.mark.parametrize(
    ("given", "error"),
    [
        (((ARRAY,), np.array([0, 5]), (ROOM,), None), IndexError),
        (((ARRAY,), np.array([0, -1]), (ROOM,), None), IndexError),
        (((ARRAY,), np.array([0, -(2**63)]), (ROOM,), None), IndexError),
        (((ARRAY[:0],), np.array([0, 0]), (ROOM,), None), IndexError),
        (((ARRAY, ARRAY[:3]), np.array([0, 4]), (ROOM, ROOM.copy()), None), IndexError),
        (((ARRAY,), np.array([0, 1, 2]), (ROOM,), None), IndexError),
        (((ARRAY,), np.array([0, 1]), (ROOM,), np.array([0, 2])), IndexError),
        (((ARRAY,), np.array([0, 1]), (ROOM,), np.array([-1, 0])), IndexError),
        (((ARRAY,), np.array([0, 1]), (ROOM,), np.array([0])), ValueError),
        (((ARRAY,), np.array([0, 1]), (np.zeros((2, 4), "u1"),), None), ValueError),
        (((ARRAY,), np.array([0, 1]), (np.zeros((4, 3), "u1")[::2],), None), ValueError),
        (((ARRAY[:, ::2],), np.array([0, 1]), (np.zeros((2, 2), "u1"),), None), ValueError),
        (((ARRAY,), np.array([0, 1], "i4"), (ROOM,), None), ValueError),
        (((ARRAY,), np.array([0, 1], "u8"), (ROOM,), None), ValueError),
        (((ARRAY,), np.array([0, 0], "f8"), (ROOM,), None), ValueError),
        (((ARRAY,), np.array([0, 0], ">i8"), (ROOM,), None), ValueError),
        (((ARRAY,), np.array([0, 0], "M8[s]"), (ROOM,), None), ValueError),
        (((ARRAY,), bytes(16), (ROOM,), None), ValueError),
        (((ARRAY,), np.array([[0], [1]]), (ROOM,), None), ValueError),
        (((np.array(3),), np.array([0]), (ROOM,), None), ValueError),
        (((bytes(5),), np.array([0]), (bytes(1),), None), (BufferError, TypeError)),
        (((ARRAY,), None, (ROOM,), None), TypeError),
        (((ARRAY,), np.array([0]), (), None), TypeError),
        (([ARRAY], np.array([0]), [ROOM], None), TypeError),
        (((ARRAY,) * 65, np.array([0]), (ROOM,) * 65, None), TypeError),
        (((ARRAY,), np.array([0])), TypeError),
        # Rows in parts of memory.
        ((((ARRAY, np.array([[0, 2], [9, 3]])),), np.array([0]), (ROOM,), None), ValueError),
        ((((ARRAY, np.array([[0, 2], [9, 2]])),), np.array([0, 4]), (ROOM,), None), IndexError),
        ((((ARRAY, np.array([[-3, 2]])),), np.array([0]), (ROOM,), None), ValueError),
        ((((ARRAY, np.array([[16, 0]])),), np.array([0]), (ROOM,), None), ValueError),
        ((((ARRAY, np.array([[0, -1]])),), np.array([0]), (ROOM,), None), ValueError),
        ((((ARRAY, np.array([[0, 2**62]])),), np.array([0]), (ROOM,), None), ValueError),
        ((((ARRAY, np.array([[2**63 - 1, 1]])),), np.array([0]), (ROOM,), None), ValueError),
        ((((ARRAY, np.zeros((0, 2), np.int64)),), np.array([0]), (ROOM,), None), ValueError),
        ((((ARRAY, np.array([0, 2, 3])),), np.array([0]), (ROOM,), None), ValueError),
        ((((ARRAY, np.array([[0.0, 2.0]])),), np.array([0]), (ROOM,), None), ValueError),
        ((((ARRAY, None),), np.array([0]), (ROOM,), None), TypeError),
        ((((ARRAY, ARRAY, ARRAY),), np.array([0]), (ROOM,), None), TypeError),
    ],
)
def test_rows_that_do_not_fit_are_refused(given, error):
    with pytest.raises(error):
        KERNEL.take(*given, 0)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((5, 999), "M8[s]"),
        np.zeros((5, 3), object),
        np.zeros((5, 3), "U2"),
        np.zeros((5, 3), "u1").T,
    ],
)
def test_what_it_does_not_take_is_left_to_numpy(array):
    assert rows.can_be_taken(np.zeros(5))
    assert not rows.can_be_taken(array)


def test_the_map_of_a_file_is_not_in_memory(tmp_path):
    """Whoever waits for a disk must not keep the GIL."""
    array = np.arange(12).reshape(4, 3)
    np.save(tmp_path / "array.npy", array)
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    assert list(map(rows.is_in_memory, [array, array[1:].T, mapped, np.asarray(mapped)[1:]])) == [
        True,
        True,
        False,
        False,
    ]
