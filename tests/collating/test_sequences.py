"""Sequences of unequal lengths: ``pad``, ``ragged`` and ``packed``."""

from __future__ import annotations

import itertools
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import Buckets, SafeSequence, packed, pad, ragged
from adapters.selecting.packed import OPEN_ROWS, first_fit
from tests.batches import exact


def of(*lengths: int, dtype: str = "i4") -> list[np.ndarray]:
    return [np.arange(1, length + 1, dtype=dtype) for length in lengths]


@given(
    st.lists(st.lists(st.integers(-9, 9), max_size=9), min_size=1, max_size=6),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 7)),
)
def test_pad_fills_rows_with_the_value(samples, multiple, most):
    samples = [np.array(sample, np.int16) for sample in samples]
    batch, lengths = pad(7, multiple, most, lengths=True)(samples)
    longest = -(-max(map(len, samples)) // multiple) * multiple
    longest = longest if most is None else min(longest, most)
    assert batch.shape == (len(samples), longest)
    assert batch.dtype == np.int16
    for row, sample, length in zip(batch, samples, lengths):
        assert length == min(len(sample), longest)
        assert row.tolist() == [*sample[:longest].tolist(), *[7] * (longest - length)]


def test_pad_takes_lists():
    """An empty one is of any dtype; those of several are promoted, whatever their order."""
    assert exact(pad()([[], [1, 2]])) == exact(np.array([[0, 0], [1, 2]]))
    assert exact(pad()([[[1.5, 2.0]], []][:1])) == exact(np.array([[[1.5, 2.0]]]))
    assert pad()([[], []]).shape == (2, 0)
    samples = [np.ones(2, "i4"), np.ones(1, "f4"), np.ones(3, "i8")]
    assert pad()(samples).dtype == pad()(samples[::-1]).dtype == np.float64


def test_pad_value_per_member():
    batch = pad({"tokens": 0, "labels": -100, "image": None})(
        [
            {"tokens": [1], "labels": [5], "image": np.ones((2, 2))},
            {"tokens": [1, 2], "labels": [5, 6], "image": np.ones((2, 2))},
        ]
    )
    assert batch["tokens"].tolist() == [[1, 0], [1, 2]]
    assert batch["labels"].tolist() == [[5, -100], [5, 6]]
    assert batch["image"].shape == (2, 2, 2)


def test_pad_keeps_structures():
    named = namedtuple("named", "tokens label")
    batch = pad()([named([1], (0, "a")), named([1, 2], (1, "b"))])
    assert type(batch) is named
    assert batch.label[0].tolist() == [0, 1]
    assert batch.label[1].tolist() == ["a", "b"]
    assert pad()([([1], None), ([2], None)])[1] is None


@pytest.mark.parametrize("axis", [(0, 1), (1, 0)])
def test_pad_images_of_several_sizes(axis):
    pictures = [np.full((2, 3, 1), 9, "u1"), np.full((4, 1, 1), 8, "u1")]
    batch = pad(1, 2, axis=axis)(pictures)
    assert batch.shape == (2, 4, 4, 1)
    assert batch[0, :2, :3].tolist() == pictures[0].tolist()
    assert batch[1, :, :1].tolist() == pictures[1].tolist()
    assert batch.sum() == 9 * 6 + 8 * 4 + (32 - 10)
    batch = pad(axis=1, max_length=2)([np.ones((2, 1)), np.ones((2, 5))])
    assert batch.tolist() == [[[1, 0], [1, 0]], [[1, 1], [1, 1]]]


def test_pad_lengths_stand_beside_the_member():
    (tokens, lengths), label = pad(lengths=True)([([1], 3), ([1, 2], 4)])
    assert (tokens.shape, lengths.tolist(), lengths.dtype) == ((2, 2), [1, 2], np.int32)
    assert label.tolist() == [3, 4]
    batch = pad(lengths=True)([{"n": 1, "a": [1], "b": [1, 2, 3]}, {"n": 1, "a": [1, 2], "b": [1]}])
    assert list(batch) == ["n", "a", "b", "a_length"]
    assert batch["a_length"].tolist() == [1, 2]


def test_pad_leaves_the_samples_alone():
    samples = of(3, 3)
    pad()(samples)[:] = 0
    assert samples[0].tolist() == [1, 2, 3]
    assert not np.shares_memory(pad()(samples[:1]), samples[0])


@pytest.mark.parametrize(
    ("error", "message", "samples", "arguments"),
    [
        (ValueError, "at least one sample", [], {}),
        (ValueError, r"sample\[1\] is a int64|one structure", [([1], 1), ([1],)], {}),
        (ValueError, "is a dict of \\['b'\\] in sample 1", [{"a": 1}, {"b": 1}], {}),
        (
            ValueError,
            "along axis 0 only: sample 1 .* shape \\(2, 3\\)",
            [np.ones((2, 2)), np.ones((2, 3))],
            {},
        ),
        (
            ValueError,
            r"sample\[1\] must have equal shapes",
            [(of(1)[0], of(1)[0]), (of(1)[0], of(2)[0])],
            {"value": (0, None)},
        ),
        (TypeError, "a number that uint8 holds", of(1, 2, dtype="u1"), {"value": -100}),
        (TypeError, "a number that int32 holds .* got nan", of(1, 2), {"value": float("nan")}),
        (
            ValueError,
            "a structure like the sample's, got \\(0, 1, 2\\)",
            [([1], 1)],
            {"value": (0, 1, 2)},
        ),
        (
            ValueError,
            "got {'a': 0} where sample is a dict of \\['b'\\]",
            [{"b": [1]}],
            {"value": {"a": 0}},
        ),
        (ValueError, "where sample is an array", of(1), {"value": (0,)}),
    ],
)
def test_pad_refuses_what_fits_no_batch(error, message, samples, arguments):
    with pytest.raises(error, match=message):
        pad(**arguments)(samples)


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "to_multiple_of must be >= 1, got 0", {"to_multiple_of": 0}),
        (TypeError, "max_length must be an integer >= 1 or None, got 2.5", {"max_length": 2.5}),
        (ValueError, "axis must be >= 0, each one once, got \\(1, 1\\)", {"axis": (1, 1)}),
        (TypeError, "axis must be an integer or a tuple of them, got 'x'", {"axis": "x"}),
        (TypeError, "lengths must be True or False, got 3", {"lengths": 3}),
    ],
)
def test_pad_wrong_arguments_are_refused(error, message, arguments):
    with pytest.raises(error, match=message):
        pad(**arguments)


