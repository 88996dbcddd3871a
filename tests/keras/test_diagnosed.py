"""What is diagnosed of Keras: a compiled model as the step, trained on a clock and put back."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence, diagnose
from adapters.engine import pool
from adapters.keras.diagnosed import FRONT_END, ModelTrainer
from tests.engine.executors import end_idle_workers
from tests.keras.py_datasets import Numbered
from tests.keras.recording import BACKEND, AfterBatch, sequence_of
from tests.keras.samples import BATCH_SIZE, FailsAt, Unreadable, numbered

SECONDS = 0.2
BATCHES = 10
SLOW = 0.05
# Keras says so on TensorFlow where an exception ends training early.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning"),
    pytest.mark.one_keras,
]


def model_of(*layers: Any, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((1,)), *layers, keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse", **options)
    return model


def slow(item: Any) -> Any:
    time.sleep(SLOW)
    return item


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


def test_what_is_measured_is_not_looked_at_for_mistakes(caplog):
    model = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Flatten()])
    model.add(keras.layers.Dense(1))
    model.compile("sgd", "mse")
    black = np.zeros((64, 4, 4, 1), np.uint8), np.arange(64.0)
    diagnosed(SafeSequence(black, 4, shuffle=True), model)
    assert "black" not in caplog.text


# --- what is found ---


def test_a_slow_batch_transform_is_found():
    diagnosis = diagnosed(sequence_of(BATCHES, workers=0, batch_transform=slow), model_of())
    assert diagnosis.bottleneck in ("transforms", "storage")
    assert diagnosis.parts["transforms"] > 0.8 * SLOW
    assert diagnosis.hints is FRONT_END.hints


def test_a_slow_step_is_found():
    diagnosis = diagnosed(sequence_of(BATCHES, workers=0), SlowModel())
    assert diagnosis.bottleneck == "step"
    assert diagnosis.same == pytest.approx(SLOW, rel=0.5)


@pytest.mark.serial
def test_waits_are_the_trainers_own():
    diagnosis = diagnosed(sequence_of(BATCHES, workers=2), SlowModel())
    assert diagnosis.ready_share > 0.9


@pytest.mark.serial
def test_batches_that_were_read_ahead_of_the_first_step_do_not_count():
    with sequence_of(BATCHES, workers=0, batch_transform=slow) as sequence:
        diagnosis = diagnose(sequence, model_of(), t=SLOW / 5, seconds=SECONDS)
    assert len(diagnosis.waits_seconds) > 2
    assert diagnosis.ready_share == 0


def test_waits_are_kept_over_the_ends_of_epochs():
    diagnosis = diagnosed(sequence_of(2, workers=0), SlowModel())
    assert len(diagnosis.waits_seconds) > 2


def test_the_copy_to_the_device_is_measured():
    diagnosis = diagnosed(sequence_of(BATCHES, workers=0), model_of())
    assert 0 < diagnosis.copy < SLOW


def test_batches_of_other_things_than_numbers_have_no_copy():
    batch = np.array(["a", "b"]), np.zeros(2)
    assert ModelTrainer(model_of()).copy_seconds(batch, SECONDS) is None


def test_a_py_dataset_is_read_by_keras_itself():
    diagnosis = diagnose(Numbered(BATCHES), model_of(), seconds=SECONDS)
    assert diagnosis.replaced == "SafeSequence in the place of the PyDataset"
    assert diagnosis.waits_seconds == ()


@pytest.mark.skipif(BACKEND == "torch", reason="Keras runs one step at a time on PyTorch")
def test_all_batches_of_an_execution_of_several_steps_count():
    model = model_of(steps_per_execution=5)
    diagnosis = diagnosed(sequence_of(BATCHES, workers=0, batch_transform=slow), model)
    assert diagnosis.whole == pytest.approx(SLOW, rel=0.8)


# --- models of other shapes ---


def test_a_model_of_several_inputs_is_trained():
    inputs = {name: keras.Input((1,), name=name) for name in ("a", "b")}
    joined = keras.layers.Concatenate()(list(inputs.values()))
    model = keras.Model(inputs, keras.layers.Dense(1)(joined))
    model.compile(optimizer="sgd", loss="mse")
    features, labels = numbered(BATCHES * BATCH_SIZE)
    sequence = SafeSequence(({"a": features, "b": features}, labels), BATCH_SIZE, workers=0)
    assert diagnosed(sequence, model).whole > 0


class Pair(keras.Model):
    """Trains a model of its own by an optimizer of its own, and has no ``call``."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        self.extra = keras.optimizers.SGD(0.1)
        self.extra.build(self.inner.trainable_variables)
        self.compile(optimizer="sgd", run_eagerly=True)

    def train_step(self, *arguments: Any) -> Any:
        for variable in self.own_variables:
            variable.assign(variable + keras.ops.ones_like(variable))
        return {"loss": 0.0}

    @property
    def own_variables(self) -> list[Any]:
        return [*self.inner.weights, self.extra.iterations]


