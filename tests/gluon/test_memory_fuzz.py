"""Whatever memory samples and batches lie in, whoever writes to it later: they stay as they were.

Random samples in all ways of `tests.memory`, and batchifies that give memory of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet.gluon.data import Dataset

from tests.fuzzing import examples
from tests.gluon.executors import opened
from tests.memory import FRAMEWORKS, WAYS, Giver, Kind

ROWS = 4
BATCHES = 6
OF_NUMPY = [way for way in WAYS if way not in FRAMEWORKS]
# MXNet knows no 64-bit integers by default.
kinds = st.builds(
    Kind,
    st.sampled_from(OF_NUMPY),
    st.sampled_from(["float32", "int32", "uint8"]),
    st.lists(st.integers(1, 40), min_size=1, max_size=2).map(tuple),
)
samples = st.one_of(kinds.map(lambda kind: (kind,)), st.tuples(kinds, kinds))


class Samples(Dataset):  # type: ignore[misc]
    """Arrays, one or more; with whose memory, the kinds say."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.givers = [Giver(kind) for kind in kinds]

    def __len__(self) -> int:
        return ROWS * BATCHES

    def __getitem__(self, number: int) -> Any:
        found = tuple(giver.give(number) for giver in self.givers)
        return found if len(found) > 1 else found[0]


class Batchify:
    """Stacks, and gives memory as the ways say."""

    def __init__(self, ways: list[str]) -> None:
        self.ways = ways
        self.givers: list[Giver] = []

    def __call__(self, batch: list[Any]) -> Any:
        columns = zip(*batch) if isinstance(batch[0], tuple) else [batch]
        return [self.given(place, np.stack(column)) for place, column in enumerate(columns)]

    def given(self, place: int, array: Any) -> Any:
        if place == len(self.givers):
            kind = Kind(self.ways[place % len(self.ways)], array.dtype.name, array.shape)
            self.givers.append(Giver(kind))
        giver = self.givers[place]
        giver.calls += 1
        return WAYS[giver.kind.way](giver, array)


def check(kinds: tuple[Kind, ...], executor: str, **options: Any) -> None:
    """Two passes, all of whose batches are kept."""
    with opened(Samples(kinds), executor, **options) as loader:
        passes = [list(loader), list(loader)]
    for batches in passes:
        assert len(batches) == BATCHES
        for number, batch in enumerate(batches):
            columns = batch if isinstance(batch, list) else [batch]
            for kind, column in zip(kinds, columns, strict=True):
                expected = [kind.content(number * ROWS + row) for row in range(ROWS)]
                found = column.asnumpy() if hasattr(column, "asnumpy") else column
                np.testing.assert_array_equal(found, np.stack(expected), f"{number} {kind}")


@settings(max_examples=examples(80))
@given(samples, st.sampled_from(["inline", "processes-2"]))
def test_samples(kinds, executor):
    check(kinds, executor)


@settings(max_examples=examples(80))
@given(
    samples,
    st.sampled_from(["inline", "processes-2"]),
    st.lists(st.sampled_from(OF_NUMPY), min_size=1),
)
def test_what_a_batchify_gives(kinds, executor, ways):
    check(kinds, executor, batchify_fn=Batchify(ways))
