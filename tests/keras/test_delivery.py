"""Which batches ``fit`` delivers, in which order: the same ones, whoever computes them."""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from tests.keras.recording import (
    ALL_WORKERS,
    INLINE,
    KINDS_OF_WORKERS,
    TWO_THREADS,
    Recorder,
    built_recorder,
    epochs_of,
    numbers,
    samples_of,
    sequence_of,
)
from tests.keras.samples import numbered
from tests.keras.versions import LOSES_THE_FIRST_BATCH, TAKES_THE_BUILD_FOR_AN_EPOCH

BATCHES = 10


def freshly_compiled() -> Recorder:
    """A model that has been trained, and compiled again since."""
    recorder = built_recorder()
    recorder.compile(optimizer="adam", loss="mae", run_eagerly=True)
    return recorder


@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_a_first_fit_of_three_epochs_delivers_epochs_0_1_2(workers):
    recorder, sequence = Recorder(), sequence_of(BATCHES, shuffle=True, **workers)
    recorder.fit(sequence, epochs=3, verbose=0)
    assert recorder.trained == epochs_of(sequence, 3)


@pytest.mark.parametrize(
    ("model", "batches"),
    [
        pytest.param(Recorder, 1, marks=TAKES_THE_BUILD_FOR_AN_EPOCH),
        pytest.param(freshly_compiled, 1, marks=TAKES_THE_BUILD_FOR_AN_EPOCH),
        (built_recorder, 1),
        *itertools.product([Recorder, freshly_compiled, built_recorder], [2, 3]),
    ],
)
def test_what_keras_does_to_build_a_model_is_no_epoch(model, batches):
    recorder, sequence = model(), sequence_of(batches, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=3, verbose=0)
    assert (recorder.trained, sequence.epoch) == (epochs_of(sequence, 3), 3)


@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_whole_batches_are_permuted_at_the_defaults_of_fit(workers):
    """The numbers were written down once: every process, version and backend must find them."""
    recorder = Recorder()
    with sequence_of(6, **workers) as sequence:
        recorder.fit(sequence, epochs=2, verbose=0)
    assert [batch[0] // 4 for batch in recorder.trained] == [0, 3, 1, 2, 4, 5, 3, 5, 1, 0, 2, 4]


def test_shuffled_samples_are_those_that_were_written_down_once():
    recorder = Recorder()
    recorder.fit(sequence_of(2, shuffle=True, seed=7), epochs=2, verbose=0)
    assert recorder.trained == [[6, 5, 3, 7], [4, 0, 2, 1], [0, 5, 3, 7], [2, 1, 4, 6]]


def test_nothing_is_permuted_with_shuffle_false_in_both_places():
    recorder = Recorder()
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=2, verbose=0, shuffle=False)
    assert recorder.trained == 2 * [list(range(4 * i, 4 * i + 4)) for i in range(BATCHES)]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_every_sample_comes_once_per_epoch(workers, shuffle):
    recorder = Recorder()
    with SafeSequence(numbered(38), 4, shuffle=shuffle, **workers) as sequence:
        recorder.fit(sequence, epochs=3, verbose=0)
    epochs = [samples_of(recorder.trained[start : start + 10]) for start in (0, 10, 20)]
    assert epochs == 3 * [list(range(38))]


@pytest.mark.parametrize("shuffle", [False, True])
def test_two_epochs_differ_in_their_order(shuffle):
    recorder = Recorder()
    recorder.fit(sequence_of(BATCHES, shuffle=shuffle), epochs=2, verbose=0)
    assert recorder.trained[:BATCHES] != recorder.trained[BATCHES:]


def test_shards_together_deliver_every_sample_once():
    recorder = Recorder()
    for index in range(2):
        sequence = sequence_of(BATCHES, shuffle=True, shard=(index, 2), **TWO_THREADS)
        recorder.fit(sequence, verbose=0)
    assert samples_of(recorder.trained) == list(range(4 * BATCHES))


def test_features_and_labels_stay_together():
    recorder = Recorder()
    recorder.fit(sequence_of(BATCHES, shuffle=True, **TWO_THREADS), verbose=0)
    for features, labels in recorder.lists.trained:
        np.testing.assert_array_equal(features, -labels)


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_nobody_elses_random_state_is_touched(workers):
    recorder = built_recorder()
    with sequence_of(BATCHES, **workers) as sequence:
        before = random.getstate(), str(np.random.get_state())
        recorder.fit(sequence, epochs=2, verbose=0)
        assert (random.getstate(), str(np.random.get_state())) == before


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS], ids=["inline", "threads"])
@pytest.mark.parametrize(
    ("steps", "fit_epochs", "delivered"), [(3, 4, 12), (10, 2, 20), (15, 2, 30)]
)
@LOSES_THE_FIRST_BATCH
def test_steps_per_epoch_goes_on_where_it_stopped(workers, steps, fit_epochs, delivered):
    recorder, sequence = Recorder(), sequence_of(BATCHES, shuffle=True, **workers)
    recorder.fit(sequence, epochs=fit_epochs, steps_per_epoch=steps, verbose=0)
    assert recorder.trained == epochs_of(sequence, 3)[:delivered]