@pytest.mark.skipif(BACKEND == "jax", reason="a train_step for JAX changes no variable itself")
@pytest.mark.parametrize(
    "built",
    [
        True,
        pytest.param(
            False,
            marks=pytest.mark.skipif(
                BACKEND == "torch", reason="Keras asks for a call, or built = True, on PyTorch"
            ),
        ),
    ],
)
def test_a_model_of_models_with_an_optimizer_each_is_put_back(built):
    model = Pair()
    model.built = built
    before = values_of(model.own_variables)
    diagnosed(sequence_of(BATCHES, workers=0), model)
    for ours, theirs in zip(before, values_of(model.own_variables)):
        np.testing.assert_array_equal(ours, theirs)


# --- what is put back ---


def test_the_weights_are_put_back():
    model = model_of()
    before = model.get_weights()
    diagnosed(sequence_of(BATCHES, workers=0), model)
    for ours, theirs in zip(before, model.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_the_variables_of_the_optimizer_are_put_back():
    model = model_of()
    model.fit(*numbered(8), verbose=0)
    before = values_of(model.optimizer.variables)
    diagnosed(sequence_of(BATCHES, workers=0), model)
    for ours, theirs in zip(before, values_of(model.optimizer.variables)):
        np.testing.assert_array_equal(ours, theirs)


def test_what_a_layer_remembers_is_put_back():
    """The means of a normalisation, and the random numbers of a dropout."""
    model = model_of(keras.layers.BatchNormalization(), keras.layers.Dropout(0.5))
    before = values_of(model.variables)
    diagnosed(sequence_of(BATCHES, workers=0), model)
    for ours, theirs in zip(before, values_of(model.variables)):
        np.testing.assert_array_equal(ours, theirs)


def test_a_model_that_waits_for_its_first_batch_is_built_and_not_trained():
    kernel = keras.layers.Dense(1, kernel_initializer="zeros")
    model = keras.Sequential([kernel])
    model.compile(optimizer="sgd", loss="mse")
    diagnosed(sequence_of(BATCHES, workers=0), model)
    assert [float(np.ravel(value)[0]) for value in model.get_weights()] == [0.0, 0.0]


def test_training_afterwards_is_as_if_nothing_had_been():
    weights = []
    for examined in (False, True):
        model = model_of()
        if examined:
            diagnosed(sequence_of(BATCHES, workers=0), model)
        with sequence_of(BATCHES, workers=0) as sequence:
            model.fit(sequence, epochs=2, verbose=0)
        weights.append(model.get_weights())
    for ours, theirs in zip(*weights):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_the_sequence_goes_on_where_it_stood():
    with sequence_of(BATCHES, workers=0) as sequence:
        sequence.load_state_dict({"epoch": 1, "batch": 4})
        diagnose(sequence, model_of(), seconds=SECONDS)
        assert sequence.state_dict() == {"epoch": 1, "batch": 4}


def test_the_weights_are_put_back_after_an_exception_too():
    model = model_of()
    before = model.get_weights()
    with pytest.raises(Unreadable):
        diagnosed(sequence_of(BATCHES, workers=2, transform=FailsAt(30)), model)
    for ours, theirs in zip(before, model.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_a_model_can_be_diagnosed_in_a_callback_of_its_own_training():
    found = []

    def look(model: Any, count: int) -> None:
        if count == 1:
            with sequence_of(BATCHES, workers=0) as other:
                found.append(diagnose(other, lambda batch: None, seconds=0.05))

    with sequence_of(BATCHES, workers=0) as sequence:
        model_of().fit(sequence, callbacks=[AfterBatch(look)], verbose=0)
    assert len(found) == 1


# --- what is refused ---


def test_a_model_must_be_compiled():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    with pytest.raises(TypeError, match="which isn't compiled: call its compile"):
        diagnosed(sequence_of(BATCHES, workers=0), model)


def test_a_model_copies_for_itself():
    with pytest.raises(ValueError, match="to_device must be None unless step is a function"):
        diagnose(Numbered(BATCHES), model_of(), to_device=lambda batch: batch)


def test_a_short_fit_starts_no_processes(monkeypatch):
    """Whatever is chosen: the work is over before they have started."""

    class Slow(Numbered):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            ends = time.thread_time() + 0.005
            while time.thread_time() < ends:
                pass
            return super().__getitem__(index)

    end_idle_workers()
    started: list[Any] = []
    monkeypatch.setattr(
        pool.shared_pool(), "start_seconds", 4.0
    )  # As on a machine that is as busy.
    monkeypatch.setattr(pool.Pool, "_start", lambda self, lessee: started.append(lessee))
    model = model_of()
    with SafeSequence(Slow(7)) as training, SafeSequence(Slow(7)) as validation:
        for _ in range(2):
            model.fit(training, validation_data=validation, epochs=3, verbose=0)
    assert started == []
