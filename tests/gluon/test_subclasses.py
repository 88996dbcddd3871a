"""Subclasses of arrays, which have rows of their own kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gluon.data_sets import assert_same, theirs
from tests.gluon.executors import THREADS, opened


class Fives(np.ndarray):
    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index] * 0 + 5


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("executor", ["inline", THREADS])
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ma.masked_array(np.arange(6.0), np.arange(6) % 2),
        lambda: np.arange(6.0).reshape(3, 2).view(Fives),
    ],
    ids=["masked", "overridden"],
)
def test_a_subclass_of_an_array_is_asked_for_its_rows(make, executor):
    with opened(make(), executor, 2) as loader:
        assert_same(list(loader), theirs(make(), batch_size=2))
