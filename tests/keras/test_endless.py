"""A ``PyDataset`` without an end as the source: what Keras's own tests of its adapter ask for."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import pytest
from keras.src.trainers import data_adapters

from adapters import SafeSequence
from tests.keras.recording import (
    ALL_WORKERS,
    AUTO,
    BACKEND,
    INLINE,
    KINDS_OF_WORKERS,
    TWO_THREADS,
    Recorder,
    built_recorder,
    numbers,
    to_host,
)
from tests.keras.samples import BATCH_SIZE, numbered
from tests.keras.versions import (
    BATCHES_AHEAD,
    LOSES_THE_FIRST_BATCH,
    VALIDATES_ON_WHERE_IT_STOPPED,
)

ROUND = 4
pytestmark = pytest.mark.filterwarnings("ignore:.shuffle=True. was passed:UserWarning")


class Round(keras.utils.PyDataset):
    """Numbered samples, again and again."""

    num_batches = None

    def __getitem__(self, index: int) -> Any:
        features, labels = numbered(ROUND * BATCH_SIZE)
        start = index % ROUND * BATCH_SIZE
        return features[start : start + BATCH_SIZE], labels[start : start + BATCH_SIZE]


class SlowRound(Round):
    """Who reads it ahead is behind."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.03)
        return super().__getitem__(index)


class Unsaid(keras.utils.PyDataset):
    """Implements neither ``num_batches`` nor ``__len__``."""

    def __getitem__(self, index: int) -> Any:
        return np.full((2, 1), index, np.float32)


class Hooked(Round):
    """Its labels are the number of epochs that have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    def __getitem__(self, index: int) -> Any:
        features, labels = super().__getitem__(index)
        return features, np.full_like(labels, self.ended)

    def on_epoch_end(self) -> None:
        self.ended += 1


IN_ORDER = [
    list(range(start, start + BATCH_SIZE)) for start in range(0, ROUND * BATCH_SIZE, BATCH_SIZE)
]


@pytest.fixture(autouse=True)
def light_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import Keras without a framework behind it."""
    monkeypatch.setenv("KERAS_BACKEND", "numpy")


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_an_adapter_gives_round_after_round_in_order(workers, shuffle):
    """As in Keras's own test: the ends of epochs come in the middle of one iterator."""
    with SafeSequence(Round(), **workers) as sequence:
        adapter = data_adapters.get_data_adapter(sequence, shuffle=shuffle, steps_per_epoch=ROUND)
        iterator = {
            "tensorflow": adapter.get_tf_dataset,
            "jax": adapter.get_jax_iterator,
            "torch": adapter.get_torch_dataloader,
        }[BACKEND]()
        found = []
        adapter.on_epoch_begin()
        for batch in iterator:
            found.append(numbers(to_host(batch)))
            if len(found) == ROUND:
                adapter.on_epoch_end()
                adapter.on_epoch_begin()
            elif len(found) == 2 * ROUND:
                break
        adapter.on_epoch_end()
        adapter.end()
    assert found == 2 * IN_ORDER


@pytest.mark.parametrize(
    "model", [pytest.param(Recorder, marks=LOSES_THE_FIRST_BATCH), built_recorder]
)
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_fit_goes_on_from_epoch_to_epoch(workers, model):
    recorder = model()
    with SafeSequence(Round(), **workers) as sequence:
        recorder.fit(sequence, epochs=3, steps_per_epoch=3, verbose=0)
    assert recorder.trained == (3 * IN_ORDER)[:9]


@VALIDATES_ON_WHERE_IT_STOPPED
def test_each_validation_begins_anew():
    recorder = Recorder()
    with SafeSequence(Round(), **TWO_THREADS) as sequence:
        recorder.fit(
            *numbered(4), epochs=3, validation_data=sequence, validation_steps=3, verbose=0
        )
    assert recorder.tested == 3 * IN_ORDER[:3]


def test_a_state_is_where_it_goes_on():
    recorder = built_recorder()
    with SafeSequence(Round(), **TWO_THREADS) as sequence:
        sequence.load_state_dict({"epoch": 0, "batch": 1000 * ROUND + 2})
        recorder.fit(sequence, steps_per_epoch=3, verbose=0)
    assert recorder.trained == [IN_ORDER[2], IN_ORDER[3], IN_ORDER[0]]


class States(keras.callbacks.Callback):
    """What a sequence says of itself after each batch."""

    def __init__(self, sequence: SafeSequence) -> None:
        super().__init__()
        self.sequence = sequence
        self.seen: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(self.sequence.state_dict()["batch"])