@LOSES_THE_FIRST_BATCH
@pytest.mark.parametrize(("steps", "fit_epochs"), [(1, 3), (2, 2)])
def test_steps_per_epoch_over_a_sequence_of_one_batch(steps, fit_epochs):
    recorder, sequence = Recorder(), sequence_of(1, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=fit_epochs, steps_per_epoch=steps, verbose=0)
    assert recorder.trained == epochs_of(sequence, steps * fit_epochs)


def test_no_steps_are_those_of_the_sequence():
    recorder, sequence = built_recorder(), sequence_of(BATCHES, **TWO_THREADS)
    with sequence:
        given = {"validation_data": sequence, "validation_steps": 0, "verbose": 0}
        recorder.fit(sequence, steps_per_epoch=0, shuffle=False, **given)
        recorder.evaluate(sequence, steps=0, verbose=0)
        assert (recorder.trained, recorder.tested) == (
            epochs_of(sequence, 1, first=0),
            2 * recorder.trained,
        )


@pytest.mark.parametrize(("steps", "epoch"), [(3, 1), (10, 4), (15, 6)])
def test_the_epoch_counts_whole_passes_and_not_those_of_keras(steps, epoch):
    recorder = built_recorder()
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=4, steps_per_epoch=steps, verbose=0)
        assert sequence.epoch == epoch


def test_initial_epoch_is_about_the_epochs_of_keras():
    recorder, sequence = Recorder(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=5, initial_epoch=3, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2)


class StopsAt(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the training with a batch, by an exception or without."""

    def __init__(self, batch: int, fails: bool) -> None:
        super().__init__()
        self.batch, self.fails = batch, fails

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self.batch:
            self.model.stop_training = True
            if self.fails:
                raise KeyError


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("batch", "epoch"), [(BATCHES - 2, 0), (BATCHES - 1, 1)])
def test_the_epoch_is_the_next_one_wherever_a_fit_ended_with_the_last_batch(batch, epoch, fails):
    sequence = sequence_of(BATCHES, shuffle=True, **INLINE)
    with contextlib.suppress(KeyError):
        built_recorder().fit(sequence, epochs=1, verbose=0, callbacks=[StopsAt(batch, fails)])
    state = {"epoch": 1, "batch": 0} if epoch else {"epoch": 0, "batch": BATCHES - 1}
    assert (sequence.epoch, sequence.state_dict()) == (epoch, state)
    first = numbers(sequence[0])
    assert first == epochs_of(sequence, 1, first=epoch)[0]


class Positions(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes where the sequence is, before and after each batch, and may fail before one."""

    def __init__(self, sequence: SafeSequence, fails_before: int | None = None) -> None:
        super().__init__()
        self.sequence, self.fails_before = sequence, fails_before
        self.before: list[dict[str, int]] = []
        self.after: list[dict[str, int]] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == self.fails_before:
            raise KeyError
        self.before.append(self.sequence.state_dict())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.after.append(self.sequence.state_dict())


@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_the_position_is_behind_the_last_batch_that_was_trained_on(workers):
    sequence = sequence_of(BATCHES, **workers)
    seen = Positions(sequence)
    built_recorder().fit(sequence, epochs=2, verbose=0, callbacks=[seen])
    places = [divmod(place, BATCHES) for place in range(2 * BATCHES + 1)]
    states = [{"epoch": epoch, "batch": batch} for epoch, batch in places]
    assert (seen.before, seen.after) == (states[:-1], states[1:])


def test_a_state_that_is_loaded_within_an_epoch_is_that_of_the_next_fit():
    sequence = sequence_of(BATCHES, **INLINE)

    class Loads(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == BATCHES - 1:
                sequence.load_state_dict({"epoch": 5, "batch": 2})

    built_recorder().fit(sequence, verbose=0, callbacks=[Loads()])
    assert sequence.state_dict() == {"epoch": 5, "batch": 2}


@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_a_batch_that_a_failing_callback_kept_from_the_model_comes_again(workers):
    sequence = sequence_of(BATCHES, **workers)
    with pytest.raises(KeyError):
        built_recorder().fit(sequence, verbose=0, callbacks=[Positions(sequence, fails_before=3)])
    assert sequence.state_dict() == {"epoch": 0, "batch": 3}


def test_a_fit_starts_at_the_epoch_that_was_set():
    recorder, sequence = Recorder(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    sequence.set_epoch(5)
    recorder.fit(sequence, epochs=2, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2, first=5)


def test_two_models_may_read_two_sequences_in_turn():
    recorders = Recorder(), Recorder()
    sequences = [sequence_of(3, shuffle=True, seed=seed, **TWO_THREADS) for seed in (1, 2)]
    for _ in range(2):
        for recorder, sequence in zip(recorders, sequences):
            recorder.fit(sequence, verbose=0)
    assert [recorder.trained for recorder in recorders] == [epochs_of(s, 2) for s in sequences]
