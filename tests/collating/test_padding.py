"""``pad``: what a batch of samples of unequal lengths becomes."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import Buckets, SafeSequence, pad
from tests.batches import exact


def of(*lengths: int, dtype: str = "i4") -> list[np.ndarray]:
    return [np.arange(1, length + 1, dtype=dtype) for length in lengths]


@given(
    st.lists(st.lists(st.integers(-9, 9), max_size=9), min_size=1, max_size=6),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 7)),
)
def test_rows_are_the_samples_and_then_the_value(samples, multiple, most):
    samples = [np.array(sample, np.int16) for sample in samples]
    batch, lengths = pad(7, multiple, most, lengths=True)(samples)
    longest = -(-max(map(len, samples)) // multiple) * multiple
    longest = longest if most is None else min(longest, most)
    assert batch.shape == (len(samples), longest)
    assert batch.dtype == np.int16
    for row, sample, length in zip(batch, samples, lengths):
        assert length == min(len(sample), longest)
        assert row.tolist() == [*sample[:longest].tolist(), *[7] * (longest - length)]


def test_lists_of_numbers_are_arrays_an_empty_one_of_any_dtype():
    assert exact(pad()([[], [1, 2]])) == exact(np.array([[0, 0], [1, 2]]))
    assert exact(pad()([[[1.5, 2.0]], []][:1])) == exact(np.array([[[1.5, 2.0]]]))
    assert pad()([[], []]).shape == (2, 0)


def test_numbers_of_several_dtypes_are_promoted_whatever_their_order():
    samples = [np.ones(2, "i4"), np.ones(1, "f4"), np.ones(3, "i8")]
    assert pad()(samples).dtype == pad()(samples[::-1]).dtype == np.float64


def test_every_member_has_a_value_of_its_own():
    batch = pad({"tokens": 0, "labels": -100, "image": None})(
        [
            {"tokens": [1], "labels": [5], "image": np.ones((2, 2))},
            {"tokens": [1, 2], "labels": [5, 6], "image": np.ones((2, 2))},
        ]
    )
    assert batch["tokens"].tolist() == [[1, 0], [1, 2]]
    assert batch["labels"].tolist() == [[5, -100], [5, 6]]
    assert batch["image"].shape == (2, 2, 2)


def test_structures_stay_what_they_are():
    named = namedtuple("named", "tokens label")
    batch = pad()([named([1], (0, "a")), named([1, 2], (1, "b"))])
    assert type(batch) is named
    assert batch.label[0].tolist() == [0, 1]
    assert batch.label[1].tolist() == ["a", "b"]
    assert pad()([([1], None), ([2], None)])[1] is None


@pytest.mark.parametrize("axis", [(0, 1), (1, 0)])
def test_pictures_of_several_sizes_get_a_margin(axis):
    pictures = [np.full((2, 3, 1), 9, "u1"), np.full((4, 1, 1), 8, "u1")]
    batch = pad(1, 2, axis=axis)(pictures)
    assert batch.shape == (2, 4, 4, 1)
    assert batch[0, :2, :3].tolist() == pictures[0].tolist()
    assert batch[1, :, :1].tolist() == pictures[1].tolist()
    assert batch.sum() == 9 * 6 + 8 * 4 + (32 - 10)


def test_another_axis_than_the_first():
    batch = pad(axis=1, max_length=2)([np.ones((2, 1)), np.ones((2, 5))])
    assert batch.tolist() == [[[1, 0], [1, 0]], [[1, 1], [1, 1]]]


def test_lengths_are_those_of_the_first_padded_member_and_stand_beside_it():
    (tokens, lengths), label = pad(lengths=True)([([1], 3), ([1, 2], 4)])
    assert (tokens.shape, lengths.tolist(), lengths.dtype) == ((2, 2), [1, 2], np.int32)
    assert label.tolist() == [3, 4]
    batch = pad(lengths=True)([{"n": 1, "a": [1], "b": [1, 2, 3]}, {"n": 1, "a": [1, 2], "b": [1]}])
    assert list(batch) == ["n", "a", "b", "a_length"]
    assert batch["a_length"].tolist() == [1, 2]


def test_the_batch_is_in_new_memory_and_the_samples_are_left_alone():
    samples = of(3, 3)
    batch = pad()(samples)
    batch[:] = 0
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
        (ValueError, "along axis 0 only", [np.ones(2), np.ones((2, 1))], {}),
        (
            ValueError,
            r"sample\[1\] must have equal shapes",
            [(of(1)[0], of(1)[0]), (of(1)[0], of(2)[0])],
            {"value": (0, None)},
        ),
        (TypeError, "a number that uint8 holds", of(1, 2, dtype="u1"), {"value": -100}),
        (TypeError, "a number that int32 holds .* got nan", of(1, 2), {"value": float("nan")}),
        (TypeError, "a number that int32 holds .* got 0.5", of(1, 2), {"value": 0.5}),
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
def test_what_fits_no_batch_is_refused(error, message, samples, arguments):
    with pytest.raises(error, match=message):
        pad(**arguments)(samples)


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "to_multiple_of must be >= 1, got 0", {"to_multiple_of": 0}),
        (ValueError, "max_length must be >= 1 or None, got 0", {"max_length": 0}),
        (TypeError, "max_length must be an integer >= 1 or None, got 2.5", {"max_length": 2.5}),
        (ValueError, "axis must be >= 0, each one once, got -1", {"axis": -1}),
        (ValueError, "axis must be >= 0, each one once, got \\(1, 1\\)", {"axis": (1, 1)}),
        (TypeError, "axis must be an integer or a tuple of them, got 'x'", {"axis": "x"}),
        (TypeError, "lengths must be True or False, got 3", {"lengths": 3}),
    ],
)
def test_wrong_arguments_are_refused(error, message, arguments):
    with pytest.raises(error, match=message):
        pad(**arguments)


# --- the bounds of buckets ---


def of_lengths(count: int = 2000, sigma: float = 0.25) -> tuple[list[Any], list[int]]:
    """Samples of lognormal lengths, ``(numbers, label)``, and the lengths."""
    lengths = np.random.default_rng(3).lognormal(4, sigma, count).astype(int) + 1
    return [(np.full(n, n), n) for n in lengths.tolist()], lengths.tolist()


def test_batches_of_buckets_are_padded_to_their_bounds():
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


def test_bounds_are_rounded_up_and_cut_off():
    samples, lengths = of_lengths(200)
    bounds = np.array(Buckets(lengths, shapes=3).bounds)
    options = {"shuffle": True, "workers": 0, "bucket_by": Buckets(lengths, shapes=3)}
    with SafeSequence(samples, 8, collate=pad(0, 16, 80), **options) as sequence:
        shapes = {rows.shape[1] for rows, _ in sequence}
    assert shapes == set(np.minimum(-(-bounds // 16) * 16, 80).tolist())


@pytest.mark.parametrize("axis", [0, (0, 1)])
def test_lengths_that_are_none_of_an_axis_change_nothing(axis):
    """Seconds, say; or of which axis of several nobody knows."""
    samples = [np.ones((n, 2)) for n in (3, 4, 9, 10)]
    lengths = [3.5, 4.5, 9.5, 10.5] if axis == 0 else [3, 10, 10, 10]
    options = {"collate": pad(axis=axis), "bucket_by": Buckets(lengths, shapes=2), "workers": 0}
    with SafeSequence(samples, 1, **options) as sequence:
        assert sorted(len(batch[0]) for batch in sequence) == [3, 4, 9, 10]


def test_what_is_longer_than_all_bounds_has_its_own_length():
    samples = [np.ones(n) for n in (3, 4, 9, 10)]
    options = {"collate": pad(), "bucket_by": [1, 1, 2, 2], "workers": 0}
    with SafeSequence(samples, 1, **options) as sequence:
        assert sorted(len(batch[0]) for batch in sequence) == [3, 4, 9, 10]


def test_one_collate_serves_several_sequences():
    """It isn't changed by one that has buckets."""
    samples, collate = [np.ones(n) for n in (3, 4, 9, 10)], pad()
    lengths = Buckets([3, 4, 9, 10], shapes=1)
    with (
        SafeSequence(samples, 1, collate=collate, bucket_by=lengths, workers=0) as bound,
        SafeSequence(samples, 1, collate=collate, workers=0) as plain,
    ):
        assert [len(batch[0]) for batch in bound] == [10] * 4
        assert [len(batch[0]) for batch in plain] == [3, 4, 9, 10]


