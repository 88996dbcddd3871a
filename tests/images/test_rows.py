"""The compiled gatherer: what it writes, and what it refuses to touch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.images import kernel

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
