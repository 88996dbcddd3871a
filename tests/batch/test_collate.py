"""Samples become a batch: as ``np.stack`` has it, or an error that names the sample."""

from __future__ import annotations

import itertools
from collections import ChainMap, UserDict
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from adapters import concatenate, packed, pad
from adapters.batch.collate import collate
from adapters.sources import ArraySource
from adapters.structure import flatten
from tests.batches import exact


class Pair(NamedTuple):
    image: Any
    label: Any


def batch_of(*samples: Any) -> Any:
    """The samples, numbered from 10, as a batch."""
    return collate(samples, np.arange(10, 10 + len(samples)), np.empty)


def objects(*items: Any) -> Any:
    array = np.empty(len(items), object)
    array[:] = items
    return array


@pytest.mark.parametrize(
    ("samples", "batch"),
    [
        ([1j, 2j], np.array([1j, 2j])),
        ([np.float32(1), np.float32(2)], np.array([1, 2], np.float32)),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        ([[[1, 2]], [[3, 4]]], np.array([[[1, 2]], [[3, 4]]])),
        ([(1, 2.5), (3, 4.5)], (np.array([1, 3]), np.array([2.5, 4.5]))),
        (
            [{"x": 1, "y": (2,)}, {"x": 3, "y": (4,)}],
            {"x": np.array([1, 3]), "y": (np.array([2, 4]),)},
        ),
        ([Pair(1, 2), Pair(3, 4)], Pair(np.array([1, 3]), np.array([2, 4]))),
        ([(1, None), (2, None)], (np.array([1, 2]), None)),
        ([np.datetime64("2020-01-01")] * 2, np.array(["2020-01-01"] * 2, "M8[D]")),
    ],
)
def test_samples_become_a_batch(samples, batch):
    assert exact(batch_of(*samples)) == exact(batch)


@pytest.mark.parametrize(
    ("samples", "batch"),
    [
        ([("a", 1), ("", 2), ("bc", 3)], (objects("a", "", "bc"), np.array([1, 2, 3]))),
        ([["a", [1, 2]], ["b", [3, 4]]], (objects("a", "b"), np.array([[1, 2], [3, 4]]))),
        ([b"a\0", b"\0", b""], objects(b"a\0", b"\0", b"")),
        ([{1}, {2, 3}], objects({1}, {2, 3})),
        ([2**70, 1], objects(2**70, 1)),
        ([1, "a"], objects(1, "a")),
    ],
)
def test_objects_become_an_array_of_these_objects(samples, batch):
    assert exact(batch_of(*samples)) == exact(batch)


DTYPES = [np.dtype(code) for code in "?bBhHiIlLefdFD"]


def test_two_dtypes_in_one_place_are_promoted_as_by_stack():
    for first, second in itertools.product(DTYPES, repeat=2):
        samples = [np.array([1, 0], first), np.array([0, 1], second)]
        assert exact(batch_of(*samples)) == exact(np.stack(samples)), (first, second)


@given(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: npst.array_shapes(min_dims=0, max_dims=3, min_side=0).flatmap(
            lambda shape: st.lists(npst.arrays(dtype, shape), min_size=1, max_size=4)
        )
    )
)
def test_arrays_become_what_stack_makes_of_them(samples):
    assert exact(batch_of(*samples)) == exact(np.stack(samples))


def test_python_numbers_are_promoted_as_numpy_does():
    """Most are written as they are; these come in every order, and some widen the column."""
    numbers = [True, 0, -1, 2**62 + 1, -(2**63), 2**63, 2**64 - 1, 0.5, -0.0, float("nan")]
    for chosen in itertools.product(numbers, repeat=3):
        leaves = [np.asarray(number) for number in chosen]
        dtype = np.result_type(*(leaf.dtype for leaf in leaves))
        expected = np.array([leaf.astype(dtype) for leaf in leaves])
        found = batch_of(*((number, True) for number in chosen))
        assert exact(found) == exact((expected, np.ones(3, bool))), chosen


def test_arrays_in_any_memory_order_are_read_right():
    samples = [np.arange(6).reshape(2, 3).T, np.arange(12).reshape(3, 4)[:, ::2]]
    assert exact(batch_of(*samples)) == exact(np.stack(samples))


def test_the_batch_does_not_alias_a_sample():
    sample = np.zeros(3)
    batch_of(sample, sample)[:] = 1
    assert sample.tolist() == [0, 0, 0]


