"""What is guaranteed of batches holds for parts, and for sources put together.

Both front ends are in tests/keras/test_selected.py and tests/gluon/test_selected.py.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from adapters import concatenate, split
from tests.batches import exact
from tests.engine.executors import opened, read
from tests.plans import epoch_of, plan_of
from tests.sources.every_kind import KINDS, SIZE, X, Y

EXECUTORS = [
    "inline",
    "threads-2",
    pytest.param("processes-1", marks=pytest.mark.full),
    "processes-2",
]
every_executor = pytest.mark.parametrize("executor", EXECUTORS)


def _boxes(folder):
    return KINDS["random boxes"](folder)


# Of each way that batches are made in.
SOURCES = {
    "a part of arrays": lambda _: split((X, Y), [0.7], stratify=Y % 3)[0],
    "a part of nested arrays": lambda folder: KINDS["nested arrays"](folder).select(range(9)[::-1]),
    "a part of a list": lambda _: split(list(range(SIZE)), [0.6])[0],
    "a part of a data set": lambda folder: KINDS["a data set"](folder).select([3, 3, 5, 7, 1, 2]),
    "a part of records": lambda folder: split(_boxes(folder), [0.6])[0],
    "arrays after arrays": lambda _: concatenate([(X, Y), (X[:3], Y[:3])]),
    "a part of both": lambda _: concatenate([(X, Y), [(X[0], Y[0])]]).select(range(3, 20)),
    "random boxes twice": lambda folder: concatenate([_boxes(folder)] * 2).select(
        [*range(0, 2 * SIZE, 3), 0, 0]
    ),
}
every_source = pytest.mark.parametrize("name", SOURCES)


@pytest.fixture
def source(name, tmp_path):
    return SOURCES[name](tmp_path)


def noisy(sample, rng):
    """Depends on the sample's generator."""
    return rng.integers(1 << 30), np.asarray(sample[0] if isinstance(sample, tuple) else 0).sum()


@every_executor
@every_source
def test_batches_are_the_same_for_all_workers(source, executor):
    plan = plan_of(source, shuffle=True, seed=5)
    expected = [exact(batch) for epoch in range(2) for batch in epoch_of(plan, epoch)]
    with opened(source, executor, shuffle=True, seed=5) as engine:
        assert [exact(batch) for batch in read(engine, len(expected))] == expected


@every_executor
@every_source
def test_pass_goes_on_anywhere(source, executor):
    arguments = {"shuffle": True, "seed": 5, "transform": noisy}
    expected = [exact(batch) for batch in epoch_of(plan_of(source, **arguments), 3)][1:]
    with opened(source, executor, **arguments) as engine:
        assert [exact(batch) for batch in read(engine, len(expected), 3, 1)] == expected


@every_source
def test_shards_have_every_sample_once(source):
    """By what a transform draws, which is the sample's own."""
    arguments = {"shuffle": True, "seed": 5, "transform": lambda sample, rng: rng.integers(1 << 60)}
    whole = np.concatenate(epoch_of(plan_of(source, **arguments), 1)).tolist()
    shards = [
        np.concatenate(epoch_of(plan_of(source, shard=(part, 2), **arguments), 1)).tolist()
        for part in range(2)
    ]
    assert len(shards[0]) == len(shards[1]) == len(whole) // 2
    assert Counter(shards[0] + shards[1]) <= Counter(whole)
    assert len(set(whole)) == len(source)


def test_users_code_is_found_in_a_part():
    """What a data set draws from numpy.random is seeded for it, see ``users_code``."""
    data = [1, 2, 3]
    whole = concatenate([data, np.arange(3), data])
    assert list(whole.users_code) == [data, data]
    assert list(whole.select([0]).users_code) == [data, data]
