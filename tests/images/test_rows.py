"""The compiled gatherer: what it writes, and what it refuses to touch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.images import kernel, rows

KERNEL = kernel.load()
needs_kernel = pytest.mark.skipif(KERNEL is None, reason="the kernel wasn't built")


def arguments(**changed: Any) -> list[Any]:
    """Three records of 8 bytes, each of two bytes and one varint in the last two."""
    given = {
        "file": bytes(range(24)),
        "numbers": np.array([2, 0], np.int64),
        "rows": None,
        "starts": np.array([0, 8, 16], np.int64),
        "kinds": None,
        "places": np.array([[0, 7]], np.int32),
        "lengths": np.array([[2, 1]], np.int32),
        "sizes": np.array([2, 8], np.int64),
        "varints": np.array([0, 1], np.int64),
        "columns": (np.zeros((2, 2), np.uint8), np.zeros(2, np.int64)),
        "defaults": (None, None),
    }
    return list({**given, **changed}.values())


@needs_kernel
def test_bytes_and_varints_are_written():
    columns = (np.zeros((2, 2), np.uint8), np.zeros(2, np.int64))
    assert KERNEL.gather(*arguments(columns=columns)) is None
    assert columns[0].tolist() == [[16, 17], [0, 1]]
    assert columns[1].tolist() == [23, 7]


@needs_kernel
def test_rows_and_kinds_say_where(tmp_path):
    columns = (np.zeros((4, 2), np.uint8), np.full(4, -1))
    given = arguments(
        rows=np.array([3, 1], np.int64),
        kinds=np.array([0, -1, 1], np.int16),
        places=np.array([[0, 7], [2, -1]], np.int32),
        lengths=np.array([[2, 1], [2, 0]], np.int32),
        columns=columns,
        defaults=(None, np.int64(5).tobytes()),
    )
    assert KERNEL.gather(*given) is None
    assert columns[0].tolist() == [[0, 0], [0, 1], [0, 0], [18, 19]]
    assert columns[1].tolist() == [-1, 7, -1, 5]


@needs_kernel
@pytest.mark.parametrize(
    "changed",
    [
        {"numbers": np.array([2, 3], np.int64)},
        {"numbers": np.array([2, -1], np.int64)},
        {"starts": np.array([24, 8, 16], np.int64)},
        {"starts": np.array([-1, 8, 16], np.int64)},
        {"starts": np.array([2**62, 8, 16], np.int64)},
        {"kinds": np.array([-1, 0, 0], np.int16)},
        {"kinds": np.array([7, 0, 0], np.int16)},
        {"kinds": np.array([1, 0, 0], np.int16), "places": np.array([[0, 7], [-1, 7]], np.int32),
         "lengths": np.array([[2, 1], [2, 1]], np.int32)},
        {"file": bytes(7) + b"\x80" + bytes(16)},
    ],
)  # fmt: skip
def test_a_record_that_does_not_fit_is_told(changed):
    assert KERNEL.gather(*arguments(**changed)) == b"\0\1"


@needs_kernel
@pytest.mark.parametrize(
    "changed",
    [
        {"columns": (np.zeros((2, 2), np.uint8),)},
        {"columns": (np.zeros((1, 2), np.uint8), np.zeros(2, np.int64))},
        {"columns": (np.zeros((2, 4), np.uint8)[:, ::2], np.zeros(2, np.int64))},
        {"columns": (bytes(4), np.zeros(2, np.int64))},
        {"rows": np.array([0, 2], np.int64)},
        {"rows": np.array([0, -1], np.int64)},
        {"rows": np.array([0], np.int64)},
        {"kinds": np.array([0, 0], np.int16)},
        {"places": np.array([[0, 7, 1]], np.int32)},
        {"lengths": np.array([[2, 1], [2, 1]], np.int32)},
        {"sizes": np.array([2, 7], np.int64)},
        {"sizes": np.array([0, 8], np.int64)},
        {"sizes": np.array([2**62, 8], np.int64)},
        {"varints": np.array([0, -1], np.int64)},
        {"numbers": None},
        {"starts": None},
        {"numbers": b"abc"},
        {"defaults": (None, b"short")},
        {"defaults": (None, None, None)},
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(changed):
    with pytest.raises((ValueError, TypeError, BufferError)):
        KERNEL.gather(*arguments(**changed))


@needs_kernel
@given(st.binary(min_size=1, max_size=12), st.integers(1, 3))
def test_varints_of_any_bytes_are_read_as_wire_reads_them(content, count):
    from adapters.errors import ContentError
    from adapters.records import wire

    out = np.zeros((1, count), np.int64)
    given = arguments(
        file=content,
        numbers=np.zeros(1, np.int64),
        starts=np.zeros(1, np.int64),
        places=np.zeros((1, 1), np.int32),
        lengths=np.array([[len(content)]], np.int32),
        sizes=np.array([8 * count], np.int64),
        varints=np.array([count], np.int64),
        columns=(out,),
        defaults=(None,),
    )
    wrong = KERNEL.gather(*given)
    found, at = [], 0
    try:
        while at < len(content):
            value, end = wire.varint(memoryview(content), at, len(content))
            if end - at == 10 and content[end - 1] > 1:  # More than 64 bits: for others to read.
                found = []
                break
            found.append(value - (value >> 63 << 64))
            at = end
    except ContentError:
        found = []
    assert (wrong is None) == (len(found) == count)
    if wrong is None:
        assert out[0].tolist() == found


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
