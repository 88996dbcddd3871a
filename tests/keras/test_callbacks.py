"""Callbacks: hooks around batches as Keras calls them, and ``WaitReport``."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import Resume, WaitReport, Watch
from adapters.keras.internals import sync_state
from tests.engine.executors import wait_until
from tests.keras.py_datasets import Endless, Given
from tests.keras.recording import BACKEND, SEVERAL_STEPS, AfterBatch, linear, sequence_of
from tests.keras.samples import SLOW, numbered, slow

# Keras 3.6 warns on TensorFlow when the last execution of an epoch has fewer steps.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
BATCHES, BATCH_SIZE = 5, 4
X = np.arange(BATCHES * BATCH_SIZE, dtype="float32").reshape(-1, 1)
BEGINNINGS = ("on_train_begin", "on_test_begin", "on_predict_begin")


def data_of(ours: bool, name: str) -> Any:
    if not ours:
        return Given(*((x,) if name == "predict" else (x, x) for x in np.split(X, BATCHES)))
    return SafeSequence(X if name == "predict" else (X, X), BATCH_SIZE)


def compiled() -> keras.Model:
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "mse", run_eagerly=True)
    model.optimizer.learning_rate = 1e-4
    return model


def logs_of(logs: Any) -> Any:
    found = {key: value for key, value in (logs or {}).items() if key != "outputs"}
    return {key: pytest.approx(float(value), rel=1e-4) for key, value in found.items()}


@pytest.fixture(scope="module")
def model() -> keras.Model:
    """A model whose first steps take no longer than others."""
    model = linear(run_eagerly=True)
    model.fit(*numbered(4 * BATCH_SIZE), batch_size=BATCH_SIZE, verbose=0)
    return model


class Told(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self.heard.append(("model", model.built))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.heard.append((epoch, logs_of(logs)))


def told(*hooks: str) -> Told:
    def beginning(name: str) -> Any:
        return lambda self, logs=None: self.heard.append((name, dict(self.params or {})))

    def hook(name: str) -> Any:
        return lambda self, batch, logs=None: self.heard.append((name, batch, logs_of(logs)))

    methods = {name: beginning(name) for name in BEGINNINGS} | {name: hook(name) for name in hooks}
    return type("Hooked", (Told,), methods)()


def heard(ours: bool, name: str, hooks: tuple[str, ...]) -> Any:
    callback, data, options = told(*hooks), data_of(ours, name), {}
    if name == "fit":
        validation = data_of(ours, "evaluate")
        options = {"shuffle": False, "epochs": 2, "validation_data": validation}
    found = getattr(compiled(), name)(data, verbose=0, callbacks=[callback], **options)
    return callback.heard, found.history.keys() if name == "fit" else None


@pytest.mark.parametrize(
    ("name", "hooks"),
    [
        ("fit", ()),
        ("fit", ("on_train_batch_end", "on_test_batch_begin")),
        ("fit", ("on_batch_begin",)),
        ("fit", ("on_batch_end", "on_test_batch_end")),
        ("evaluate", ("on_test_batch_end",)),
        ("predict", ("on_predict_batch_begin",)),
    ],
)
def test_hooks_as_keras_calls_them(name, hooks):
    assert heard(True, name, hooks) == heard(False, name, hooks)


def test_hook_set_later():
    """As tqdm's callback sets its own."""
    batches: list[int] = []

    class Later(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.on_batch_end = lambda batch, logs=None: batches.append(batch)

    compiled().fit(data_of(True, "fit"), verbose=0, callbacks=[Later()])
    assert sorted(batches) == list(range(BATCHES))  # Keras calls such hooks in several threads.


def test_callback_list_in_a_later_call():
    callback, model = told("on_test_batch_end"), compiled()
    listed = keras.callbacks.CallbackList([], model=model)
    model.evaluate(data_of(True, "evaluate"), verbose=0, callbacks=listed)
    listed.callbacks.append(callback)
    model.evaluate(data_of(False, "evaluate"), verbose=0, callbacks=listed)
    assert sum(each[0] == "on_test_batch_end" for each in callback.heard) == BATCHES


def test_callback_list_with_hooks_of_its_own():
    batches: list[int] = []

    class Own(keras.callbacks.CallbackList):
        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            batches.append(batch)

    model = compiled()
    model.evaluate(data_of(True, "evaluate"), verbose=0, callbacks=Own([], model=model))
    assert batches == list(range(BATCHES))


def test_callback_list_in_evaluation_within_fit():
    model, data = compiled(), data_of(True, "fit")
    states: list[Any] = []

    class Evaluates(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                sync_state(model)
                model.evaluate(data_of(True, "evaluate"), verbose=0, callbacks=listed)
            states.append(data.state_dict()["batch"])

    listed = keras.callbacks.CallbackList([Evaluates()], add_history=True, model=model)
    model.fit(data, epochs=2, verbose=0, callbacks=listed)
    assert states == 2 * [*range(1, BATCHES), 0]
    assert data.epoch == 2


@pytest.mark.parametrize("as_given", [lambda callback: [None, [callback, None]], lambda one: one])
@pytest.mark.parametrize("reads", [True, False], ids=["sequence", "arrays"])
def test_callbacks_that_are_no_flat_list(as_given, reads, model):
    callback = told()
    with sequence_of(BATCHES, workers=0) as sequence:
        given = (sequence,) if reads else numbered(4)
        model.fit(*given, callbacks=as_given(callback), verbose=0)
    assert callback.heard


# --- WaitReport ---


def reported(model: Any, sequence: SafeSequence, *callbacks: Any, **fit: Any) -> WaitReport:
    report = WaitReport(sequence)
    with sequence:
        model.fit(sequence, callbacks=[report, *callbacks], verbose=0, **fit)
    return report


@pytest.mark.one_keras
@pytest.mark.parametrize(
    ("start", "fit", "waits"),
    [
        (0, {"epochs": 2}, BATCHES),
        (0, {"epochs": 2, "steps_per_epoch": BATCHES + 3}, BATCHES + 3),
        (0, {"validation_data": numbered(BATCH_SIZE)}, BATCHES),
        (3, {}, BATCHES - 3),
    ],
    ids=["epochs", "steps", "validation", "state"],
)
def test_waits_of_each_batch(start, fit, waits, model):
    sequence = sequence_of(5 * BATCHES, shard=(1, 5), workers=0)
    sequence.load_state_dict({"epoch": 2, "batch": start})
    report = reported(model, sequence, shuffle=False, **fit)
    assert (len(report.waits_seconds), len(report.shares)) == (waits, fit.get("epochs", 1))


@pytest.mark.one_keras
def test_waits_of_an_endless_source(model):
    sequence = SafeSequence(Endless(), workers=0)
    report = reported(model, sequence, steps_per_epoch=BATCHES, shuffle=False)
    assert len(report.waits_seconds) == BATCHES


@pytest.mark.one_keras
@SEVERAL_STEPS
def test_waits_of_several_steps_in_an_execution():
    sequence = sequence_of(2 * BATCHES, workers=0)
    report = reported(linear(run_eagerly=True, steps_per_execution=2), sequence, epochs=2)
    assert len(report.waits_seconds) == 2 * BATCHES


@pytest.mark.one_keras
def test_waits_for_slow_batches(model):
    """On TensorFlow, which reads ahead, each batch is made after the trainer has asked for it."""
    computed, asked = itertools.count(), []

    def late(batch: Any) -> Any:
        number = next(computed)
        if BACKEND == "tensorflow" and 2 <= number < BATCHES:  # It looks at the first two before.
            wait_until(lambda: len(asked) > number)
        return slow(batch)

    asks = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: asked.append(batch)
    )
    sequence = sequence_of(BATCHES, workers=0, batch_transform=late)
    report = reported(model, sequence, asks, shuffle=False)
    assert min(report.waits_seconds[2:]) >= 0.9 * SLOW
    assert report.shares[0] > 0
    assert (sequence.waits.batches, sequence.waits.seconds[-1] >= SLOW) == (BATCHES, True)


@pytest.mark.one_keras
@pytest.mark.serial
def test_waits_for_batches_read_ahead(model):
    busy = AfterBatch(lambda *_: slow(0))
    report = reported(model, sequence_of(2 * BATCHES, workers=2), busy, epochs=2)
    assert np.median(report.waits_seconds) < SLOW


@pytest.mark.one_keras
def test_waits_of_a_loop():
    with sequence_of(BATCHES, workers=0, batch_transform=slow) as sequence:
        for _ in sequence:
            pass
        assert sequence.waits.share > 0.5
        found = [(wait.epoch, wait.step) for wait in sequence.waits.latest()]
    assert found == [(0, step) for step in range(BATCHES)]


def test_repr(tmp_path):
    sequence = SafeSequence(X, BATCH_SIZE)
    found = list(map(repr, (WaitReport(sequence), Resume(tmp_path), Watch(spike=20))))
    expected = f"<WaitReport of {sequence!r}>", f"<Resume in {tmp_path}>"
    assert found == [*expected, "<Watch with spike=20.0, path=None>"]


def test_wait_report_log(caplog, model):
    with caplog.at_level(logging.INFO, "adapters"):
        reported(model, sequence_of(BATCHES, workers=0), epochs=2)
    lines = [record.getMessage() for record in caplog.records if ": waited " in record.getMessage()]
    assert [line[:16] for line in lines] == ["epoch 0: waited ", "epoch 1: waited "]
    assert "99% of them within" in lines[0]


def test_wait_report_of_another():
    with pytest.raises(TypeError, match=r"sequence must be the SafeSequence .* got list"):
        WaitReport([1, 2])
