"""How Keras runs the steps: compiled or eagerly, several at a time, and in a loop of one's own."""

from __future__ import annotations

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
    TWO_THREADS,
    Recorder,
    built_recorder,
    epochs_of,
    sequence_of,
)
from tests.keras.versions import (
    LOSES_A_LAST_PART,
    LOSES_THE_FIRST_BATCH,
    TAKES_THE_BUILD_FOR_AN_EPOCH,
)

BATCHES = 10
# Keras 3.6 says so on TensorFlow where the last execution of an epoch has fewer steps.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
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


@pytest.fixture(scope="module")
def learnt_inline() -> list[np.ndarray]:
    return trained_weights(INLINE)


@pytest.mark.parametrize("workers", ALL_WORKERS[1:])
def test_a_compiled_model_learns_the_same_with_any_workers(workers, learnt_inline):
    for ours, theirs in zip(trained_weights(workers), learnt_inline):
        np.testing.assert_array_equal(ours, theirs)


def test_fit_is_train_on_batch_over_the_same_batches():
    by_hand = ordinary_model()
    with noisy({**TWO_THREADS, "shuffle": True}) as sequence:
        for _ in range(2):
            for features, labels in sequence:
                by_hand.train_on_batch(features, labels)
    fitted = trained_weights({**TWO_THREADS, "shuffle": True})
    for ours, theirs in zip(fitted, by_hand.get_weights()):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_eager_and_compiled_steps_get_the_same_batches():
    eager = ordinary_model(run_eagerly=True)
    with noisy({**TWO_THREADS, "shuffle": True}) as sequence:
        eager.fit(sequence, epochs=2, verbose=0)
    compiled = trained_weights({**TWO_THREADS, "shuffle": True})
    for ours, theirs in zip(eager.get_weights(), compiled):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@SEVERAL_STEPS
@pytest.mark.parametrize(
    "steps",
    [2, 3, *(pytest.param(steps, marks=TAKES_THE_BUILD_FOR_AN_EPOCH) for steps in (10, 16))],
)
def test_several_steps_per_execution_deliver_epochs_0_1_2(steps):
    recorder = Recorder(steps_per_execution=steps)
    sequence = sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=3, verbose=0)
    assert (recorder.trained, sequence.epoch) == (epochs_of(sequence, 3), 3)


@SEVERAL_STEPS
@pytest.mark.parametrize("steps", [2, pytest.param(3, marks=LOSES_A_LAST_PART)])
def test_several_compiled_steps_per_execution_learn_the_same(steps):
    model = ordinary_model(steps_per_execution=steps)
    with noisy({**TWO_THREADS, "shuffle": True}) as sequence:
        model.fit(sequence, epochs=2, verbose=0)
    for ours, theirs in zip(model.get_weights(), trained_weights({**TWO_THREADS, "shuffle": True})):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@SEVERAL_STEPS
@LOSES_THE_FIRST_BATCH
def test_several_steps_per_execution_with_steps_per_epoch():
    recorder = Recorder(steps_per_execution=2)
    sequence = sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    recorder.fit(sequence, epochs=3, steps_per_epoch=4, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2)[:12]


@SEVERAL_STEPS
@pytest.mark.parametrize(("batches", "steps", "together"), [(9, 8, 2), (20, 7, 3), (11, 8, 2)])
def test_the_position_is_that_of_the_steps_whatever_an_execution_has(batches, steps, together):
    model, done = built_recorder(), []
    model.compile(optimizer="adam", loss="mae", run_eagerly=True, steps_per_execution=together)
    sequence = sequence_of(batches, **TWO_THREADS)

    class Slow(keras.callbacks.Callback):
        """Gives TensorFlow the time to read ahead, and compares."""

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


def test_the_history_is_that_of_the_arrays_themselves():
    """Evaluated on the same samples in the same batches, the losses are equal."""
    model, sequence = ordinary_model(), noisy(TWO_THREADS)
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(38, 3)), rng.normal(size=(38, 2))
    expected = model.evaluate(
        features.astype("float32"), labels.astype("float32"), batch_size=4, verbose=0
    )
    assert model.evaluate(sequence, verbose=0) == pytest.approx(expected, rel=1e-6)
