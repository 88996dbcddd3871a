"""Nested structures are taken apart and put together again."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.batch.collate import as_leaf
from adapters.ownership import detached
from adapters.structure import as_array, flatten, map_leaves, private, unflatten
from tests.fuzzing import examples


class Pair(NamedTuple):
    image: Any
    label: Any


TREES = st.recursive(
    st.integers() | st.text() | st.none(),
    lambda members: (
        st.lists(members, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), members, max_size=3)
        | st.builds(Pair, members, members)
    ),
    max_leaves=12,
)


def test_flatten_is_depth_first_and_by_sorted_keys():
    tree = {"y": [1, {"b": 2, "a": None}], "x": Pair([3, 4], ("c", ()))}
    assert flatten(tree) == (
        [[3, 4], "c", 1, 2],
        {"y": (2, {"b": 3, "a": None}), "x": Pair(0, (1, ()))},
    )
    assert flatten({"y": 1, 0: 2})[0] == [1, 2]


@pytest.mark.parametrize(
    ("tree", "leaves"),
    [
        ([], []),
        ([[]], []),
        ([np.float32(1), 1j, True], [[np.float32(1), 1j, True]]),
        ([[1], [2, 3]], [[[1], [2, 3]]]),
        (["a", [1, 2]], ["a", [1, 2]]),
        ([None, 1], [1]),
    ],
)
def test_list_of_numbers_is_a_leaf(tree, leaves):
    assert flatten(tree)[0] == leaves


@given(TREES)
@settings(max_examples=examples(100))
def test_unflatten_reverts_flatten(tree):
    leaves, skeleton = flatten(tree)
    assert unflatten(skeleton, leaves) == tree

    def types(tree: Any) -> Any:
        members = tree.values() if isinstance(tree, dict) else tree
        nested = isinstance(tree, (dict, tuple))
        return type(tree), [types(member) for member in members] if nested else None

    assert types(map_leaves(lambda leaf: leaf, tree)) == types(tree)


def test_row_of_a_structured_array_is_copied():
    rows = np.zeros(3, [("x", "f8"), ("y", "i4")])
    for copied in (private(rows[1]), private((rows[1],))[0], detached(rows[1])):
        copied["x"] = 5
    assert rows["x"].tolist() == [0, 0, 0]


class OnAGpu:
    """As much of a PyTorch tensor on a GPU, with a gradient, as matters."""

    def __init__(self, value: list[float], where: str = "cuda") -> None:
        self.value, self.where = value, where

    def detach(self) -> OnAGpu:
        return OnAGpu(self.value, f"{self.where}, detached")

    def cpu(self) -> OnAGpu:
        return OnAGpu(self.value, self.where.replace("cuda", "cpu"))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        if self.where != "cpu, detached":
            raise TypeError(f"can't convert a tensor that is {self.where} to numpy")
        return np.array(self.value)


@pytest.mark.parametrize("convert", [as_array, as_leaf])
def test_tensor_is_taken_from_its_gpu(convert):
    np.testing.assert_array_equal(convert(OnAGpu([1.0, 2.0])), [1.0, 2.0])

    class Eager:
        """As much of TensorFlow's as matters: NumPy asks for it by itself."""

        def cpu(self) -> Any:
            raise AssertionError("there is nothing to be detached from")

        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            return np.array([1.0, 2.0])

    np.testing.assert_array_equal(convert(Eager()), [1.0, 2.0])


def test_file_is_no_tensor():
    file = io.BytesIO(b"1")
    assert as_leaf(file)[()] is file
    assert file.read() == b"1"


@pytest.mark.full  # To import PyTorch takes seconds.
@pytest.mark.parametrize("convert", [as_array, as_leaf])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3)])
def test_tensor_of_bfloat16_keeps_its_dtype(convert, shape):
    torch = pytest.importorskip("torch", reason="PyTorch is an optional framework")
    bfloat16 = pytest.importorskip("ml_dtypes", reason="comes with Keras and JAX").bfloat16
    array = convert(torch.full(shape, 1.5, dtype=torch.bfloat16))
    assert array.dtype == bfloat16
    np.testing.assert_array_equal(array.astype("float32"), np.full(shape, 1.5, "float32"))