@LOSES_THE_FIRST_BATCH
@pytest.mark.parametrize("source", [Round, SlowRound])
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_a_state_is_that_of_training_though_it_validates_too(workers, source):
    with SafeSequence(source(), **workers) as sequence:
        states = States(sequence)
        steps = {"steps_per_epoch": 2, "validation_steps": 2}
        linear().fit(
            sequence, epochs=3, validation_data=sequence, callbacks=[states], verbose=0, **steps
        )
    assert states.seen == [1, 2, 3, 4, 5, 6]


class Evaluating(States):
    """Has the sequence read from its begin in between, and looks where it stands at each end."""

    def __init__(self, sequence: SafeSequence, read: Any) -> None:
        super().__init__(sequence)
        self.read = read
        self.ends: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, logs)
        if batch == 1:
            self.read(self.sequence)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ends.append(self.sequence.state_dict()["batch"])


def linear() -> Any:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model


@LOSES_THE_FIRST_BATCH
@pytest.mark.parametrize("source", [Round, SlowRound])
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
@pytest.mark.parametrize("how", ["evaluate", "predict", "a loop"])
def test_a_state_is_that_of_training_whatever_reads_it_in_between(how, workers, source):
    other = linear()
    ways = {
        "evaluate": lambda sequence: other.evaluate(sequence, steps=2, verbose=0),
        "predict": lambda sequence: other.predict(sequence, steps=2, verbose=0),
        "a loop": lambda sequence: next(iter(sequence)),
    }
    with SafeSequence(source(), **workers) as sequence:
        states = Evaluating(sequence, ways[how])
        linear().fit(sequence, epochs=2, steps_per_epoch=3, callbacks=[states], verbose=0)
        assert states.seen == [1, 2, 3, 4, 5, 6]
        assert states.ends == [3, 6]
        assert sequence.state_dict()["batch"] == 6


@pytest.mark.parametrize("model", [Recorder, built_recorder])
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS, AUTO])
def test_its_hooks_are_called_between_the_epochs_of_keras(workers, model):
    source, recorder = Hooked(), model()
    with SafeSequence(source, **workers) as sequence:
        recorder.fit(sequence, epochs=3, steps_per_epoch=4, verbose=0)
    seen = [int(labels[0, 0]) for _, labels in recorder.lists.trained]
    assert source.ended == 3
    assert [seen[start + BATCHES_AHEAD] for start in (0, 4, 8)] == [0, 1, 2]


@pytest.mark.parametrize("source", [Round, Unsaid])
def test_iterating_has_no_end_either(source):
    with SafeSequence(source(), **TWO_THREADS) as sequence:
        for index, _ in enumerate(sequence):
            if index >= 10:
                break
        assert index == 10


def test_any_batch_can_be_asked_for():
    sequence = SafeSequence(Round())
    assert numbers(sequence[10**9 + 1]) == IN_ORDER[1]
    with pytest.raises(IndexError, match="must be >= 0 as the source has no end, got -1"):
        sequence[-1]


def test_its_length_says_what_is_missing():
    sequence = SafeSequence(Round())
    assert sequence
    assert sequence.num_batches is None
    with pytest.raises(TypeError, match="has no length: give fit steps_per_epoch, or the source"):
        len(sequence)


@pytest.mark.parametrize("call", ["fit", "evaluate", "predict"])
def test_training_without_steps_says_what_is_missing(call):
    with SafeSequence(Round()) as sequence:
        method = getattr(built_recorder(), call)
        with pytest.raises(ValueError, match="steps_per_epoch must be given to fit"):
            method(sequence, verbose=0)


def test_one_inside_another_has_no_end():
    with SafeSequence(SafeSequence(Round())) as sequence:
        assert sequence.num_batches is None


def test_shards_have_their_own_batches():
    found = []
    for index in range(2):
        with SafeSequence(Round(), shard=(index, 2), **TWO_THREADS) as sequence:
            batches = iter(sequence)
            found.append([numbers(next(batches)) for _ in range(2)])
    assert found == [[IN_ORDER[0], IN_ORDER[2]], [IN_ORDER[1], IN_ORDER[3]]]


def test_an_explanation_counts_no_samples(capsys):
    SafeSequence(Round(), shard=(1, 2)).explain()
    assert "shard: 1 of 2\n" in capsys.readouterr().out


def test_a_state_of_two_shards_goes_on_in_one():
    with SafeSequence(Round(), shard=(1, 2)) as sequence:
        batches = iter(sequence)
        next(batches)
        state = sequence.state_dict()
    assert state == {"epoch": 0, "samples": 2}
    with SafeSequence(Round(), shard=(0, 1)) as sequence:
        sequence.load_state_dict(state)
        assert numbers(next(iter(sequence))) == IN_ORDER[2]
        with pytest.raises(ValueError, match="samples >= 0, got"):
            sequence.load_state_dict({"epoch": 0, "samples": -1})
