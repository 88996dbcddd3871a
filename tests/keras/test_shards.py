"""``shard="auto"``: the part of this process, found out when it can be, and kept.

Under a ``keras.distribution`` over several processes, each of them trains on its part, once.
"""

from __future__ import annotations

import inspect
import logging
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from keras.src.trainers import data_adapters

from adapters import SafeSequence
from adapters.keras import internals
from adapters.ranks import sharding
from tests.keras.py_datasets import Numbered
from tests.keras.recording import (
    BACKEND,
    TWO_THREADS,
    VERSION,
    built_recorder,
    samples_of,
    sequence_of,
)

X = np.arange(24)
BATCHES = 6


@pytest.fixture(autouse=True)
def nothing_was_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "_warned", set())


@pytest.fixture
def second_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have ``torch.distributed`` be started, as the second of two."""

    def start() -> None:
        module = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: 1,
            get_world_size=lambda: 2,
        )
        monkeypatch.setitem(sys.modules, "torch.distributed", module)

    return start


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the stock adapter say, as that of Keras 3.16 does, which part this process reads."""

    def give(index: int, count: int) -> None:
        monkeypatch.setattr(internals.PyDatasetAdapter, "_num_data_shards", count, raising=False)
        monkeypatch.setattr(internals.PyDatasetAdapter, "_data_shard_id", index, raising=False)

    return give


def read(sequence: SafeSequence) -> list[int]:
    return [int(number) for batch in sequence for number in batch]


def test_it_is_the_shard_of_that_rank(second_of_three):
    with SafeSequence(X, 4, shard="auto", workers=0) as sequence:
        assert len(sequence) == 2
        assert read(sequence) == X[1::3].tolist()


def test_alone_it_is_all_of_the_data():
    with SafeSequence(X, 4, shard="auto", workers=0) as sequence:
        assert read(sequence) == X.tolist()


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
}


@pytest.mark.parametrize("name", FIRST_USES)
def test_the_first_use_settles_it(name, started):
    with SafeSequence(X, 4, shard="auto", workers=0) as sequence:
        started()
        FIRST_USES[name](sequence)
        sys.modules.pop("torch.distributed")
        assert read(sequence) == X[1::2].tolist()


def test_fit_settles_it(started):
    recorder = built_recorder()
    with sequence_of(6, shard="auto", workers=0) as sequence:
        started()
        recorder.fit(sequence, verbose=0, shuffle=False)
    assert samples_of(recorder.trained) == [*range(1, 24, 2)]


def test_copies_keep_it(second_of_three, monkeypatch):
    with SafeSequence(X, 4, shard="auto", workers=0) as sequence:
        sent = pickle.dumps(sequence)
    monkeypatch.setenv("RANK", "2")
    with pickle.loads(sent) as copy:
        assert read(copy) == X[1::3].tolist()


def test_what_keras_gives_goes_before_it(second_of_three, share):
    share(0, 2)
    recorder = built_recorder()
    with sequence_of(6, shard="auto", workers=0) as sequence:
        recorder.fit(sequence, verbose=0, shuffle=False)
    assert samples_of(recorder.trained) == [*range(0, 24, 2)]


@pytest.mark.parametrize("shard", ["auto", None])
def test_under_a_strategy_of_several_processes_tensorflow_shards(
    shard, second_of_three, monkeypatch, caplog
):
    monkeypatch.setattr(internals, "tensorflow_shards", lambda model: True)
    recorder = built_recorder()
    with sequence_of(6, shard=shard, workers=0) as sequence:
        recorder.fit(sequence, verbose=0, shuffle=False)
    assert samples_of(recorder.trained) == [*range(24)]
    assert caplog.records == []


def test_a_shard_under_such_a_strategy_is_refused(monkeypatch):
    monkeypatch.setattr(internals, "tensorflow_shards", lambda model: True)
    message = r"shard must be left out, or \(0, 1\), where .* got \(1, 3\)"
    with sequence_of(6, shard=(1, 3)) as sequence, pytest.raises(ValueError, match=message):
        built_recorder().fit(sequence, verbose=0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="about TensorFlow's strategies")
