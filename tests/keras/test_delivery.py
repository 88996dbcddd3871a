"""Batches that ``fit``, ``evaluate`` and ``predict`` give a model, whoever computes them."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import internals
from tests.keras import recording
from tests.keras.recording import TWO_THREADS, Recorder, built_recorder, epochs_of, sequence_of
from tests.keras.samples import numbered

# Keras 3.6 warns on TensorFlow when the last execution of an epoch has fewer steps.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
BATCHES = 10
IN_ORDER = [list(range(start, start + 4)) for start in range(0, 4 * BATCHES, 4)]


def compiled_again() -> Recorder:
    recorder = built_recorder()
    recorder.compile(optimizer="adam", loss="mae", run_eagerly=True)
    return recorder


@pytest.mark.parametrize("workers", recording.ALL_WORKERS)
def test_fit_epochs(workers):
    recorder, sequence = Recorder(), sequence_of(BATCHES, shuffle=True, **workers)
    recorder.fit(sequence, epochs=3, verbose=0)
    assert recorder.trained == epochs_of(sequence, 3)


@recording.TAKES_THE_BUILD_FOR_AN_EPOCH
@pytest.mark.parametrize("model", [Recorder, compiled_again])
def test_fit_builds_without_an_epoch(model):
    recorder, sequence = model(), sequence_of(1, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=3, verbose=0)
    assert (recorder.trained, sequence.epoch) == (epochs_of(sequence, 3), 3)


def test_order_of_whole_batches_asks_no_global_generator():
    recorder = built_recorder()
    before = random.getstate(), str(np.random.get_state())
    with sequence_of(6, **TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=2, verbose=0)
    assert (random.getstate(), str(np.random.get_state())) == before
    assert [batch[0] // 4 for batch in recorder.trained] == [0, 3, 1, 2, 4, 5, 3, 5, 1, 0, 2, 4]


@pytest.mark.parametrize(
    ("batches", "steps", "fit_epochs", "workers"),
    [(BATCHES, 3, 4, TWO_THREADS), (BATCHES, 15, 2, recording.INLINE), (1, 2, 2, TWO_THREADS)],
)
@recording.LOSES_THE_FIRST_BATCH
def test_steps_per_epoch(workers, batches, steps, fit_epochs):
    recorder, sequence = Recorder(), sequence_of(batches, shuffle=True, **workers)
    recorder.fit(sequence, epochs=fit_epochs, steps_per_epoch=steps, verbose=0)
    assert sequence.epoch == steps * fit_epochs // batches
    assert recorder.trained == epochs_of(sequence, 4)[: steps * fit_epochs]


def test_initial_epoch_moves_nothing():
    recorder, sequence = built_recorder(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=5, initial_epoch=3, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2)


@pytest.mark.parametrize(
    ("count", "epoch", "end"),
    [
        (3, 0, recording.fail),
        (BATCHES - 1, 0, recording.stop),
        (BATCHES, 1, recording.stop),
        (BATCHES, 1, recording.fail),
    ],
)
def test_epoch_when_fit_is_stopped(count, epoch, end):
    sequence = sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    with contextlib.suppress(recording.Boom):
        built_recorder().fit(sequence, epochs=1, verbose=0, callbacks=[recording.after(count, end)])
    state = {"epoch": epoch, "batch": count % BATCHES}
    assert (sequence.epoch, sequence.state_dict()) == (epoch, state)
    first = recording.numbers(sequence[0])
    assert first == epochs_of(sequence, 1, first=epoch)[0]


@pytest.mark.parametrize("workers", recording.KINDS_OF_WORKERS)
def test_position_after_each_batch(workers):
    sequence = sequence_of(BATCHES, **workers)
    before: list[Any] = []
    ended: list[Any] = []
    callbacks = [
        keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: before.append(sequence.state_dict())
        ),
        recording.AfterBatch(lambda model, count: ended.append(sequence.state_dict())),
    ]
    built_recorder().fit(sequence, epochs=2, verbose=0, callbacks=callbacks)
    places = [divmod(place, BATCHES) for place in range(2 * BATCHES + 1)]
    states = [{"epoch": epoch, "batch": batch} for epoch, batch in places]
    assert (before, ended) == (states[:-1], states[1:])


def test_state_loaded_within_fit():
    sequence, state = sequence_of(BATCHES, **recording.INLINE), {"epoch": 5, "batch": 2}
    loads = recording.after(BATCHES - 1, lambda model: sequence.load_state_dict(state))
    built_recorder().fit(sequence, verbose=0, callbacks=[loads])
    assert sequence.state_dict() == state


# --- validation, evaluate, predict ---


@recording.VALIDATES_ON_WHERE_IT_STOPPED
def test_validation_steps():
    recorder, validation = Recorder(), sequence_of(BATCHES, **TWO_THREADS)
    with validation:
        recorder.fit(
            sequence_of(2), epochs=3, validation_data=validation, validation_steps=4, verbose=0
        )
    assert recorder.tested == 3 * IN_ORDER[:4]


@pytest.mark.parametrize(
    ("batches", "steps"),
    [(1, None), (1, 1), (3, None), pytest.param(3, 4, marks=recording.NEEDS_RESUME)],
)
def test_validation_and_training_epochs(batches, steps):
    recorder, training = built_recorder(), sequence_of(3, shuffle=True, **TWO_THREADS)
    validation = sequence_of(batches, shuffle=True, **TWO_THREADS)
    options = {"validation_data": validation, "validation_steps": steps, "verbose": 0}
    recorder.fit(training, epochs=3, **options)
    assert validation.epoch == 3
    assert recorder.tested == epochs_of(validation, 3)
    assert recorder.trained == epochs_of(training, 3)


@pytest.mark.parametrize("steps", [None, 0, pytest.param(3, marks=recording.LOSES_THE_FIRST_BATCH)])
def test_evaluate_in_order(steps):
    recorder = Recorder()
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        for _ in range(2):
            recorder.evaluate(sequence, steps=steps, verbose=0)
    assert recorder.tested == 2 * IN_ORDER[: steps or BATCHES]  # 0 is None, as in Keras.


@pytest.mark.parametrize("workers", recording.KINDS_OF_WORKERS)
def test_predict_in_order(workers):
    model, (features, labels) = recording.echo(), numbered(30)
    with SafeSequence((features, labels), 4, **workers) as sequence:
        for _ in range(2):
            np.testing.assert_array_equal(model.predict(sequence, verbose=0), features)


@recording.TAKES_THE_BUILD_FOR_AN_EPOCH
def test_evaluate_and_predict_build_without_an_epoch():
    recorder = Recorder()
    with sequence_of(1, shuffle=True, **TWO_THREADS) as sequence:
        recorder.evaluate(sequence, verbose=0)
    features = SafeSequence(numbered(8)[0], 8, shuffle=True, **TWO_THREADS)
    predicted = recording.echo().predict(features, verbose=0)
    assert recorder.tested == epochs_of(sequence_of(1, shuffle=True), 1)
    assert predicted.ravel().astype(int).tolist() == epochs_of(features, 1)[0]


# --- compiled steps, and several in one execution ---


SHUFFLED: recording.Options = {**TWO_THREADS, "shuffle": True}


def ordinary_model(**compile_options: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse", **compile_options)
    return model


def noisy() -> SafeSequence:
    """Samples of which every batch, and its place, leave their mark in the weights."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(38, 3)), rng.normal(size=(38, 2))
    return SafeSequence((features.astype("float32"), labels.astype("float32")), 4, **SHUFFLED)