def shapes_of(lengths: list[int], batch_size: int, **options: Any) -> list[tuple[Any, Any]]:
    """Of batches of two buckets, of samples ``(tokens, label of three numbers)``."""
    samples = [(np.arange(n), np.eye(3)[0]) for n in lengths]
    given: dict[str, Any] = {"bucket_by": Buckets(lengths, shapes=2), "workers": 0, **options}
    with SafeSequence(samples, batch_size, collate=pad(), **given) as sequence:
        return [(tokens.shape[1], label.shape[1]) for tokens, label in sequence]


def test_members_of_a_fixed_size_keep_it_beside_buckets():
    assert shapes_of([3, 4, 4, 9, 10, 10, 7, 8], 2) == [(4, 3), (10, 3), (10, 3), (10, 3)]


@pytest.mark.parametrize("batch_size", [1, 2])
def test_also_where_a_batch_has_samples_of_that_length_alone(batch_size):
    """The tokens go to the bound all the same, so that there are few shapes."""
    lengths = [3, 3, 4, 4, 9, 9, 10, 10]
    count = 4 // batch_size
    assert shapes_of(lengths, batch_size) == [(4, 3)] * count + [(10, 3)] * count
    other = {"transform": lambda sample: (sample[0], sample[1]), "on_error": "skip"}
    assert shapes_of(lengths, batch_size, **other) == [(4, 3)] * count + [(10, 3)] * count


def test_what_has_other_lengths_than_those_of_the_buckets_is_padded_to_its_longest():
    lengths = [3, 4, 9, 10]
    samples = [{"tokens": np.ones(n), "targets": np.ones(2 * n)} for n in lengths]
    options = {"bucket_by": Buckets(lengths, shapes=1), "workers": 0}
    with SafeSequence(samples, 2, collate=pad(), **options) as sequence:
        shapes = [(b["tokens"].shape[1], b["targets"].shape[1]) for b in sequence]
    assert shapes == [(10, 8), (10, 20)]


def test_lengths_are_compared_as_they_are_cut():
    lengths = [3, 3, 4, 4, 90, 95]
    samples = [np.ones(n) for n in lengths]
    options = {"bucket_by": Buckets(np.minimum(lengths, 80), shapes=2), "workers": 0}
    with SafeSequence(samples, 2, collate=pad(max_length=80), **options) as sequence:
        assert [batch.shape[1] for batch in sequence] == [4, 4, 80]