def test_a_strategy_of_one_process_is_none_of_several():
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["cpu:0"]).scope():
        model = built_recorder()
    assert not internals.tensorflow_shards(model)
    model = SimpleNamespace(distribute_strategy=None)
    assert not internals.tensorflow_shards(model)
    spec = SimpleNamespace(as_dict=lambda: {"worker": ["a:1", "b:1"]})
    strategy = SimpleNamespace(cluster_resolver=SimpleNamespace(cluster_spec=lambda: spec))
    assert internals.tensorflow_shards(SimpleNamespace(distribute_strategy=strategy))


@pytest.mark.parametrize("way", ["loop", "fit"])
def test_every_process_with_all_of_the_data_is_warned_of(way, second_of_three, caplog):
    caplog.set_level(logging.WARNING, logger="adapters")
    with sequence_of(6, workers=0) as sequence:
        for _ in range(2):
            list(sequence) if way == "loop" else built_recorder().fit(sequence, verbose=0)
    (record,) = caplog.records
    assert 'give shard="auto"' in record.getMessage()


def test_another_word_is_refused():
    with pytest.raises(TypeError, match=r"shard must be \(index, count\), got 'Auto'; or \"auto\""):
        SafeSequence(X, shard="Auto")


# --- distributions of Keras ---


class Shared:
    """As much of a distribution as Keras asks for before it makes an adapter."""

    _is_multi_process = True
    auto_shard_dataset = True


@pytest.fixture
def distribution(monkeypatch: pytest.MonkeyPatch) -> Shared:
    """Keras believes that it is one of several processes."""
    shared = Shared()
    monkeypatch.setattr(data_adapters.distribution_lib, "distribution", lambda: shared)
    return shared


@pytest.mark.skipif(
    not hasattr(data_adapters, "distribution_lib"), reason="this Keras shards no data set"
)
@pytest.mark.skipif(VERSION >= (3, 16), reason="from Keras 3.16 on it is sharded")
def test_what_keras_refuses_to_shard_is_refused(distribution):
    with pytest.raises(ValueError, match=r"auto_shard_dataset = False|tf\.data\.Dataset"):
        data_adapters.get_data_adapter(sequence_of(BATCHES))


@pytest.mark.skipif(
    not hasattr(data_adapters, "distribution_lib"), reason="this Keras shards no data set"
)
@pytest.mark.skipif(
    "auto_shard_dataset" not in inspect.getsource(data_adapters),
    reason="this Keras refuses every PyDataset",
)
def test_a_distribution_that_shards_nothing_is_no_obstacle(distribution):
    distribution.auto_shard_dataset = False
    with sequence_of(BATCHES) as sequence:
        assert data_adapters.get_data_adapter(sequence).num_batches == BATCHES


@pytest.mark.parametrize("source", [None, Numbered(BATCHES)], ids=["samples", "whole batches"])
def test_the_processes_together_train_on_every_sample_once(share, source):
    trained = []
    for index in range(3):
        share(index, 3)
        recorder = built_recorder()
        sequence = (
            sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
            if source is None
            else SafeSequence(source, **TWO_THREADS)
        )
        with sequence:
            recorder.fit(sequence, verbose=0)
        trained += recorder.trained
    assert samples_of(trained) == list(range(4 * BATCHES))


def test_nothing_is_sharded_twice(share):
    recorder = built_recorder()
    with sequence_of(BATCHES, shard=(1, 3), **TWO_THREADS) as sequence:
        expected = samples_of([list(map(int, sequence[i][0].ravel())) for i in range(2)])
        share(1, 3)
        recorder.fit(sequence, verbose=0)
    assert samples_of(recorder.trained) == expected


def test_a_part_that_differs_from_keras_is_refused(share):
    share(0, 2)
    message = r"shard must be left out, or \(0, 2\).*got \(1, 3\); or set"
    with sequence_of(BATCHES, shard=(1, 3)) as sequence, pytest.raises(ValueError, match=message):
        built_recorder().fit(sequence, verbose=0)


def test_without_the_distribution_all_of_it_is_read_again(share):
    with sequence_of(BATCHES) as sequence:
        share(0, 2)
        assert data_adapters.get_data_adapter(sequence).num_batches == BATCHES // 2
        share(0, 1)
        assert data_adapters.get_data_adapter(sequence).num_batches == BATCHES


def test_an_adapter_that_is_not_the_known_one_is_left_to_keras(monkeypatch):
    class Another(internals.PyDatasetAdapter):
        pass

    monkeypatch.setattr(data_adapters, "PyDatasetAdapter", Another)
    with sequence_of(BATCHES) as sequence:
        assert type(data_adapters.get_data_adapter(sequence)) is Another