def of_lengths(count: int = 2000, sigma: float = 0.25) -> tuple[list[Any], list[int]]:
    """Samples of lognormal lengths, ``(numbers, label)``, and the lengths."""
    lengths = np.random.default_rng(3).lognormal(4, sigma, count).astype(int) + 1
    return [(np.full(n, n), n) for n in lengths.tolist()], lengths.tolist()


def test_buckets_bound_the_shapes():
    """There are no other shapes, and as little padding as the buckets say."""
    samples, lengths = of_lengths()
    buckets = Buckets(lengths)
    shapes, cells = set(), 0
    with SafeSequence(
        samples, 20, shuffle=True, collate=pad(-1), bucket_by=buckets, workers=0
    ) as sequence:
        for rows, labels in sequence:
            shapes.add(rows.shape[1])
            cells += rows.size
            assert [row[:n].tolist() for row, n in zip(rows, labels)] == [[n] * n for n in labels]
            assert all((row[n:] == -1).all() for row, n in zip(rows, labels))
    assert shapes == set(buckets.bounds)
    assert len(shapes) == 8
    assert 1 - sum(lengths) / cells <= 0.10


def test_buckets_bounds_are_rounded_and_cut():
    samples, lengths = of_lengths(200)
    bounds = np.array(Buckets(lengths, shapes=3).bounds)
    options = {"shuffle": True, "workers": 0, "bucket_by": Buckets(lengths, shapes=3)}
    with SafeSequence(samples, 8, collate=pad(0, 16, 80), **options) as sequence:
        shapes = {rows.shape[1] for rows, _ in sequence}
    assert shapes == set(np.minimum(-(-bounds // 16) * 16, 80).tolist())


@pytest.mark.parametrize("axis", [0, (0, 1)])
def test_buckets_of_other_lengths_change_nothing(axis):
    """Seconds, say; or of which axis of several nobody knows."""
    samples = [np.ones((n, 2)) for n in (3, 4, 9, 10)]
    lengths = [3.5, 4.5, 9.5, 10.5] if axis == 0 else [3, 10, 10, 10]
    options = {"collate": pad(axis=axis), "bucket_by": Buckets(lengths, shapes=2), "workers": 0}
    with SafeSequence(samples, 1, **options) as sequence:
        assert sorted(len(batch[0]) for batch in sequence) == [3, 4, 9, 10]


@pytest.mark.parametrize("buckets", [[1, 1, 2, 2], None])
def test_buckets_leave_longer_samples(buckets):
    """And a collate is not changed by a sequence that has buckets."""
    samples, collate = [np.ones(n) for n in (3, 4, 9, 10)], pad()
    lengths = Buckets([3, 4, 9, 10], shapes=1)
    options = {"collate": collate, "workers": 0}
    with SafeSequence(samples, 1, bucket_by=lengths, **options) as bound:
        assert [len(batch[0]) for batch in bound] == [10] * 4
        with SafeSequence(samples, 1, bucket_by=buckets, **options) as plain:
            assert sorted(len(batch[0]) for batch in plain) == [3, 4, 9, 10]


def bucket_shapes(lengths: list[int], batch_size: int, **options: Any) -> list[tuple[Any, Any]]:
    """Of batches of two buckets, of samples ``(tokens, label of three numbers)``."""
    samples = [(np.arange(n), np.eye(3)[0]) for n in lengths]
    given: dict[str, Any] = {"bucket_by": Buckets(lengths, shapes=2), "workers": 0, **options}
    with SafeSequence(samples, batch_size, collate=pad(), **given) as sequence:
        return [(tokens.shape[1], label.shape[1]) for tokens, label in sequence]


@pytest.mark.parametrize("batch_size", [1, 2])
def test_buckets_leave_members_of_a_fixed_size(batch_size):
    """The tokens go to the bound all the same, so that there are few shapes."""
    lengths = [3, 3, 4, 4, 9, 9, 10, 10]
    count = 4 // batch_size
    assert bucket_shapes(lengths, batch_size) == [(4, 3)] * count + [(10, 3)] * count
    other = {"transform": lambda sample: (sample[0], sample[1]), "on_error": "skip"}
    assert bucket_shapes(lengths, batch_size, **other) == [(4, 3)] * count + [(10, 3)] * count


def test_buckets_of_one_member_leave_the_other():
    lengths = [3, 4, 9, 10]
    samples = [{"tokens": np.ones(n), "targets": np.ones(2 * n)} for n in lengths]
    options = {"bucket_by": Buckets(lengths, shapes=1), "workers": 0}
    with SafeSequence(samples, 2, collate=pad(), **options) as sequence:
        shapes = [(b["tokens"].shape[1], b["targets"].shape[1]) for b in sequence]
    assert shapes == [(10, 8), (10, 20)]


def test_buckets_compare_lengths_as_cut():
    lengths = [3, 3, 4, 4, 90, 95]
    samples = [np.ones(n) for n in lengths]
    options = {"bucket_by": Buckets(np.minimum(lengths, 80), shapes=2), "workers": 0}
    with SafeSequence(samples, 2, collate=pad(max_length=80), **options) as sequence:
        assert [batch.shape[1] for batch in sequence] == [4, 4, 80]


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), min_size=1, max_size=6), st.integers(1, 5))
def test_ragged_splits_give_the_samples_back(samples, multiple):
    values, splits = ragged(-1, multiple)([np.array(sample, np.int32) for sample in samples])
    assert [values[a:b].tolist() for a, b in itertools.pairwise(splits)] == samples
    assert values[splits[-1] :].tolist() == [-1] * (-splits[-1] % multiple)
    assert (values.dtype, splits.dtype) == (np.int32, np.int64)


