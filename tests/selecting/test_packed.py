"""``packed``: every sequence in one row, whole, once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import packed
from adapters.selecting.packed import OPEN_ROWS, first_fit

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=80)


@given(LENGTHS, st.integers(1, 12), st.integers(1, 5))
def test_every_sequence_lies_in_one_row_and_none_is_too_full(lengths, length, most):
    lengths = np.minimum(lengths, length)
    rows = first_fit(lengths, length, most)
    assert sorted(rows.numbers.tolist()) == list(range(len(lengths)))
    for start, end in zip(rows.starts, rows.starts[1:]):
        assert 0 < end - start <= most
        assert lengths[rows.numbers[start:end]].sum() <= length


@given(LENGTHS, st.integers(1, 12))
def test_rows_hold_the_sequences_their_places_and_nothing_else(lengths, length):
    sequences = [np.arange(size, dtype=np.int16) + 100 * n for n, size in enumerate(lengths)]
    rows = packed([{"t": each} for each in sequences], length, tokens="t", value=-1)
    seen = {}
    for number, row in enumerate(rows):
        tokens, segments, positions = row["tokens"], row["segment_ids"], row["positions"]
        assert tokens.shape == segments.shape == positions.shape == (length,)
        assert tokens.dtype == np.int16
        for segment, sequence in enumerate(rows.sequences(number).tolist(), 1):
            mine = segments == segment
            seen[sequence] = tokens[mine].tolist()
            assert positions[mine].tolist() == list(range(mine.sum()))
        assert (tokens[segments == 0] == -1).all()
    assert seen == {n: sequence[:length].tolist() for n, sequence in enumerate(sequences)}


def test_few_places_stay_empty():
    lengths = np.random.default_rng(0).lognormal(np.log(300), 0.8, 20_000).astype(int)
    lengths = np.clip(lengths, 1, 2048)
    rows = first_fit(lengths, 2048, len(lengths))
    assert 1 - lengths.sum() / len(rows) / 2048 < 0.02
    spread = [np.ptp(rows.numbers[a:b]) for a, b in zip(rows.starts, rows.starts[1:])]
    assert np.median(spread) < 20 * OPEN_ROWS


def test_given_lengths_are_read_from_nowhere_else():
    class Counting:
        asked = 0

        def __len__(self) -> int:
            return 4

        def __getitem__(self, number: int) -> Any:
            self.asked += 1
            return {"text": [number + 1] * (number + 1), "id": number}

    data = Counting()
    rows = packed(data, 5, [1, 2, 3, 4], tokens="text", transform=lambda row: row["tokens"])
    assert data.asked == 0
    assert [row.tolist() for row in rows] == [[1, 2, 2, 0, 0], [3, 3, 3, 0, 0], [4, 4, 4, 4, 0]]
    assert rows.fill_rate == 10 / 15


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "length must be >= 1, got 0", {"length": 0}),
        (ValueError, "most must be >= 1 or None, got 0", {"length": 4, "most": 0}),
        (TypeError, "lengths must be integers", {"length": 4, "lengths": [1.5, 2.0]}),
        (ValueError, "one for each of 2 samples", {"length": 4, "lengths": [1]}),
        (ValueError, "tokens must be the key or position", {"length": 4, "tokens": "text"}),
        (TypeError, "transform must be callable or None", {"length": 4, "transform": 3}),
    ],
)
def test_wrong_arguments_are_refused(error, message, arguments):
    with pytest.raises(error, match=message):
        packed([[1, 2], [3]], **arguments)


def test_lengths_that_are_not_those_of_the_sequences_are_noticed():
    with pytest.raises(ValueError, match="lengths must be those of the sequences"):
        packed([[1, 2, 3], [4, 5, 6]], 4, [2, 2])[0]
    with pytest.raises(ValueError, match="a sample must be a sequence"):
        packed([np.ones((2, 2))], 4)
