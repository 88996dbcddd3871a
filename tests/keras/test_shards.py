"""``shard``: the part of this process, also under a distribution of Keras's, and its states."""

from __future__ import annotations

import inspect
import itertools
import json
import logging
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from keras.src.trainers import data_adapters

from adapters import Blocks, SafeSequence, ranks
from adapters.keras import internals
from tests.keras import recording
from tests.keras.py_datasets import Numbered
from tests.keras.recording import BACKEND, TWO_THREADS, built_recorder, samples_of, sequence_of

BATCHES, SIZE = 6, 101
X = np.arange(SIZE)
ORDER = {"shuffle": True, "seed": 5}
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")


@pytest.fixture(autouse=True)
def nothing_was_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_warned", set())


@pytest.fixture
def second_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the stock adapter say, as that of Keras 3.16 does, which part this process reads."""

    def give(index: int, count: int) -> None:
        monkeypatch.setattr(internals.PyDatasetAdapter, "_num_data_shards", count, raising=False)
        monkeypatch.setattr(internals.PyDatasetAdapter, "_data_shard_id", index, raising=False)

    return give


def read(sequence: SafeSequence) -> list[int]:
    return [int(number) for batch in sequence for number in batch]


FIRST_USES = {
    "len": len,
    "num_batches": lambda sequence: sequence.num_batches,
    "item": lambda sequence: sequence[0],
    "iter": iter,
    "state": lambda sequence: sequence.state_dict(),
    "load": lambda sequence: sequence.load_state_dict({"epoch": 0, "batch": 0}),
    "explain": lambda sequence: sequence.explain(),
    "pickle": pickle.dumps,
    "source": SafeSequence,
    "fit": lambda sequence: built_recorder().fit(sequence, steps_per_epoch=0, verbose=0),
}


@pytest.mark.parametrize("name", FIRST_USES)
def test_auto_is_settled_by_the_first_use(name, monkeypatch):
    with SafeSequence(X[:24], 4, shard="auto", workers=0) as sequence:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "3")
        FIRST_USES[name](sequence)
        monkeypatch.setenv("RANK", "2")
        assert read(sequence) == X[1:24:3].tolist()


def test_auto_is_kept_by_copies(second_of_three, monkeypatch):
    with SafeSequence(X[:24], 4, shard="auto", workers=0) as sequence:
        sent = pickle.dumps(sequence)
    monkeypatch.setenv("RANK", "2")
    with pickle.loads(sent) as copy:
        assert read(copy) == X[1:24:3].tolist()


@pytest.mark.parametrize("way", ["loop", "fit"])
def test_all_of_the_data_in_each_process(way, second_of_three, caplog):
    caplog.set_level(logging.WARNING, logger="adapters")
    with sequence_of(BATCHES, workers=0) as sequence:
        for _ in range(2):
            list(sequence) if way == "loop" else built_recorder().fit(sequence, verbose=0)
    (record,) = caplog.records
    assert 'give shard="auto"' in record.getMessage()


# --- distributions of Keras's, which say the part of this process ---


def trained(sequence: SafeSequence) -> list[int]:
    recorder = built_recorder()
    with sequence:
        recorder.fit(sequence, verbose=0)
    return samples_of(recorder.trained)


def test_auto_under_a_distribution(second_of_three, share):
    share(0, 2)
    assert trained(sequence_of(6, shard="auto", workers=0)) == [*range(0, 24, 2)]


@pytest.mark.parametrize("shard", ["auto", None])
def test_strategy_of_several_processes(shard, second_of_three, monkeypatch, caplog):
    monkeypatch.setattr(internals, "tensorflow_shards", lambda model: True)
    assert trained(sequence_of(BATCHES, shard=shard, workers=0)) == [*range(24)]
    assert caplog.records == []


@pytest.mark.skipif(BACKEND != "tensorflow", reason="about TensorFlow's strategies")
def test_strategy_of_one_process(second_of_three):
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["cpu:0"]).scope():
        assert trained(sequence_of(6, shard="auto", workers=0)) == [*range(1, 24, 3)]


@pytest.mark.skipif(BACKEND != "tensorflow", reason="about TensorFlow's strategies")
def test_strategy_is_told_by_its_cluster():
    spec = SimpleNamespace(as_dict=lambda: {"worker": ["a:1", "b:1"]})
    strategy = SimpleNamespace(cluster_resolver=SimpleNamespace(cluster_spec=lambda: spec))
    assert internals.tensorflow_shards(SimpleNamespace(distribute_strategy=strategy))
    assert not internals.tensorflow_shards(SimpleNamespace(distribute_strategy=None))


def test_strategy_refuses_a_shard(monkeypatch):
    monkeypatch.setattr(internals, "tensorflow_shards", lambda model: True)
    message = r"shard must be left out, or \(0, 1\), where .* got \(1, 3\)"
    with sequence_of(BATCHES, shard=(1, 3)) as sequence, pytest.raises(ValueError, match=message):
        built_recorder().fit(sequence, verbose=0)


@pytest.mark.parametrize("source", [None, Numbered(BATCHES)], ids=["samples", "whole batches"])
def test_distribution_has_every_sample_once(share, source):
    found = []
    for index in range(2):
        share(index, 2)
        whole = SafeSequence(source, **TWO_THREADS) if source else None
        found += trained(whole or sequence_of(BATCHES, shuffle=True, **TWO_THREADS))
    assert sorted(found) == list(range(4 * BATCHES))


def test_distribution_shards_nothing_twice(share):
    share(1, 3)
    assert trained(sequence_of(BATCHES, shard=(1, 3), **TWO_THREADS)) == [*range(1, 24, 3)]


def test_distribution_that_has_ended(share):
    with sequence_of(BATCHES) as sequence:
        share(0, 2)
        assert data_adapters.get_data_adapter(sequence).num_batches == BATCHES // 2
        share(0, 1)
        assert data_adapters.get_data_adapter(sequence).num_batches == BATCHES


@pytest.mark.skipif(
    "auto_shard_dataset" not in inspect.getsource(data_adapters),
    reason="this Keras refuses every PyDataset under a distribution, or none",
)
def test_distribution_that_shards_nothing(monkeypatch):
    shared = SimpleNamespace(_is_multi_process=True, auto_shard_dataset=False)
    monkeypatch.setattr(data_adapters.distribution_lib, "distribution", lambda: shared)
    with sequence_of(BATCHES) as sequence:
        assert data_adapters.get_data_adapter(sequence).num_batches == BATCHES


def test_distribution_refuses_another_shard(share):
    share(0, 2)
    message = r"shard must be left out, or \(0, 2\).*got \(1, 3\); or set"
    with sequence_of(BATCHES, shard=(1, 3)) as sequence, pytest.raises(ValueError, match=message):
        built_recorder().fit(sequence, verbose=0)


# --- states ---


def opened(shard: Any, batch_size: int = 4, **options: Any) -> SafeSequence:
    return SafeSequence(X, batch_size, shard=shard, **{"workers": 0, **ORDER, **options})


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


@pytest.mark.one_keras
@pytest.mark.parametrize(("count", "batch_size"), [(1, 4), (3, 3), (16, 4)])
def test_state_of_eight_shards(count, batch_size):
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


@pytest.mark.one_keras
@pytest.mark.parametrize(
    "order",
    [
        {"shuffle": Blocks(64, 2)},
        {"weights": np.arange(1, SIZE + 1)},
        {"shuffle": False},
        {"shuffle": False, "bucket_by": X % 7},
    ],
)
def test_state_in_other_orders(order):
    with opened((0, 1), **order) as sequence:
        expected = read(sequence)
    rest = []
    for index in range(3):
        with opened((index, 3), 5, **order) as sequence:
            sequence.load_state_dict({"epoch": 0, "samples": 20})
            rest.append(read(sequence))
    assert np.stack(rest, axis=1).ravel().tolist() == expected[20:][: 81 // 3 * 3]


@pytest.mark.one_keras
def test_state_counts_batches_of_a_size():
    buckets = {"bucket_by": X % 7}
    with opened((0, 2), **buckets) as sequence:
        assert sequence.state_dict() == {"epoch": 0, "batch": 0}
        next(iter(sequence))
        state = sequence.state_dict()
        assert state == {"epoch": 0, "batch of 8": 1}
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
            pytest.raises(ValueError, match=r"samples over all shards, .*'batch of 8': 1"),
        ):
            sequence.load_state_dict(state)


@pytest.mark.one_keras
def test_state_that_leaves_no_batch_of_buckets():
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


def noisy(batch: Any, rng: np.random.Generator) -> Any:
    return batch + rng.random(len(batch))


@pytest.mark.one_keras
@pytest.mark.usefixtures("sent_by_value")
@pytest.mark.parametrize("options", recording.KINDS_OF_WORKERS)
def test_state_goes_on_bit_by_bit(options):
    state = {"epoch": 1, "samples": 16}
    with opened((1, 2), batch_transform=noisy) as sequence:
        sequence.set_epoch(1)
        whole = [batch.tolist() for batch in sequence]
    with opened((1, 2), batch_transform=noisy, **options) as sequence:
        list(sequence)
        sequence.load_state_dict(state)
        with pickle.loads(pickle.dumps(sequence)) as copy:
            assert copy.state_dict() == sequence.state_dict() == state
            assert [batch.tolist() for batch in copy] == whole[2:]
        assert next(iter(sequence)).tolist() == whole[2]  # A pass that is given up is replayed.
        assert [batch.tolist() for batch in sequence] == whole[2:]
        assert sequence.state_dict() == {"epoch": 2, "samples": 0}
        sequence.load_state_dict(state)
        sequence.set_epoch(1)
        assert [batch.tolist() for batch in sequence] == whole


@pytest.mark.one_keras
@pytest.mark.parametrize(
    ("shard", "state", "then"),
    [
        ("auto", {"epoch": 0, "samples": 0}, {"epoch": 0, "samples": 4}),
        (None, {"epoch": 0, "batch": 0}, {"epoch": 0, "batch": 1}),
        (None, {"epoch": 0, "samples": 50}, {"epoch": 0, "samples": 54}),
        (None, {"epoch": 0, "samples": 98}, {"epoch": 1, "batch": 0}),
        ((1, 2), {"epoch": 0, "batch": 3}, {"epoch": 0, "samples": 32}),
        ((0, 2), {"epoch": 0, "samples": 96}, {"epoch": 1, "samples": 0}),
    ],
)
def test_state_after_the_next_batch(shard, state, then):
    with opened(shard) as sequence:
        sequence.load_state_dict(state)
        next(iter(sequence))
        assert sequence.state_dict() == then


@pytest.mark.one_keras
def test_state_that_leaves_no_batch():
    with opened((0, 3), drop_remainder=True) as sequence:
        sequence.load_state_dict({"epoch": 4, "samples": 90})
        assert sequence.state_dict() == {"epoch": 5, "samples": 0}


@pytest.mark.one_keras
def test_state_that_counts_batches(caplog):
    with opened((1, 2)) as sequence:
        expected = read(sequence)
        sequence.load_state_dict({"epoch": 0, "batch": 3})
        assert read(sequence) == expected[12:]
    (record,) = caplog.records
    assert "counts batches, taken to be of 8 samples" in record.getMessage()


@pytest.mark.one_keras
def test_state_of_whole_batches():
    rest = []
    for index in range(3):
        with SafeSequence(Numbered(11), shard=(index, 3), workers=0) as sequence:
            sequence.load_state_dict({"epoch": 0, "samples": 4})
            rest += [int(np.ravel(x)[0]) // 4 for x, _ in sequence]
    assert sorted(rest) == [4, 5, 6, 7, 8, 9]


def states_of_fit(sequence: SafeSequence) -> tuple[list[Any], list[int]]:
    states: list[Any] = []
    recorder = built_recorder()
    look = recording.AfterBatch(lambda model, count: states.append(sequence.state_dict()))
    recorder.fit(sequence, verbose=0, callbacks=[look])
    return states, samples_of(recorder.trained)


@pytest.mark.one_keras
def test_fit_from_state():
    rest, options = [], {"shuffle": True, "seed": 3}
    for index in range(2):
        with sequence_of(10, shard=(index, 2), workers=2, **options) as sequence:
            sequence.load_state_dict({"epoch": 0, "samples": 6})
            states, found = states_of_fit(sequence)
        rest += found
        assert [state["samples"] for state in states] == [14, 22, 30, 38, 0]
    consumed = [int(number) for x, _ in sequence_of(10, **options) for number in np.ravel(x)][:6]
    assert sorted([*consumed, *rest]) == [*range(40)]


@pytest.mark.one_keras
def test_fit_does_not_permute_the_rest():
    with sequence_of(10, workers=0, shard=(0, 1)) as sequence:
        sequence.load_state_dict({"epoch": 0, "samples": 10})
        assert trained(sequence) == [*range(10, 40)]


@pytest.mark.one_keras
def test_fit_counts_batches_that_it_permutes():
    with sequence_of(10, workers=0, shard=(0, 2)) as sequence:
        states, _ = states_of_fit(sequence)
    assert states[0] == {"epoch": 0, "batch": 1}
    assert states[-1] == {"epoch": 1, "samples": 0}


@pytest.mark.one_keras
def test_fit_from_state_under_a_distribution(share):
    found = []
    for index in range(2):
        share(index, 2)
        with sequence_of(10, workers=0, shuffle=True) as sequence:
            sequence.load_state_dict({"epoch": 0, "samples": 10})
            found += trained(sequence)
    assert len(set(found)) == len(found) == 30


@pytest.mark.one_keras
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
def test_state_refused(state, message):
    with opened((0, 2)) as sequence, pytest.raises(ValueError, match=message):
        sequence.load_state_dict(state)