def test_ragged_stacks_members_without_rows():
    batch = ragged({"tokens": 0, "vector": None, "label": 0})(
        [
            {"tokens": [1], "vector": np.ones(3), "label": 1},
            {"tokens": [2, 3], "vector": np.ones(3), "label": 0},
        ]
    )
    assert batch["tokens"][0].tolist() == [1, 2, 3]
    assert (batch["vector"].shape, batch["label"].tolist()) == ((2, 3), [1, 0])


def test_ragged_refuses_another_axis():
    with pytest.raises(ValueError, match="along axis 0 only"):
        ragged()([np.ones((2, 2)), np.ones((2, 3))])


LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=80)


@given(LENGTHS, st.integers(1, 12), st.integers(1, 5))
def test_packed_rows_are_not_too_full(lengths, length, most):
    lengths = np.minimum(lengths, length)
    numbers, starts = first_fit(lengths, length, most)
    assert sorted(numbers.tolist()) == list(range(len(lengths)))
    for start, end in itertools.pairwise(starts):
        assert 0 < end - start <= most
        assert lengths[numbers[start:end]].sum() <= length


@given(LENGTHS, st.integers(1, 12))
def test_packed_rows_hold_the_sequences(lengths, length):
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


def test_packed_leaves_few_places_empty():
    lengths = np.random.default_rng(0).lognormal(np.log(300), 0.8, 20_000).astype(int)
    lengths = np.clip(lengths, 1, 2048)
    numbers, starts = first_fit(lengths, 2048, len(lengths))
    assert 1 - lengths.sum() / (len(starts) - 1) / 2048 < 0.02
    spread = [np.ptp(numbers[a:b]) for a, b in itertools.pairwise(starts)]
    assert np.median(spread) < 20 * OPEN_ROWS


def test_packed_takes_given_lengths():
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
def test_packed_wrong_arguments_are_refused(error, message, arguments):
    with pytest.raises(error, match=message):
        packed([[1, 2], [3]], **arguments)


def test_packed_notices_wrong_lengths():
    with pytest.raises(ValueError, match="lengths must be those of the sequences"):
        packed([[1, 2, 3], [4, 5, 6]], 4, [2, 2])[0]
    with pytest.raises(ValueError, match="a sample must be a sequence"):
        packed([np.ones((2, 2))], 4)
