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
from adapters.selecting.packed import OPEN_ROWS
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
    assert exact(pad(-1)([[], []])) == exact(np.empty((2, 0), np.int64))
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
    batch, lengths = pad(axis=1, max_length=2, lengths=True)([np.ones((2, 1)), np.ones((2, 5))])
    assert lengths.tolist() == [1, 2]
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


def packed_by(**arguments: Any) -> Any:
    return packed([[1, 2], [3]], **{"length": 4, **arguments})


def padded(samples: Any, **arguments: Any) -> Any:
    return pad(**arguments)(samples)


EYE = np.eye(3)
OTHER_AXIS = [np.ones((2, 2)), np.ones((2, 3))]
PAIR, UNEQUAL = [([1], 1)], [([], []), ([], [1])]


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ValueError, "at least one sample", lambda: padded([])),
        (ValueError, r"sample\[1\] is a int64|one structure", lambda: padded([*PAIR, ([1],)])),
        (ValueError, r"a dict of \['b'\] in sample 1", lambda: padded([{"a": 1}, {"b": 1}])),
        (ValueError, r"axis 0 only: sample 1 .* shape \(2, 3\)", lambda: padded(OTHER_AXIS)),
        (ValueError, "along axis 0 only", lambda: ragged()(OTHER_AXIS)),
        (ValueError, r"; pad\(axis=\(0, 1\)\) pads them", lambda: padded([EYE[1:], EYE[:, 1:]])),
        (ValueError, "lengths in sample 1 .*: pad each", lambda: padded([[[1]], [[1, 2], [3]]])),
        (ValueError, r"sample\['b'\] must be an", lambda: ragged()([{"b": [[1, 2], [3]]}])),
        (ValueError, "along axis 3 only", lambda: pad(0, axis=3)(OTHER_AXIS)),
        (ValueError, r"\[1\] must have equal shapes", lambda: padded(UNEQUAL, value=(0, None))),
        (TypeError, "a number that uint8 holds", lambda: padded(of(1, dtype="u1"), value=-100)),
        (TypeError, "that int32 holds .* got 'x'", lambda: padded(of(1), value="x")),
        (TypeError, "that int32 holds .* got nan", lambda: padded(of(1), value=float("nan"))),
        (ValueError, r"like the sample's, got \(0, 1, 2\)", lambda: padded(PAIR, value=(0, 1, 2))),
        (ValueError, r"got {'a': 0} where .*\['b'\]", lambda: padded([{"b": [1]}], value={"a": 0})),
        (ValueError, "where sample is an array", lambda: padded(of(1), value=(0,))),
        (ValueError, "to_multiple_of must be >= 1, got 0", lambda: pad(to_multiple_of=0)),
        (ValueError, r"axis must .* each one once, got \(1, 1\)", lambda: pad(axis=(1, 1))),
        (TypeError, "axis must be an integer >= 0 or a tuple", lambda: pad(axis="x")),
        (TypeError, "lengths must be True or False, got 3", lambda: pad(lengths=3)),
        (ValueError, "length must be >= 1, got 0", lambda: packed_by(length=0)),
        (ValueError, "most must be >= 1 or None, got 0", lambda: packed_by(most=0)),
        (TypeError, "lengths must be integers", lambda: packed_by(lengths=[1.5, 2.0])),
        (ValueError, "one for each of 2 samples", lambda: packed_by(lengths=[1])),
        (ValueError, "those of the sequences", lambda: packed([[1, 2]] * 2, 4, [1, 1])[0]),
        (ValueError, "tokens must be the key or position", lambda: packed_by(tokens="text")),
        (TypeError, "transform must be callable or None", lambda: packed_by(transform=3)),
        (ValueError, "a sample must be a sequence", lambda: packed([np.ones((2, 2))], 4)),
        (ValueError, "with tokens=", lambda: packed([([1, 2, 3], 0)], 4)),
    ],
)
def test_wrong_samples_and_arguments_are_refused(error, message, make):
    with pytest.raises(error, match=message):
        make()


def test_empty_arrays_beside_others_have_no_rows():
    boxes = [np.array([]), np.ones((2, 4), "i4"), []]
    assert padded(boxes).dtype == np.int32
    assert padded(boxes).shape == (3, 2, 4)
    assert [part.shape for part in ragged()(boxes)] == [(2, 4), (4,)]


def batches_of(samples: list[Any], batch_size: int, **options: Any) -> list[Any]:
    """Batches as a sequence pads them, which is told lengths by ``bucket_by``."""
    options = {"collate": pad(), "workers": 0, **options}
    with SafeSequence(samples, batch_size, **options) as sequence:
        return list(sequence)


def of_lengths(count: int) -> tuple[list[Any], list[int]]:
    """Samples of lognormal lengths, ``(numbers, label)``, and the lengths."""
    lengths = np.random.default_rng(3).lognormal(4, 0.25, count).astype(int) + 1
    return [(np.full(n, n), n) for n in lengths.tolist()], lengths.tolist()


def test_buckets_bound_the_shapes():
    """There are no other shapes, and as little padding as the buckets say."""
    samples, lengths = of_lengths(2000)
    buckets = Buckets(lengths)
    batches = batches_of(samples, 20, shuffle=True, collate=pad(-1), bucket_by=buckets)
    for rows, labels in batches:
        assert [row[:n].tolist() for row, n in zip(rows, labels)] == [[n] * n for n in labels]
        assert all((row[n:] == -1).all() for row, n in zip(rows, labels))
    assert {rows.shape[1] for rows, _ in batches} == set(buckets.bounds)
    assert len(buckets.bounds) == 8
    assert 1 - sum(lengths) / sum(rows.size for rows, _ in batches) <= 0.10


