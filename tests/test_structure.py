"""Rows and tensors in nested structures become arrays of our own."""

from __future__ import annotations

import array
from collections import ChainMap, UserDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from adapters.batch.collate import as_leaf
from adapters.ownership import detached
from adapters.structure import as_array, private


def test_row_of_a_structured_array_is_copied():
    rows = np.zeros(3, [("x", "f8"), ("y", "i4")])
    for copied in (private(rows[1]), private((rows[1],))[0], detached(rows[1])):
        copied["x"] = 5
    assert rows["x"].tolist() == [0, 0, 0]


@dataclass(frozen=True)
class Sample:
    x: np.ndarray
    y: int


def test_arrays_of_a_dataclass_are_copied():
    sample = Sample(np.zeros(2), 1)
    private(sample).x[0] = 5
    assert (sample.x.tolist(), private(sample).y) == ([0, 0], 1)


def test_buffer_that_may_be_filled_again_is_copied():
    buffer = array.array("f", [1, 2])
    copies = private((buffer, {"view": memoryview(buffer)}))
    buffer[0] = 3
    assert (copies[0].tolist(), copies[1]["view"].tolist()) == ([1, 2], [1, 2])


@pytest.mark.parametrize("kind", [UserDict, ChainMap, dict])
def test_mapping_is_copied_with_its_arrays(kind):
    sample = kind({"x": np.zeros(2)})
    copied = private(sample)
    copied["x"][0] = copied["y"] = 5
    assert (type(copied), list(sample), sample["x"].tolist()) == (kind, ["x"], [0, 0])


class OnAGpu:
    """As much of a PyTorch tensor on a GPU, with a gradient, as matters."""

    dtype = detach = cpu = __array__ = None

    def __init__(self, value: list[float]) -> None:
        self.value = value

    def numpy(self, *, force: bool) -> Any:
        assert force  # Else, PyTorch raises an error.
        return np.array(self.value)


@pytest.mark.parametrize("convert", [as_array, as_leaf])
def test_tensor_is_taken_from_its_gpu(convert):
    np.testing.assert_array_equal(convert(OnAGpu([1.0, 2.0])), [1.0, 2.0])