@pytest.mark.full  # To import PyTorch takes seconds.
def test_arrays_of_other_frameworks_are_arrays():
    torch = pytest.importorskip("torch", reason="PyTorch is one of the optional frameworks")
    jnp = pytest.importorskip("jax.numpy", reason="JAX is one of the optional frameworks")
    samples = [(torch.ones(2), torch.tensor(3), jnp.ones(2, jnp.float32)) for _ in range(2)]
    ones = np.ones((2, 2), np.float32)
    assert exact(batch_of(*samples)) == exact((ones, np.array([3, 3]), ones))
    weights = torch.ones(2, 2, requires_grad=True), torch.ones(2, dtype=torch.bfloat16)
    assert ArraySource(weights)[0][0].tolist() == [1, 1]
    assert packed([weights[1]], 2)[0]["tokens"].tolist() == [1, 1]
    assert concatenate([np.zeros(1), [weights[1][0]]])[1] == 1
    conjugate = torch.full((2,), 1j).conj()  # Lazily.
    assert batch_of(conjugate, conjugate).tolist() == [[-1j, -1j]] * 2


def test_tensor_of_strings_is_an_array():
    class Strings:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array(["a", "b"], object)

    assert batch_of(Strings(), Strings()).tolist() == [["a", "b"]] * 2


# --- samples that don't fit together ---


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([np.zeros(3)] * 2 + [np.zeros(4)], r"sample 12 has shape \(4,\), sample 10 has \(3,\)"),
        ([np.zeros(3), np.zeros((3, 1))], r"sample 11 has shape \(3, 1\), sample 10 has \(3,\)"),
        ([0, np.zeros(3)], r"sample 11 has shape \(3,\), sample 10 has \(\)"),
        ([np.zeros(0), np.zeros(1)], r"sample 11 has shape \(1,\), sample 10 has \(0,\)"),
        (
            [(1, np.zeros(3)), (1, np.zeros(2))],
            r"sample 11 has shape \(2,\) \(array 1 of 2\), sample 10 has \(3,\)",
        ),
        ([(1, 2), (1, 2, 3)], r"sample 11 is \(int64\(\), int64\(\), int64\(\)\), sample 10 is"),
        ([(1, 2), 1], r"sample 11 is int64\(\), sample 10 is \(int64\(\), int64\(\)\)"),
        ([{1: 1}, {"1": 1}], r"sample 11 is \{'1': int64\(\)\}, sample 10 is \{1: int64"),
        (
            [(1, None), (1, 2)],
            r"sample 11 is \(int64\(\), int64\(\)\), sample 10 is \(int64\(\)",
        ),
        ([(None,), (None,)], "sample 10 must hold at least one array or number, got none"),
        ([()], "sample 10 must hold at least one array or number, got none"),
    ],
)
def test_samples_that_do_not_fit_are_named_with_what_they_are(samples, message):
    with pytest.raises(ValueError, match=message):
        batch_of(*samples)


@pytest.mark.parametrize(
    ("samples", "error"),
    [
        ([[[1, 2], [3, 4]], [[1, 2], [3]]], ValueError),
        ([1.5, np.datetime64("2020")], TypeError),
    ],
    ids=["ragged lists of numbers", "dtypes without a common one"],
)
def test_a_sample_that_numpy_refuses_is_named(samples, error):
    with pytest.raises(error) as info:
        batch_of(*samples)
    assert "sample 11" in "\n".join([str(info.value), *getattr(info.value, "__notes__", ())])


def test_nested_samples_become_what_stack_makes_of_their_leaves():
    samples = [({"b": np.arange(3) + n, "a": float(n)}, {"y": (n, None)}) for n in range(4)] + [
        ({"a": 9, "b": np.arange(3) / 2}, {"y": (np.int8(7), None)})
    ]
    features, targets = batch_of(*samples)
    assert ([*features], targets["y"][1]) == (["b", "a"], None)
    for kind in ("a", "b"):
        assert exact(features[kind]) == exact(np.stack([x[kind] for x, _ in samples]))
    assert targets["y"][0].tolist() == [0, 1, 2, 3, 7]
    with pytest.raises(ValueError, match="one structure: sample 1"):
        batch_of(samples[0], ({"a": 1.0, "c": np.arange(3)}, {"y": (1, None)}))


@pytest.mark.parametrize("kind", [UserDict, ChainMap, MappingProxyType])
@pytest.mark.parametrize("made", [lambda *samples: batch_of(*samples), lambda *s: pad()(list(s))])
def test_mappings_of_other_kinds_are_dicts(kind, made):
    batch = made(kind({"x": np.arange(2), "y": 2}), {"x": np.ones(2, int), "y": 4})
    assert exact(batch) == exact({"x": np.array([[0, 1], [1, 1]]), "y": np.array([2, 4])})
    assert exact(flatten(kind({"b": 1, "a": (2, None)}))) == exact(
        flatten({"b": 1, "a": (2, None)})
    )
