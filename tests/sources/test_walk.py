"""The walk through many records at once says nothing that the reader of one does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import Feature, open_records
from adapters.records import layouts, wire
from tests.sources.example_files import encoded, file_of, outcome, varint

pytestmark = pytest.mark.usefixtures("gatherer")

WANTED = [layouts.Wanted(b"a", wire.INT64_LIST, 2, 0), layouts.Wanted(b"b", wire.FLOAT_LIST, 1, 0)]
_NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 127, 128, -1, 2**35, 2**56])


@given(st.lists(st.lists(_NUMBERS, min_size=3, max_size=3), min_size=1, max_size=9))
def test_rows_of_varints_are_read(rows):
    by_size: dict[int, list[list[int]]] = {}
    for row in rows:
        by_size.setdefault(sum(len(varint(value)) for value in row), []).append(row)
    for same in by_size.values():
        lines = [b"".join(map(varint, row)) for row in same]
        written = np.frombuffer(b"".join(lines), np.uint8).reshape(len(same), -1)
        assert layouts.varints(written, 3).tolist() == same
        firsts = [varint(row[0]) for row in same if len(varint(row[0])) == len(varint(same[0][0]))]
        alone = np.frombuffer(b"".join(firsts), np.uint8).reshape(len(firsts), -1)
        assert layouts.varints(alone, 1)[0, 0] == same[0][0]


@given(st.data())
def test_the_walk_says_nothing_that_the_reader_does_not(tmp_path_factory, data):
    """Of Examples with any bytes changed, cut out or put in."""
    payloads = []
    for number in range(3):
        content = bytearray(encoded({"a": [number * 100, -number], "b": [0.5], "c": [b"xyz"]}))
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(0, len(content) - 1))
            content[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        payloads.append(bytes(content))
    spec = {"a": Feature("int64", 2), "b": Feature("float32"), "d": Feature("int64", default=4)}
    path = file_of(tmp_path_factory.mktemp("walk"), payloads)
    source = open_records(path, decode=spec)
    columns = [np.zeros((3, 2), np.int64), np.zeros(3, np.float32), np.zeros(3, np.int64)]
    failures = dict(source.fill(np.arange(3), None, columns))
    for number in range(3):
        expected = outcome(source, number)
        if isinstance(expected, str):
            assert str(failures[number]) == expected
            continue
        assert number not in failures
        for column, value in zip(columns, expected.values()):
            np.testing.assert_array_equal(column[number], value)
