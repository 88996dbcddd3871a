"""``diagnose`` with a compiled model as the step: it is trained on a clock, and put back."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence, diagnose
from adapters.keras.diagnosed import ModelTrainer
from tests.keras.py_datasets import Numbered
from tests.keras.recording import BACKEND, SEVERAL_STEPS, after, sequence_of
from tests.keras.samples import SLOW, FailsAt, Unreadable, numbered, slow

SECONDS = 0.2
BATCHES = 10
# Keras says so on TensorFlow where an exception ends training early.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning"),
    pytest.mark.one_keras,
]


def model_of(*layers: Any, run_eagerly: bool = True, **options: Any) -> keras.Model:
    """A built model, whose steps are not compiled unless the test is about that."""
    model = keras.Sequential([keras.Input((1,)), *layers, keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.05)
    model.compile(optimizer, "mse", run_eagerly=run_eagerly, **options)
    return model


class SlowModel(keras.Model):
    """A step each ``SLOW`` seconds, which hides what Keras does between them; no compilation."""

    def __init__(self) -> None:
        super().__init__()
        self.due = 0.0
        self.layer = keras.layers.Dense(1)
        self.compile(optimizer="sgd", loss="mse", run_eagerly=True)

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs)

    def train_step(self, *arguments: Any) -> Any:
        time.sleep(max(0.0, self.due - time.perf_counter()))
        self.due = time.perf_counter() + SLOW
        return ({"loss": 0.0}, arguments[0]) if BACKEND == "jax" else {"loss": 0.0}


def values_of(variables: Any) -> list[np.ndarray]:
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


def diagnosed(loader: Any, model: keras.Model) -> Any:
    with loader:
        return diagnose(loader, model, seconds=SECONDS)


# --- what is found ---


def test_slow_step_waits_and_copy():
    diagnosis = diagnosed(sequence_of(2, workers=0), SlowModel())
    assert diagnosis.bottleneck == "step"
    assert diagnosis.same > SLOW / 2
    assert len(diagnosis.waits_seconds) > 2  # Over the ends of epochs.
    assert diagnosis.copy > 0


@pytest.mark.serial
def test_waits_are_the_trainers_own():
    diagnosis = diagnosed(sequence_of(BATCHES, workers=2), SlowModel())
    assert diagnosis.ready_share > 0.9


@pytest.mark.serial
def test_batches_read_before_the_first_step():
    with sequence_of(BATCHES, workers=0, batch_transform=slow) as sequence:
        model = model_of(run_eagerly=False)
        diagnosis = diagnose(sequence, model, t=SLOW / 5, seconds=SECONDS)
    assert len(diagnosis.waits_seconds) > 2
    assert diagnosis.ready_share == 0
    assert diagnosis.parts["transforms"] > 0.8 * SLOW


def test_copy_of_texts():
    batch = np.array(["a", "b"]), np.zeros(2)
    assert ModelTrainer(model_of()).copy_seconds(batch, SECONDS) is None


def test_py_dataset():
    diagnosis = diagnose(Numbered(BATCHES), model_of(), seconds=SECONDS)
    assert diagnosis.replaced == "SafeSequence in the place of the PyDataset"
    assert diagnosis.waits_seconds == ()


@SEVERAL_STEPS
def test_several_steps_in_an_execution():
    model = model_of(steps_per_execution=5, run_eagerly=False)
    diagnosis = diagnosed(sequence_of(BATCHES, workers=0, batch_transform=slow), model)
    assert diagnosis.whole == pytest.approx(SLOW, rel=0.8)


def test_images_are_not_looked_at_for_mistakes(caplog):
    layers = [keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse", run_eagerly=True)
    black = np.zeros((64, 4, 4, 1), np.uint8), np.arange(64.0)
    diagnosed(SafeSequence(black, 4, shuffle=True), model)
    assert "black" not in caplog.text


# --- what is put back ---


def timed(loader: Any, model: keras.Model) -> None:
    with loader:
        ModelTrainer(model).whole(loader, SECONDS)


class Outer(keras.Model):
    """Trains a model of its own, and has no ``call``."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        self.compile(optimizer="sgd", run_eagerly=True)

    def train_step(self, *arguments: Any) -> Any:
        for variable in self.inner.weights:
            variable.assign(variable + keras.ops.ones_like(variable))
        return {"loss": 0.0}


@pytest.mark.skipif(BACKEND == "jax", reason="a train_step for JAX changes no variable itself")
@pytest.mark.parametrize("built", [True, BACKEND == "torch"])  # Which asks for it, or for a call.
def test_model_without_a_call(built):
    model = Outer()
    model.built = built
    before = values_of(model.inner.weights)
    timed(sequence_of(BATCHES, workers=0), model)
    np.testing.assert_equal(values_of(model.inner.weights), before)


@pytest.mark.parametrize("fails", [False, True])
def test_model_is_put_back(fails):
    """With what its layers and its optimizer remember."""
    layers = keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)
    model = model_of(*layers, run_eagerly=False)
    model.fit(*numbered(8), verbose=0)
    before = values_of([*model.variables, *model.optimizer.variables])
    transform = FailsAt(30 if fails else -1)
    with contextlib.suppress(Unreadable):
        timed(sequence_of(BATCHES, workers=2, transform=transform), model)
        assert not fails
    np.testing.assert_equal(values_of([*model.variables, *model.optimizer.variables]), before)


def test_model_that_is_not_built():
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    timed(sequence_of(BATCHES, workers=0), model)
    assert [float(np.ravel(value)[0]) for value in model.get_weights()] == [0.0, 0.0]


def test_diagnosed_in_a_callback():
    found = []
    with sequence_of(BATCHES, workers=0) as sequence, sequence_of(BATCHES, workers=0) as other:
        look = after(1, lambda model: found.append(diagnose(other, len, seconds=0.05)))
        model_of().fit(sequence, callbacks=[look], verbose=0)
    assert [diagnosis.whole > 0 for diagnosis in found] == [True]


def test_model_must_be_compiled():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    with pytest.raises(TypeError, match="which isn't compiled: call its compile"):
        diagnosed(sequence_of(BATCHES, workers=0), model)
