"""A state is the samples that all shards have consumed: any number of shards goes on from it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from tests.gluon.data_sets import values
from tests.gluon.executors import EXECUTORS, opened

SIZE = 101
NUMBERS = np.arange(SIZE)
ORDER = {"shuffle": True, "seed": 5}


def read(batches: Any) -> list[int]:
    return [int(number) for batch in values(batches) for number in batch]


def loader_of(shard: Any, executor: str = "inline", batch_size: int = 4, **arguments: Any) -> Any:
    return opened(NUMBERS, executor, batch_size, shard=shard, **{**ORDER, **arguments})


def saved_on(count: int, batches: int) -> tuple[list[int], Any]:
    """What all shards have consumed by then, and the state, which is the same on each."""
    consumed, states = [], []
    for index in range(count):
        with loader_of((index, count)) as loader:
            loader.set_epoch(1)
            consumed += read(itertools.islice(loader, batches))
            states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    return consumed, json.loads(json.dumps(states[0]))


@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("batch_size", [4, 3])
def test_a_run_of_eight_shards_goes_on_with_others(count, batch_size):
    consumed, state = saved_on(8, 2)
    assert state == {"epoch": 1, "samples": 64}
    rest, after = [], []
    for index in range(count):
        with loader_of((index, count), batch_size=batch_size) as loader:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            rest += read(loader)
            assert loader.state_dict() == {"epoch": 2, "samples": 0}
            after += read(loader)
    assert len({*consumed, *rest}) == len(consumed) + len(rest)
    assert len(rest) == (SIZE - 64) // count * count
    with loader_of((0, 1)) as loader:
        loader.set_epoch(2)
        assert sorted(after) == sorted(read(loader)[: SIZE // count * count])


def test_a_run_that_changes_twice_goes_on():
    consumed, state = saved_on(8, 2)
    for count, batches in ((3, 2), (2, 1)):
        for index in range(count):
            with loader_of((index, count)) as loader:
                loader.load_state_dict(state)
                consumed += read(itertools.islice(loader, batches))
                reached = loader.state_dict()
        state = reached
    assert state == {"epoch": 1, "samples": 64 + 24 + 8}
    with loader_of(None) as loader:
        loader.load_state_dict(state)
        assert sorted(consumed + read(loader)) == NUMBERS.tolist()
        assert loader.state_dict() == {"epoch": 2, "batch": 0}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_kind_of_workers_goes_on_alike(executor):
    state = {"epoch": 1, "samples": 10}
    with loader_of((1, 2)) as loader:
        loader.load_state_dict(state)
        expected = [read(loader), read(loader)]
    with loader_of((1, 2), executor) as loader:
        list(loader)
        loader.load_state_dict(state)
        assert [read(loader), read(loader)] == expected


def test_what_leaves_no_batch_is_the_next_epoch():
    with loader_of((0, 3), last_batch="discard") as loader:
        loader.load_state_dict({"epoch": 4, "samples": 90})
        assert loader.state_dict() == {"epoch": 5, "samples": 0}
        assert len(read(loader)) == 32


def test_a_state_that_counts_batches_is_one_of_equal_shards_and_said_to_be(caplog):
    with loader_of((1, 2)) as loader:
        expected = read(loader)
        loader.load_state_dict({"epoch": 0, "batch": 3})
        assert loader.state_dict() == {"epoch": 0, "samples": 24}
        assert read(loader) == expected[12:]
    (record,) = caplog.records
    assert "counts batches, taken to be of 8 samples" in record.getMessage()


def test_an_order_that_depends_on_the_batch_is_counted_in_batches_of_a_size():
    lengths = np.arange(SIZE) % 7
    with loader_of((0, 2), bucket_by=lengths) as loader:
        next(iter(loader))
        state = loader.state_dict()
        assert state == {"epoch": 0, "batch of 8": 1}
    with loader_of((0, 4), batch_size=2, bucket_by=lengths) as loader:
        expected = read(loader)[2:]
        loader.load_state_dict(state)
        assert read(loader) == expected
        assert loader.replay(0, 1, state=state).batch.asnumpy().tolist() == expected[:2]
        with pytest.raises(ValueError, match="state must be of epoch 1"):
            loader.replay(1, 1, state=state)
    with (
        loader_of((0, 3), bucket_by=lengths) as loader,
        pytest.raises(ValueError, match="batches of 12 samples over all shards"),
    ):
        loader.load_state_dict(state)


def test_what_leaves_no_batch_of_buckets_is_the_next_epoch():
    """101 samples are 9 batches of 12 of 3 shards; for 6 shards, the last one has no sample."""
    lengths = np.arange(SIZE) % 7
    with loader_of((0, 3), bucket_by=lengths) as loader:
        read(itertools.islice(loader, 8))
        state = loader.state_dict()
        assert state == {"epoch": 0, "batch of 12": 8}
    with loader_of((0, 6), batch_size=2, bucket_by=lengths) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == {"epoch": 1, "batch": 0}
        assert len(read(loader)) == SIZE // 6
        with pytest.raises(ValueError, match=r"batch of 12 in range\(9\), got .*'batch of 12': 9"):
            loader.load_state_dict({"epoch": 0, "batch of 12": 9})
        with pytest.raises(ValueError, match=r"batch in range\(8\), got .*'batch': 8"):
            loader.load_state_dict({"epoch": 0, "batch": 8})


def test_what_rolls_over_is_counted_in_batches():
    with loader_of((1, 2), last_batch="rollover") as loader:
        next(iter(loader))
        assert loader.state_dict() == {"epoch": 0, "batch": 1}
        with pytest.raises(ValueError, match="state must be what state_dict"):
            loader.load_state_dict({"epoch": 0, "samples": 8})


@pytest.mark.parametrize("state", [{"epoch": 0, "samples": SIZE}, {"epoch": 0, "samples": -1}])
def test_a_wrong_state_is_refused(state):
    message = r"samples in range\(101\), got .*: it belongs to a loader of another data set"
    with loader_of((0, 2)) as loader, pytest.raises(ValueError, match=message):
        loader.load_state_dict(state)


def test_a_state_that_rolls_over_is_not_said_to_be_another(caplog):
    with loader_of((0, 2), last_batch="rollover") as loader:
        next(iter(loader))
        state = loader.state_dict()
        loader.load_state_dict(state)
        assert loader.state_dict() == state == {"epoch": 0, "batch": 1}
    (record,) = caplog.records
    assert record.getMessage().endswith("right only if the run that it comes from had the same")