def test_buckets_bounds_are_rounded_and_cut():
    samples, lengths = of_lengths(200)
    buckets = Buckets(lengths, shapes=3)
    batches = batches_of(samples, 8, shuffle=True, collate=pad(0, 16, 80), bucket_by=buckets)
    bounds = -(-np.array(buckets.bounds) // 16) * 16
    assert {rows.shape[1] for rows, _ in batches} == set(np.minimum(bounds, 80).tolist())


SAMPLES = [np.ones((n, 2)) for n in (3, 4, 9, 10)]


@pytest.mark.parametrize(
    "buckets", [Buckets([3.5, 4.5, 9.5, 10.5]), [1, 1, 2, 2]], ids=["seconds", "no Buckets"]
)
def test_buckets_of_other_lengths_change_nothing(buckets):
    batches = batches_of(SAMPLES, 1, bucket_by=buckets)
    assert sorted(len(batch[0]) for batch in batches) == [3, 4, 9, 10]


@pytest.mark.parametrize("batch_size", [1, 2])
def test_buckets_bound_several_axes(batch_size):
    """Those of images; other members keep their size."""
    sizes = [(3, 2), (1, 3), (4, 7), (9, 5), (9, 2), (8, 9)]
    samples = [(np.ones((*size, 3)), np.ones((3, 4))) for size in sizes]
    buckets = Buckets(list(map(max, sizes)), shapes=2)
    options = {"collate": pad(axis=(0, 1)), "bucket_by": buckets}
    shapes = {(x.shape[1:], y.shape[1:]) for x, y in batches_of(samples, batch_size, **options)}
    sides = itertools.product([3, 9], [3, 9])
    assert shapes <= {((*side, 3), (3, 4)) for side in sides}


def test_buckets_do_not_change_the_collate():
    collate, buckets = pad(), Buckets([3, 4, 9, 10], shapes=1)
    options: dict[str, Any] = {"collate": collate, "workers": 0}
    with SafeSequence(SAMPLES, 1, bucket_by=buckets, **options) as bound:
        assert [len(batch[0]) for batch in bound] == [10] * 4
        assert [len(batch[0]) for batch in batches_of(SAMPLES, 1, **options)] == [3, 4, 9, 10]


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("options", [{}, {"transform": lambda sample: sample, "on_error": "skip"}])
def test_buckets_leave_members_of_a_fixed_size(batch_size, options):
    """The tokens go to the bound all the same, so that there are few shapes."""
    lengths = [3, 3, 4, 4, 9, 9, 10, 10]
    samples = [(np.arange(n), np.eye(3)[0]) for n in lengths]
    batches = batches_of(samples, batch_size, bucket_by=Buckets(lengths, shapes=2), **options)
    shapes = [(tokens.shape[1], label.shape[1]) for tokens, label in batches]
    assert shapes == [(4, 3)] * (4 // batch_size) + [(10, 3)] * (4 // batch_size)


def test_buckets_of_one_member_leave_the_other():
    lengths = [3, 4, 9, 10]
    samples = [{"tokens": np.ones(n), "targets": np.ones(2 * n)} for n in lengths]
    batches = batches_of(samples, 2, bucket_by=Buckets(lengths, shapes=1))
    shapes = [(b["tokens"].shape[1], b["targets"].shape[1]) for b in batches]
    assert shapes == [(10, 8), (10, 20)]


def test_buckets_compare_lengths_as_cut():
    samples = [np.ones(n) for n in (3, 3, 4, 4, 90, 95)]
    buckets = Buckets([3, 3, 4, 4, 80, 80], shapes=2)
    batches = batches_of(samples, 2, collate=pad(max_length=80), bucket_by=buckets)
    assert [batch.shape[1] for batch in batches] == [4, 4, 80]


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


LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=80)


@given(LENGTHS, st.integers(1, 12), st.integers(1, 5))
def test_packed_rows_hold_the_sequences(lengths, length, most):
    sequences = [np.arange(size, dtype=np.int16) + 100 * n for n, size in enumerate(lengths)]
    samples = [{"t": each} for each in sequences]
    rows = packed(samples, length, most=most, tokens="t", value=-1)
    seen = {}
    for number, row in enumerate(rows):
        tokens, segments, positions = row["tokens"], row["segment_ids"], row["positions"]
        assert tokens.shape == segments.shape == positions.shape == (length,)
        assert tokens.dtype == np.int16
        assert 0 < len(rows.sequences(number)) <= most
        for segment, sequence in enumerate(rows.sequences(number).tolist(), 1):
            mine = segments == segment
            seen[sequence] = tokens[mine].tolist()
            assert positions[mine].tolist() == list(range(mine.sum()))
        assert (tokens[segments == 0] == -1).all()
    assert seen == {n: sequence[:length].tolist() for n, sequence in enumerate(sequences)}


def test_packed_leaves_few_places_empty():
    """And brings together what is near each other."""
    lengths = np.random.default_rng(0).lognormal(np.log(300), 0.8, 20_000).astype(int)
    rows = packed([[0]] * 20_000, 2048, np.clip(lengths, 1, 2048))
    assert rows.fill_rate > 0.98
    spread = [np.ptp(rows.sequences(number)) for number in range(len(rows))]
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


def test_packed_transform_takes_its_generator():
    rows = packed(of(3, 3, 2), 4, transform=lambda row, rng: rng.integers(1 << 62))
    with SafeSequence(rows, 2) as sequence:
        drawn = [batch.tolist() for _ in range(2) for batch in sequence]
    assert len(set(np.concatenate(drawn))) == 2 * len(rows)
    with SafeSequence(rows, 2, workers=1, use_multiprocessing=True) as other:
        assert [batch.tolist() for batch in other] == drawn[: len(other)]
