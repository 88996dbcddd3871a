"""A state is the samples that all shards have consumed: any number of shards goes on from it."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest

from adapters import Blocks, SafeSequence
from adapters.keras import internals
from tests.keras.py_datasets import Numbered
from tests.keras.recording import (
    KINDS_OF_WORKERS,
    AfterBatch,
    built_recorder,
    samples_of,
    sequence_of,
)

pytestmark = [
    pytest.mark.one_keras,
    pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning"),
]

SIZE = 101
X = np.arange(SIZE)
ORDER = {"shuffle": True, "seed": 5}


def opened(shard: Any, batch_size: int = 4, **options: Any) -> SafeSequence:
    return SafeSequence(X, batch_size, shard=shard, **{"workers": 0, **ORDER, **options})


def read(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch]


def saved_on(count: int, batches: int, epoch: int = 1, **options: Any) -> tuple[list[int], Any]:
    """What all shards have consumed by then, and the state, which is the same on each."""
    consumed, states = [], []
    for index in range(count):
        with opened((index, count), **options) as sequence:
            sequence.set_epoch(epoch)
            consumed += read(itertools.islice(sequence, batches))
            states.append(sequence.state_dict())
    assert all(state == states[0] for state in states)
    return consumed, json.loads(json.dumps(states[0]))


@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("batch_size", [4, 3])
def test_a_run_of_eight_shards_goes_on_with_others(count, batch_size):
    consumed, state = saved_on(8, 2)
    assert state == {"epoch": 1, "samples": 64}
    rest, after = [], []
    for index in range(count):
        with opened((index, count), batch_size) as sequence:
            sequence.load_state_dict(state)
            assert sequence.state_dict() == state
            rest += read(sequence)
            assert sequence.state_dict() == {"epoch": 2, "samples": 0}
            after += read(sequence)
    # Each remaining sample once, up to equal lengths of the shards; then whole epochs.
    assert len({*consumed, *rest}) == len(consumed) + len(rest)
    assert len(rest) == (SIZE - 64) // count * count
    with opened((0, 1), batch_size) as sequence:
        sequence.set_epoch(2)
        assert sorted(after) == sorted(read(sequence)[: SIZE // count * count])


@pytest.mark.parametrize(
    "order",
    [
        {"shuffle": Blocks(64, 2)},
        {"weights": np.arange(1, SIZE + 1)},
        {"shuffle": False},
        {"shuffle": False, "bucket_by": X % 7},
    ],
)
def test_other_orders_go_on_with_other_shards(order):
    with opened((0, 1), **order) as sequence:
        expected = read(sequence)
    rest = []
    for index in range(3):
        with opened((index, 3), 5, **order) as sequence:
            sequence.load_state_dict({"epoch": 0, "samples": 20})
            rest.append(read(sequence))
    assert np.stack(rest, axis=1).ravel().tolist() == expected[20:][: 81 // 3 * 3]


def test_an_order_that_depends_on_the_batch_is_counted_in_batches_of_a_size():
    buckets = {"bucket_by": X % 7}
    with opened((0, 2), **buckets) as sequence:
        assert sequence.state_dict() == {"epoch": 0, "batch": 0}
        next(iter(sequence))
        state = sequence.state_dict()
        assert state == {"epoch": 0, "batch of 8": 1}
        sequence.load_state_dict(state)
        assert sequence.state_dict() == state
        with pytest.raises(ValueError, match="state must be what state_dict"):
            sequence.load_state_dict({"epoch": 0, "samples": 8})
    for shard, batch_size in (((0, 4), 2), (None, 8)):
        with opened(shard, batch_size, **buckets) as sequence:
            expected = read(sequence)[batch_size:]
            sequence.load_state_dict(state)
            assert read(sequence) == expected
    for shard, batch_size in (((0, 3), 4), ((0, 2), 8), (None, 4)):
        with (
            opened(shard, batch_size, **buckets) as sequence,
            pytest.raises(ValueError, match="'batch of 8': 1"),
        ):
            sequence.load_state_dict(state)


def test_what_leaves_no_batch_of_buckets_is_the_next_epoch():
    x = np.arange(16)
    order = {"shuffle": True, "bucket_by": 1 + x % 5}
    with SafeSequence(x, 4, shard=(0, 3), **order) as sequence:
        next(iter(sequence))
        state = sequence.state_dict()
        assert state == {"epoch": 0, "batch of 12": 1}
    with SafeSequence(x, 2, shard=(0, 6), **order) as sequence:
        sequence.set_epoch(1)
        expected = read(sequence)
        sequence.load_state_dict(state)
        assert sequence.state_dict() == {"epoch": 1, "batch": 0}
        assert read(sequence) == expected
        with pytest.raises(ValueError, match=r"batch of 12 in range\(2\), got .*'batch of 12': 2"):
            sequence.load_state_dict({"epoch": 0, "batch of 12": 2})
        with pytest.raises(ValueError, match=r"batch in range\(1\), got .*'batch': 1"):
            sequence.load_state_dict({"epoch": 0, "batch": 1})


def test_a_run_that_changes_twice_goes_on():
    consumed, state = saved_on(8, 2)
    for count, batches in ((3, 2), (2, 1)):
        for index in range(count):
            with opened((index, count)) as sequence:
                sequence.load_state_dict(state)
                consumed += read(itertools.islice(sequence, batches))
                reached = sequence.state_dict()
        state = reached
    assert state == {"epoch": 1, "samples": 64 + 24 + 8}
    with opened(None) as sequence:
        sequence.load_state_dict(state)
        assert sorted(consumed + read(sequence)) == X.tolist()


def test_with_equal_shards_it_goes_on_bit_by_bit():
    def noisy(batch: Any, rng: np.random.Generator) -> Any:
        return batch + rng.random(len(batch))

    _, state = saved_on(3, 4)
    with opened((1, 3), batch_transform=noisy) as sequence:
        sequence.set_epoch(1)
        expected = [batch.tolist() for batch in sequence]
        sequence.load_state_dict(state)
        assert [batch.tolist() for batch in sequence] == expected[4:]


def test_a_process_alone_counts_samples_if_it_was_asked_to_shard():
    with opened("auto") as sequence:
        next(iter(sequence))
        assert sequence.state_dict() == {"epoch": 0, "samples": 4}
    with opened(None) as sequence:
        next(iter(sequence))
        assert sequence.state_dict() == {"epoch": 0, "batch": 1}


def test_a_sequence_without_a_shard_goes_on_with_samples_and_then_counts_batches():
    with opened(None) as sequence:
        sequence.load_state_dict({"epoch": 0, "samples": 50})
        batches = iter(sequence)
        next(batches)
        assert sequence.state_dict() == {"epoch": 0, "samples": 54}
        list(batches)
        assert sequence.state_dict() == {"epoch": 1, "batch": 0}


def test_what_leaves_no_batch_is_the_next_epoch():
    with opened((0, 3), drop_remainder=True) as sequence:
        sequence.load_state_dict({"epoch": 4, "samples": 90})
        assert sequence.state_dict() == {"epoch": 5, "samples": 0}


@pytest.mark.parametrize("options", KINDS_OF_WORKERS)
def test_every_kind_of_workers_goes_on_alike(options):
    state = {"epoch": 1, "samples": 10}
    with opened((1, 2)) as sequence:
        sequence.load_state_dict(state)
        expected = [read(sequence), read(sequence)]
    with opened((1, 2), **options) as sequence:
        list(sequence)
        sequence.load_state_dict(state)
        assert [read(sequence), read(sequence)] == expected


def test_a_pass_that_is_given_up_is_replayed_from_there():
    with opened((0, 2), workers=2) as sequence:
        sequence.load_state_dict({"epoch": 1, "samples": 10})
        first = next(iter(sequence)).tolist()
        assert read(sequence)[:4] == first
        sequence.load_state_dict({"epoch": 1, "samples": 10})
        sequence.set_epoch(1)
        assert sequence.state_dict() == {"epoch": 1, "samples": 0}
        assert len(read(sequence)) == 50


def test_items_are_those_of_the_pass():
    with opened((0, 2)) as sequence:
        whole = sequence[0].tolist()
        sequence.load_state_dict({"epoch": 0, "samples": 10})
        batches = [batch.tolist() for batch in sequence]
        sequence.load_state_dict({"epoch": 0, "samples": 10})
        first = len(sequence) - len(batches)
        assert [sequence[i].tolist() for i in range(first, len(sequence))] == batches
        assert sequence[0].tolist() == whole


def test_copies_go_on_there():
    with opened((0, 2)) as sequence:
        sequence.load_state_dict({"epoch": 0, "samples": 10})
        with pickle.loads(pickle.dumps(sequence)) as copy:
            assert copy.state_dict() == sequence.state_dict() == {"epoch": 0, "samples": 10}
            assert read(copy) == read(sequence)


# --- fit ---


def test_fit_goes_on_and_its_callbacks_see_samples():
    states: list[Any] = []
    recorder = built_recorder()
    with sequence_of(10, shuffle=True, seed=3, shard=(0, 2), workers=2) as sequence:
        whole = [*range(40)]
        sequence.load_state_dict({"epoch": 0, "samples": 6})
        look = AfterBatch(lambda model, trained: states.append(sequence.state_dict()))
        recorder.fit(sequence, epochs=2, verbose=0, callbacks=[look])
    with sequence_of(10, shuffle=True, seed=3, shard=(1, 2), workers=0) as other:
        other.load_state_dict({"epoch": 0, "samples": 6})
        rest = [int(number) for x, _ in other for number in np.ravel(x)]
    count = len(recorder.trained) - 5
    first = [number for batch in recorder.trained[:count] for number in batch]
    assert [state["samples"] for state in states[: count - 1]] == [14, 22, 30, 38][: count - 1]
    assert len({*first, *rest}) == 40 - 6
    assert {*first, *rest} < {*whole}


def test_the_rest_of_an_epoch_is_not_permuted_by_fit():
    recorder = built_recorder()
    with sequence_of(10, workers=0, shard=(0, 1)) as sequence:
        sequence.load_state_dict({"epoch": 0, "samples": 10})
        recorder.fit(sequence, verbose=0)
    assert samples_of(recorder.trained) == [*range(10, 40)]


def test_batches_that_fit_permutes_are_counted():
    states: list[Any] = []
    with sequence_of(10, workers=0, shard=(0, 2)) as sequence:
        look = AfterBatch(lambda model, trained: states.append(sequence.state_dict()))
        built_recorder().fit(sequence, verbose=0, callbacks=[look])
    assert states[0] == {"epoch": 0, "batch": 1}
    assert states[-1] == {"epoch": 1, "samples": 0}


def test_the_part_that_keras_gives_goes_on(monkeypatch):
    trained = []
    for index in range(2):
        monkeypatch.setattr(internals.PyDatasetAdapter, "_num_data_shards", 2, raising=False)
        monkeypatch.setattr(internals.PyDatasetAdapter, "_data_shard_id", index, raising=False)
        recorder = built_recorder()
        with sequence_of(10, workers=0, shuffle=True) as sequence:
            sequence.load_state_dict({"epoch": 0, "samples": 10})
            recorder.fit(sequence, verbose=0)
        trained += samples_of(recorder.trained)
    assert len(set(trained)) == len(trained) == 30


def test_whole_batches_are_what_is_counted_of_a_source_that_gives_them():
    rest = []
    for index in range(3):
        with SafeSequence(Numbered(11), shard=(index, 3), workers=0) as sequence:
            sequence.load_state_dict({"epoch": 0, "samples": 4})
            rest += [int(np.ravel(x)[0]) // 4 for x, _ in sequence]
    assert sorted(rest) == [4, 5, 6, 7, 8, 9]


# --- states that count batches, and wrong ones ---


def test_a_state_that_counts_batches_is_one_of_equal_shards_and_said_to_be(caplog):
    with opened((1, 2)) as sequence:
        expected = read(sequence)
        sequence.load_state_dict({"epoch": 0, "batch": 3})
        assert sequence.state_dict() == {"epoch": 0, "samples": 24}
        assert read(sequence) == expected[12:]
    (record,) = caplog.records
    assert "counts batches, taken to be of 8 samples" in record.getMessage()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"epoch": 0, "samples": SIZE}, r"samples in range\(101\), got .*another data set"),
        ({"epoch": -1, "samples": 0}, "epoch >= 0"),
        ({"epoch": 0, "samples": -1}, r"samples in range\(101\)"),
        ({"samples": 1}, "state must be what state_dict"),
        ({"epoch": 0, "samples": 1.5}, "state must be what state_dict"),
    ],
)
def test_a_wrong_state_is_refused(state, message):
    with opened((0, 2)) as sequence, pytest.raises(ValueError, match=message):
        sequence.load_state_dict(state)
