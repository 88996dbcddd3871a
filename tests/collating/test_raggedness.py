"""``ragged``: samples one behind the other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import ragged


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), min_size=1, max_size=6), st.integers(1, 5))
def test_splits_give_the_samples_back(samples, multiple):
    values, splits = ragged(-1, multiple)([np.array(sample, np.int32) for sample in samples])
    assert [values[a:b].tolist() for a, b in itertools.pairwise(splits)] == samples
    assert values[splits[-1] :].tolist() == [-1] * (-splits[-1] % multiple)
    assert (values.dtype, splits.dtype) == (np.int32, np.int64)


def test_members_without_rows_are_stacked():
    batch = ragged({"tokens": 0, "vector": None, "label": 0})(
        [
            {"tokens": [1], "vector": np.ones(3), "label": 1},
            {"tokens": [2, 3], "vector": np.ones(3), "label": 0},
        ]
    )
    assert batch["tokens"][0].tolist() == [1, 2, 3]
    assert (batch["vector"].shape, batch["label"].tolist()) == ((2, 3), [1, 0])


def test_what_differs_in_another_axis_is_refused():
    with pytest.raises(ValueError, match="along axis 0 only"):
        ragged()([np.ones((2, 2)), np.ones((2, 3))])
