"""A ``keras.distribution`` over several processes: each of them trains on its part, once."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from keras.src.trainers import data_adapters

from adapters import SafeSequence
from adapters.keras import internals
from tests.keras.py_datasets import Numbered
from tests.keras.recording import TWO_THREADS, VERSION, built_recorder, samples_of, sequence_of

BATCHES = 6


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


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the stock adapter say, as that of Keras 3.16 does, which part this process reads."""

    def give(index: int, count: int) -> None:
        monkeypatch.setattr(internals.PyDatasetAdapter, "_num_data_shards", count, raising=False)
        monkeypatch.setattr(internals.PyDatasetAdapter, "_data_shard_id", index, raising=False)

    return give


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
