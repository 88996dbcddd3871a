"""Batches that ``fit``, ``evaluate`` and ``predict`` give a model, whoever computes them."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import internals
from tests.keras.recording import (
    ALL_WORKERS,
    BACKEND,
    INLINE,
    KINDS_OF_WORKERS,
    LOSES_A_LAST_PART,
    LOSES_THE_FIRST_BATCH,
    PROCESSES,
    TAKES_THE_BUILD_FOR_AN_EPOCH,
    TWO_THREADS,
    VALIDATES_ON_WHERE_IT_STOPPED,
    Boom,
    Recorder,
    after,
    built_recorder,
    echo,
    epochs_of,
    fail,
    numbers,
    samples_of,
    sequence_of,
    stop,
)
from tests.keras.samples import numbered

# Keras 3.6 warns on TensorFlow when the last execution of an epoch has fewer steps.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
BATCHES = 10
IN_ORDER = [list(range(start, start + 4)) for start in range(0, 4 * BATCHES, 4)]


def compiled_again() -> Recorder:
    """A model that has been trained, and compiled again since."""
    recorder = built_recorder()
    recorder.compile(optimizer="adam", loss="mae", run_eagerly=True)
    return recorder


@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_fit_epochs(workers):
    recorder, sequence = Recorder(), sequence_of(BATCHES, shuffle=True, **workers)
    recorder.fit(sequence, epochs=3, verbose=0)
    assert recorder.trained == epochs_of(sequence, 3)


@pytest.mark.parametrize(
    ("model", "batches"),
    [
        pytest.param(Recorder, 1, marks=TAKES_THE_BUILD_FOR_AN_EPOCH),
        pytest.param(compiled_again, 1, marks=TAKES_THE_BUILD_FOR_AN_EPOCH),
        (compiled_again, 2),
        (built_recorder, 1),
    ],
)
def test_fit_builds_without_an_epoch(model, batches):
    recorder, sequence = model(), sequence_of(batches, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=3, verbose=0)
    assert (recorder.trained, sequence.epoch) == (epochs_of(sequence, 3), 3)


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_order_of_whole_batches(workers):
    recorder = Recorder()
    with sequence_of(6, **workers) as sequence:
        recorder.fit(sequence, epochs=2, verbose=0)
    assert [batch[0] // 4 for batch in recorder.trained] == [0, 3, 1, 2, 4, 5, 3, 5, 1, 0, 2, 4]


def test_order_of_samples():
    recorder = Recorder()
    recorder.fit(sequence_of(2, shuffle=True, seed=7), epochs=2, verbose=0)
    assert recorder.trained == [[6, 5, 3, 7], [4, 0, 2, 1], [0, 5, 3, 7], [2, 1, 4, 6]]


@pytest.mark.parametrize(
    ("workers", "shuffle"), [(INLINE, True), (TWO_THREADS, False), (PROCESSES, True)]
)
def test_samples_once_per_epoch(workers, shuffle):
    recorder = Recorder()
    with SafeSequence(numbered(38), 4, shuffle=shuffle, **workers) as sequence:
        recorder.fit(sequence, epochs=3, verbose=0)
    epochs = [samples_of(recorder.trained[start : start + 10]) for start in (0, 10, 20)]
    assert epochs == 3 * [list(range(38))]
    for features, labels in recorder.lists.trained:
        np.testing.assert_array_equal(features, -labels)


@pytest.mark.parametrize("workers", [TWO_THREADS, PROCESSES])
def test_random_state_untouched(workers):
    recorder = built_recorder()
    with sequence_of(BATCHES, **workers) as sequence:
        before = random.getstate(), str(np.random.get_state())
        recorder.fit(sequence, epochs=2, verbose=0)
        assert (random.getstate(), str(np.random.get_state())) == before


@pytest.mark.parametrize(
    ("batches", "steps", "fit_epochs", "workers"),
    [
        (BATCHES, 3, 4, TWO_THREADS),
        (BATCHES, 10, 2, INLINE),
        (BATCHES, 15, 2, TWO_THREADS),
        (1, 1, 3, TWO_THREADS),
        (1, 2, 2, INLINE),
    ],
)
@LOSES_THE_FIRST_BATCH
def test_steps_per_epoch(workers, batches, steps, fit_epochs):
    recorder, sequence = Recorder(), sequence_of(batches, shuffle=True, **workers)
    recorder.fit(sequence, epochs=fit_epochs, steps_per_epoch=steps, verbose=0)
    assert sequence.epoch == steps * fit_epochs // batches
    assert recorder.trained == epochs_of(sequence, 4)[: steps * fit_epochs]


def test_steps_of_zero():
    recorder, sequence = built_recorder(), sequence_of(BATCHES, **TWO_THREADS)
    with sequence:
        given = {"validation_data": sequence, "validation_steps": 0, "verbose": 0}
        recorder.fit(sequence, steps_per_epoch=0, shuffle=False, **given)
        recorder.evaluate(sequence, steps=0, verbose=0)
        assert (recorder.trained, recorder.tested) == (
            epochs_of(sequence, 1, first=0),
            2 * recorder.trained,
        )


def test_initial_epoch_moves_nothing():
    recorder, sequence = Recorder(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=5, initial_epoch=3, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2)


@pytest.mark.parametrize("end", [stop, fail])
@pytest.mark.parametrize(("count", "epoch"), [(BATCHES - 1, 0), (BATCHES, 1)])
def test_epoch_when_fit_is_stopped(count, epoch, end):
    sequence = sequence_of(BATCHES, shuffle=True, **INLINE)
    with contextlib.suppress(Boom):
        built_recorder().fit(sequence, epochs=1, verbose=0, callbacks=[after(count, end)])
    state = {"epoch": 1, "batch": 0} if epoch else {"epoch": 0, "batch": BATCHES - 1}
    assert (sequence.epoch, sequence.state_dict()) == (epoch, state)
    first = numbers(sequence[0])
    assert first == epochs_of(sequence, 1, first=epoch)[0]


class Positions(keras.callbacks.Callback):  # type: ignore[misc]
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
def test_position_after_each_batch(workers):
    sequence = sequence_of(BATCHES, **workers)
    seen = Positions(sequence)
    built_recorder().fit(sequence, epochs=2, verbose=0, callbacks=[seen])
    places = [divmod(place, BATCHES) for place in range(2 * BATCHES + 1)]
    states = [{"epoch": epoch, "batch": batch} for epoch, batch in places]
    assert (seen.before, seen.after) == (states[:-1], states[1:])


def test_state_loaded_within_fit():
    sequence = sequence_of(BATCHES, **INLINE)

    class Loads(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == BATCHES - 1:
                sequence.load_state_dict({"epoch": 5, "batch": 2})

    built_recorder().fit(sequence, verbose=0, callbacks=[Loads()])
    assert sequence.state_dict() == {"epoch": 5, "batch": 2}


def test_position_after_callback_error():
    sequence = sequence_of(BATCHES, **TWO_THREADS)
    with pytest.raises(KeyError):
        built_recorder().fit(sequence, verbose=0, callbacks=[Positions(sequence, fails_before=3)])
    assert sequence.state_dict() == {"epoch": 0, "batch": 3}


# --- validation, evaluate, predict ---


@VALIDATES_ON_WHERE_IT_STOPPED
def test_validation_steps():
    recorder, validation = Recorder(), sequence_of(BATCHES, **TWO_THREADS)
    with validation:
        recorder.fit(
            sequence_of(2), epochs=3, validation_data=validation, validation_steps=4, verbose=0
        )
    assert recorder.tested == 3 * IN_ORDER[:4]


@pytest.mark.parametrize("steps", [None, 1])
def test_validation_of_one_batch(steps):
    recorder, validation = Recorder(), sequence_of(1, shuffle=True, **TWO_THREADS)
    recorder.fit(
        sequence_of(2), epochs=3, validation_data=validation, validation_steps=steps, verbose=0
    )
    assert validation.epoch == 3
    assert recorder.tested == epochs_of(validation, 3)


def test_validation_and_training_epochs():
    recorder, training = Recorder(), sequence_of(3, shuffle=True, **TWO_THREADS)
    with sequence_of(BATCHES, **TWO_THREADS) as validation:
        recorder.fit(training, epochs=3, validation_data=validation, verbose=0)
    assert recorder.tested == 3 * IN_ORDER
    assert recorder.trained == epochs_of(training, 3)


@pytest.mark.parametrize("steps", [None, pytest.param(3, marks=LOSES_THE_FIRST_BATCH)])
def test_evaluate_in_order(steps):
    recorder = Recorder()
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        for _ in range(2):
            recorder.evaluate(sequence, steps=steps, verbose=0)
    assert recorder.tested == 2 * IN_ORDER[:steps]


@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_predict_in_order(workers):
    model, (features, labels) = echo(), numbered(78)
    with SafeSequence((features, labels), 4, **workers) as sequence:
        for _ in range(2):
            np.testing.assert_array_equal(model.predict(sequence, verbose=0), features)


@TAKES_THE_BUILD_FOR_AN_EPOCH
@pytest.mark.parametrize("steps", [None, 1])
def test_evaluate_one_batch(steps):
    recorder, sequence = Recorder(), sequence_of(1, shuffle=True, **TWO_THREADS)
    recorder.evaluate(sequence, steps=steps, verbose=0)
    assert recorder.tested == epochs_of(sequence, 1)


@TAKES_THE_BUILD_FOR_AN_EPOCH
def test_predict_one_batch():
    features, _ = numbered(8)
    sequence = SafeSequence(features, 8, shuffle=True, **TWO_THREADS)
    predicted = echo().predict(sequence, verbose=0)
    assert predicted.ravel().astype(int).tolist() == epochs_of(sequence, 1)[0]


# --- compiled steps, and several in one execution ---


SEVERAL_STEPS = pytest.mark.skipif(
    BACKEND == "torch", reason="Keras runs one step at a time on PyTorch"
)


def trained_weights(options: dict[str, Any], **fit: Any) -> list[np.ndarray]:
    """What an ordinary, compiled model has learnt; every batch and its place leave their mark."""
    model = ordinary_model()
    with noisy(options) as sequence:
        model.fit(sequence, epochs=2, verbose=0, **fit)
    return model.get_weights()


def ordinary_model(**compile_options: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse", **compile_options)
    return model


def noisy(options: dict[str, Any]) -> SafeSequence:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(38, 3)), rng.normal(size=(38, 2))
    return SafeSequence((features.astype("float32"), labels.astype("float32")), 4, **options)


def test_train_on_batch_weights():
    by_hand = ordinary_model()
    with noisy({**TWO_THREADS, "shuffle": True}) as sequence:
        for _ in range(2):
            for features, labels in sequence:
                by_hand.train_on_batch(features, labels)
    fitted = trained_weights({**TWO_THREADS, "shuffle": True})
    for ours, theirs in zip(fitted, by_hand.get_weights()):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@SEVERAL_STEPS
@pytest.mark.parametrize(
    "steps",
    [2, 3, *(pytest.param(steps, marks=TAKES_THE_BUILD_FOR_AN_EPOCH) for steps in (10, 16))],
)
def test_execution_batches(steps):
    recorder = Recorder(steps_per_execution=steps)
    sequence = sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=3, verbose=0)
    assert (recorder.trained, sequence.epoch) == (epochs_of(sequence, 3), 3)


@SEVERAL_STEPS
@pytest.mark.parametrize("steps", [2, pytest.param(3, marks=LOSES_A_LAST_PART)])
def test_execution_weights(steps):
    model = ordinary_model(steps_per_execution=steps)
    with noisy({**TWO_THREADS, "shuffle": True}) as sequence:
        model.fit(sequence, epochs=2, verbose=0)
    for ours, theirs in zip(model.get_weights(), trained_weights({**TWO_THREADS, "shuffle": True})):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@SEVERAL_STEPS
@LOSES_THE_FIRST_BATCH
def test_execution_with_steps_per_epoch():
    recorder = Recorder(steps_per_execution=2)
    sequence = sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=3, steps_per_epoch=4, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2)[:12]


@SEVERAL_STEPS
@pytest.mark.parametrize(("batches", "steps", "together"), [(9, 8, 2), (20, 7, 3), (11, 8, 2)])
def test_execution_position(batches, steps, together):
    model, done = built_recorder(), []
    model.compile(optimizer="adam", loss="mae", run_eagerly=True, steps_per_execution=together)
    sequence = sequence_of(batches, **TWO_THREADS)

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.02)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            state = sequence.state_dict()
            done.append(state["epoch"] * batches + state["batch"] - len(model.trained))

    model.fit(sequence, epochs=2, steps_per_epoch=steps, verbose=0, callbacks=[Slow()])
    lost = done[0]  # Keras 3.6 may build a model that is compiled with a batch.
    assert (done, lost <= together) == ([lost, lost], True)
    if not hasattr(internals.EpochIterator, "_enumerate_iterator"):
        return
    assert lost == 0
