"""``shard="auto"``: the part of this process, found out when it can be, and kept."""

from __future__ import annotations

import logging
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import internals
from adapters.ranks import sharding
from tests.keras.recording import BACKEND, built_recorder, samples_of, sequence_of

X = np.arange(24)


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


def test_what_keras_gives_goes_before_it(second_of_three, monkeypatch):
    monkeypatch.setattr(internals.PyDatasetAdapter, "_num_data_shards", 2, raising=False)
    monkeypatch.setattr(internals.PyDatasetAdapter, "_data_shard_id", 0, raising=False)
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
