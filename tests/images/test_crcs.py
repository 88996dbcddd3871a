"""CRC-32C of many parts in the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.images import kernel
from adapters.records import crc

KERNEL = kernel.load()
pytestmark = pytest.mark.skipif(KERNEL is None, reason="the kernel wasn't built")


def crcs(data: Any, begins: Any, ends: Any) -> list[int]:
    found = KERNEL.crcs(data, np.array(begins, np.int64), np.array(ends, np.int64))
    return np.frombuffer(found, np.uint32).tolist()


def crc32c(data: bytes) -> int:
    """Bit by bit, as RFC 3720 has it."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_it_is_the_usual_one():
    assert crcs(b"123456789", [0], [9]) == [0xE3069283]
    assert crcs(bytes(32), [0], [32]) == [0x8A9136AA]
    assert crcs(b"", [], []) == []


@given(
    st.binary(min_size=1, max_size=64),
    st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64)), max_size=9),
)
def test_any_parts_have_their_own(data, pairs):
    """Some of one size, which go together, and others."""
    parts = [sorted(min(end, len(data)) for end in pair) for pair in pairs]
    begins, ends = [part[0] for part in parts], [part[1] for part in parts]
    assert crcs(data, begins, ends) == [crc32c(data[begin:end]) for begin, end in parts]


@pytest.mark.parametrize("size", [12_287, 12_288, 12_301, 24_576, 40_003])
def test_a_long_part_that_is_computed_in_thirds_has_the_same(size):
    data = np.random.default_rng(size).bytes(size + 3)
    assert crcs(data, [3], [size + 3]) == [crc32c(data[3:])]


@pytest.mark.parametrize("size", [4096, 30_000])
def test_much_at_once_has_the_same(size):
    """Above what the GIL is kept for."""
    data = np.random.default_rng(0).bytes(20 * size)
    begins = np.arange(0, len(data), size)
    single = [crcs(data[begin : begin + size], [0], [size])[0] for begin in begins]
    assert crcs(data, begins, begins + size) == single


@pytest.mark.parametrize(
    ("begins", "ends"), [([-1], [2]), ([3], [2]), ([0], [9]), ([0], []), ([2**62], [2**62])]
)
def test_parts_of_other_memory_are_refused(begins, ends):
    with pytest.raises(ValueError, match="must be int64, of parts of data"):
        crcs(bytes(8), begins, ends)


def test_records_have_the_same_with_and_without_it(monkeypatch):
    data = memoryview(np.random.default_rng(0).bytes(50))
    begins, ends = np.array([0, 3]), np.array([50, 44])
    found = crc.masked_crcs_of(data, begins, ends)
    monkeypatch.setattr(crc, "load", lambda: None)
    assert found.tolist() == crc.masked_crcs_of(data, begins, ends).tolist()
    assert found[1] == crc.masked_crc(data[3:44])
