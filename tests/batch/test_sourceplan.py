"""A batch is a pure function of (source, seed, epoch, batch index)."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.alignment import ALIGNMENT_BYTES, SMALL_BYTES, aligned_empty
from adapters.transforms.transform import BatchTransform
from tests.batches import exact
from tests.plans import batch_of, epoch_of, notes_of, plan_of, samples_of

# --- transforms ---


def test_transform_gets_samples_and_batch_transform_the_collated_batch():
    plan = plan_of(
        ([1, 2, 3], [4, 5, 6]),
        transform=lambda sample: (sample[0] + 10, {"y": sample[1]}),
        batch_transform=lambda batch: (batch[0] * 2, batch[1]["y"]),
    )
    assert exact(batch_of(plan)) == exact((np.array([22, 24, 26]), np.array([4, 5, 6])))


@pytest.mark.parametrize("data", [np.ones((8, 3)), (np.ones((8, 3)), np.ones(8)), np.ones(8)])
def test_a_transform_that_writes_into_its_sample_leaves_the_arrays_alone(data):
    def spoil(sample: Any) -> Any:
        for leaf in sample if isinstance(sample, tuple) else (sample,):
            np.asarray(leaf)[...] = 7
        return sample

    before = exact(data)
    samples = plan_of(data, 3, transform=spoil)
    assert [exact(batch) for batch in epoch_of(samples)] == [exact(b) for b in epoch_of(samples)]
    assert exact(data) == before


@pytest.mark.parametrize(
    "data", [[np.ones(3) for _ in range(8)], np.array([*map(np.ones, (1, 2))], object)]
)
def test_a_transform_that_writes_into_its_sample_leaves_objects_alone(data):
    plan = plan_of(data, 1, transform=lambda sample: np.multiply(sample, 2, out=sample))
    assert exact(batch_of(plan)) == exact(batch_of(plan))


@pytest.mark.parametrize("transform", [None, lambda sample: sample])
def test_a_batch_transform_that_writes_into_its_batch_leaves_the_arrays_alone(transform):
    def spoil(batch: Any) -> Any:
        batch *= 0
        return batch

    data = np.ones((8, 3))
    epoch_of(plan_of(data, 3, transform=transform, batch_transform=spoil))
    assert data.sum() == 24


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transform": lambda sample: None}, "transform must return a sample, got None"),
        ({"transform": lambda sample, rng: None}, "transform must return a sample, got None"),
        ({"batch_transform": lambda batch: None}, "batch_transform must return a batch, got None"),
    ],
)
def test_a_transform_that_forgets_to_return_is_told_so(arguments, message):
    with pytest.raises(ValueError, match=message):
        batch_of(plan_of(list(range(8)), **arguments))


def test_a_source_that_has_none_for_a_sample_is_told_so():
    with pytest.raises(ValueError, match="source must return a sample, got None") as info:
        batch_of(plan_of([1, None, 2], transform=None))
    assert notes_of(info.value) == "in sample 1, batch 0 of epoch 0"


def test_lists_and_tensors_that_a_batch_transform_returns_become_arrays():
    plan = plan_of([1, 2], batch_transform=lambda batch: ([1.5, 2.5], batch, "a", None))
    expected = np.array([1.5, 2.5]), np.array([1, 2]), "a", None
    assert exact(batch_of(plan)) == exact(expected)


# --- exceptions carry the sample's number ---


def fail(*_: Any) -> Any:
    raise KeyError("spoilt")


class Spoilt:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> int:
        return number if number != 5 else fail()


class SpoiltAtOnce(Spoilt):
    def __getitems__(self, numbers: list[int]) -> list[int]:
        return [self[number] for number in numbers]


@pytest.mark.parametrize(
    ("data", "arguments", "notes"),
    [
        (Spoilt(), {}, "in sample 5, batch 1 of epoch 3"),
        (SpoiltAtOnce(), {}, "in samples 4, 5, 6, 7, batch 1 of epoch 3"),
        ([0] * 8, {"transform": fail}, "in sample 4, batch 1 of epoch 3"),
        ([0] * 8, {"batch_transform": fail}, "in batch_transform, batch 1 of epoch 3"),
    ],
    ids=["source", "__getitems__", "transform", "batch_transform"],
)
def test_an_exception_is_its_own_and_says_where(data, arguments, notes):
    with pytest.raises(KeyError, match="spoilt") as info:
        batch_of(plan_of(data, **arguments), 3, 1)
    assert notes_of(info.value) == notes


# --- memory of batches ---


@given(
    st.lists(st.integers(0, 5) | st.integers(0, 40), max_size=3).map(tuple),
    st.sampled_from(["u1", "i8", "f4", "c16", "M8[s]", "U3", "?", "O"]),
)
def test_memory_of_a_batch_is_as_asked_for_and_aligned_if_it_is_not_small(shape, dtype):
    array = aligned_empty(shape, np.dtype(dtype))
    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.flags.c_contiguous
    assert array.flags.writeable
    if array.nbytes > SMALL_BYTES and not array.dtype.hasobject:
        assert array.ctypes.data % ALIGNMENT_BYTES == 0


def test_batches_of_an_epoch_hold_every_sample_once():
    assert samples_of(plan_of(list(range(50)), 8, shuffle=True)) != list(range(50))
    assert sorted(samples_of(plan_of(list(range(50)), 8, shuffle=True))) == list(range(50))


def test_a_batch_transform_has_the_only_reference_to_its_batch():
    """It may resize the array in place, and a batch that it replaces is freed at once."""
    freed: list[bool] = []

    def transform(batch: Any) -> Any:
        batch.resize((len(batch), 3))
        gone = weakref.ref(batch)
        batch = batch + 1
        freed.append(gone() is None)
        return batch

    for collate in (None, np.stack):
        plan = plan_of(np.zeros((8, 2)), 4, batch_transform=transform, collate=collate)
        assert batch_of(plan).shape == (4, 3)
    assert freed == [True, True]


def test_a_users_batch_transform_may_reuse_its_buffer():
    buffer = np.zeros((4, 2))

    class Own(BatchTransform):
        def on_own_batch(self, batch: Any, rng: Any) -> Any:
            buffer[:] = batch
            return buffer

    for collate in (None, np.stack):
        data = np.arange(16.0).reshape(8, 2)
        first, second = epoch_of(plan_of(data, 4, batch_transform=Own(), collate=collate))
        assert (first[0, 0], second[0, 0]) == (0.0, 8.0)