@pytest.fixture(scope="module")
def weights_by_hand() -> list[np.ndarray]:
    model = ordinary_model()
    with noisy() as sequence:
        for features, labels in [*sequence, *sequence]:
            model.train_on_batch(features, labels)
    return model.get_weights()


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"steps_per_execution": 2}, marks=recording.SEVERAL_STEPS),
        pytest.param(
            {"steps_per_execution": 3}, marks=[recording.SEVERAL_STEPS, recording.LOSES_A_LAST_PART]
        ),
    ],
    ids=str,
)
def test_train_on_batch_weights(options, weights_by_hand):
    model = ordinary_model(**options)
    with noisy() as sequence:
        model.fit(sequence, epochs=2, verbose=0)
    for ours, theirs in zip(model.get_weights(), weights_by_hand, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@recording.SEVERAL_STEPS
@pytest.mark.parametrize(
    ("together", "steps"),
    [
        (3, None),
        pytest.param(16, None, marks=recording.TAKES_THE_BUILD_FOR_AN_EPOCH),
        pytest.param(2, 4, marks=recording.LOSES_THE_FIRST_BATCH),
        pytest.param(4, BATCHES, marks=recording.NEEDS_RESUME),
    ],
)
def test_execution_batches(together, steps):
    recorder = Recorder(steps_per_execution=together)
    sequence = sequence_of(BATCHES, **SHUFFLED)
    recorder.fit(sequence, epochs=3, steps_per_epoch=steps, verbose=0)
    trained = 3 * (steps or BATCHES)
    assert (len(recorder.trained), sequence.epoch) == (trained, trained // BATCHES)
    assert recorder.trained == epochs_of(sequence, 3)[:trained]


def test_steps_per_execution_that_keras_refuses():
    with pytest.raises(TypeError, match="'str'"):
        recording.linear(steps_per_execution="auto").fit(sequence_of(BATCHES), verbose=0)


@pytest.mark.parametrize("steps", [0, pytest.param(-1, marks=pytest.mark.one_keras)])
def test_steps_that_mean_one_pass(steps):
    recorder, made = built_recorder(), itertools.count()

    def limited(batch: Any) -> Any:
        if next(made) >= 5 * BATCHES + 10:
            recording.fail(recorder)
        return batch

    sequence = sequence_of(BATCHES, workers=0, batch_transform=limited)
    steps_of_fit = {"steps_per_epoch": steps, "validation_steps": steps}
    recorder.fit(sequence, epochs=2, validation_data=sequence, **steps_of_fit, verbose=0)
    recorder.evaluate(sequence, steps=steps, verbose=0)
    assert (len(recorder.trained), len(recorder.tested)) == (2 * BATCHES, 3 * BATCHES)


@recording.NEEDS_RESUME
def test_steps_beyond_the_last_batch():
    together = 1 if recording.BACKEND == "torch" else 4
    model, sequence = recording.linear(steps_per_execution=together), sequence_of(BATCHES)
    expected = model.predict(sequence, verbose=0)
    for steps in (BATCHES, BATCHES + 3):
        assert np.array_equal(model.predict(sequence, steps=steps, verbose=0), expected)
        sequence.load_state_dict({"epoch": 0, "batch": BATCHES - 2})
        assert np.array_equal(model.predict(sequence, steps=4, verbose=0), expected[-8:])


@recording.SEVERAL_STEPS
@pytest.mark.parametrize(("batches", "steps", "together"), [(9, 8, 2), (20, 7, 3)])
def test_execution_position(batches, steps, together):
    model, ahead = built_recorder(), []
    model.compile(optimizer="adam", loss="mae", run_eagerly=True, steps_per_execution=together)
    sequence = sequence_of(batches, **TWO_THREADS)

    def look(epoch: int, logs: Any) -> None:
        state = sequence.state_dict()
        ahead.append(state["epoch"] * batches + state["batch"] - len(model.trained))

    slow = recording.AfterBatch(lambda *_: time.sleep(0.02))
    callbacks = [slow, keras.callbacks.LambdaCallback(on_epoch_end=look)]
    model.fit(sequence, epochs=2, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
    # Keras 3.6 may build a model that is compiled with a batch.
    lost = ahead[0] if internals.missing_to_continue() else 0
    assert (ahead, lost <= together) == ([lost, lost], True)
