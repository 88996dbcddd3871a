"""Callbacks: hooks around batches as Keras calls them, and ``WaitReport``."""

from __future__ import annotations

import copy
import itertools
import logging
import time
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import WaitReport, waits
from adapters.keras.internals import sync_state
from tests.engine.executors import wait_until
from tests.keras.py_datasets import Endless, Given
from tests.keras.recording import BACKEND, AfterBatch, linear, sequence_of
from tests.keras.samples import numbered

# Keras 3.6 warns on TensorFlow when the last execution of an epoch has fewer steps.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
BATCHES, BATCH_SIZE, SLOW = 5, 4, 0.05
X = np.arange(BATCHES * BATCH_SIZE, dtype="float32").reshape(-1, 1)
CALLS = ("fit", "evaluate", "predict")
KINDS = {"fit": "train", "evaluate": "test", "predict": "predict"}


def data_of(ours: bool, name: str) -> Any:
    """Batches, or the same ones read by Keras itself."""
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


class Told(keras.callbacks.Callback):
    """Writes down what Keras tells it besides the hooks of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self.heard.append(("model", model.built))

    def on_train_begin(self, logs: Any = None) -> None:
        self.heard.append(("train", dict(self.params or {})))

    def on_test_begin(self, logs: Any = None) -> None:
        self.heard.append(("test", dict(self.params or {})))

    def on_predict_begin(self, logs: Any = None) -> None:
        self.heard.append(("predict", dict(self.params or {})))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.heard.append((epoch, logs_of(logs)))


def hooks(kind: str, named: str) -> type[Told]:
    """A callback with one hook of batches, as a method."""

    def hook(self: Told, batch: int, logs: Any = None) -> None:
        self.heard.append((named, batch, logs_of(logs)))

    return type("Hooked", (Told,), {named.replace("KIND", kind): hook})


def heard(ours: bool, name: str, callback: Any, **arguments: Any) -> Any:
    model, data = compiled(), data_of(ours, name)
    if name == "fit":
        arguments = {"shuffle": False, "epochs": 2, **arguments}
    found = getattr(model, name)(data, verbose=0, callbacks=[callback], **arguments)
    if name == "fit":
        callback.heard.append(found.history.keys())
    return callback.heard


@pytest.mark.parametrize(
    ("name", "named"),
    [
        *((name, named) for name in CALLS for named in (None, "on_KIND_batch_end")),
        ("evaluate", "on_KIND_batch_begin"),
        ("fit", "on_batch_begin"),
        ("fit", "on_batch_end"),
    ],
)
def test_hooks_as_keras_calls_them(name, named):
    kind = hooks(KINDS[name], named) if named else Told
    assert heard(True, name, kind()) == heard(False, name, kind())


def test_hooks_of_validation():
    kind = hooks("test", "on_KIND_batch_end")
    runs = [
        heard(ours, "fit", kind(), validation_data=data_of(ours, "evaluate"))
        for ours in (True, False)
    ]
    assert runs[0] == runs[1]
    assert sum(each[0] == "on_KIND_batch_end" for each in runs[0] if len(each) == 3) == 2 * BATCHES


def test_params_with_steps_per_epoch():
    told = Told()
    compiled().fit(data_of(True, "fit"), verbose=0, callbacks=[told], steps_per_epoch=2, epochs=2)
    assert ("train", {"verbose": 0, "epochs": 2, "steps": 2}) in told.heard


@pytest.mark.parametrize("moment", ["on_train_begin", "on_epoch_begin"])
def test_hook_set_later(moment):
    """As tqdm's callback sets its own."""
    batches: list[int] = []

    class Later(keras.callbacks.Callback):
        def _set(self, *_: Any, **__: Any) -> None:
            self.on_batch_end = lambda batch, logs=None: batches.append(batch)

    setattr(Later, moment, Later._set)
    compiled().fit(data_of(True, "fit"), verbose=0, callbacks=[Later()])
    assert sorted(batches) == list(range(BATCHES))  # Keras calls such hooks in several threads.


def test_callback_list_in_a_later_call():
    kind = hooks("test", "on_KIND_batch_end")
    callback, model = kind(), compiled()
    listed = keras.callbacks.CallbackList([], model=model)
    model.evaluate(data_of(True, "evaluate"), verbose=0, callbacks=listed)
    listed.callbacks.append(callback)
    model.evaluate(data_of(False, "evaluate"), verbose=0, callbacks=listed)
    assert sum(each[0] == "on_KIND_batch_end" for each in callback.heard) == BATCHES


def test_callback_list_with_hooks_of_its_own():
    batches: list[int] = []

    class Own(keras.callbacks.CallbackList):
        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            batches.append(batch)

    model = compiled()
    model.evaluate(data_of(True, "evaluate"), verbose=0, callbacks=Own([], model=model))
    assert batches == list(range(BATCHES))


def test_callback_list_is_left_as_it_was():
    model = compiled()
    listed = keras.callbacks.CallbackList([keras.callbacks.History()], model=model)
    before = set(vars(listed))
    model.fit(data_of(True, "fit"), verbose=0, callbacks=listed)
    model.evaluate(data_of(True, "evaluate"), verbose=0, callbacks=listed)
    assert {name for name in vars(listed) if name.startswith("on_")} - before == set()


@pytest.mark.parametrize("ours", [True, False])
def test_callback_list_in_evaluation_within_fit(ours):
    model, data = compiled(), data_of(True, "fit")
    states: list[Any] = []

    class Evaluates(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                sync_state(model)
                model.evaluate(data_of(ours, "evaluate"), verbose=0, callbacks=listed)
            states.append(data.state_dict()["batch"])

    listed = keras.callbacks.CallbackList([Evaluates()], add_history=True, model=model)
    model.fit(data, epochs=2, verbose=0, callbacks=listed)
    assert states == 2 * [*range(1, BATCHES), 0]
    assert data.epoch == 2


@pytest.mark.parametrize("reads", [True, False], ids=["sequence", "arrays"])
def test_none_among_callbacks(reads):
    told = Told()
    with sequence_of(BATCHES, workers=0) as sequence:
        given = (sequence,) if reads else numbered(4)
        linear().fit(*given, callbacks=[None, [told, None]], verbose=0)
    assert told.heard


# --- WaitReport ---


def slow(item: Any) -> Any:
    time.sleep(SLOW)
    return item


def wait_model(**options: Any) -> keras.Model:
    model = linear(run_eagerly=True, **options)
    model.fit(*numbered(4 * BATCH_SIZE), batch_size=BATCH_SIZE, verbose=0)
    return model


def reported(sequence: SafeSequence, *callbacks: Any, model: Any = None, **fit: Any) -> WaitReport:
    report = WaitReport(sequence)
    with sequence:
        (model or linear(run_eagerly=True)).fit(
            sequence, callbacks=[report, *callbacks], verbose=0, **fit
        )
    return report


@pytest.mark.one_keras
@pytest.mark.parametrize(
    ("make", "fit", "waits"),
    [
        ({}, {"epochs": 2}, BATCHES),
        ({}, {"epochs": 3, "steps_per_epoch": 3}, 3),
        ({}, {"steps_per_epoch": BATCHES + 3}, BATCHES + 3),
        ({}, {"validation_data": True}, BATCHES),
        ({"start": 3}, {}, BATCHES - 3),
        ({"shard": (1, 5), "batches": 5 * BATCHES}, {"epochs": 2, "shuffle": False}, BATCHES),
        ({"endless": True}, {"steps_per_epoch": BATCHES, "shuffle": False}, BATCHES),
    ],
    ids=str,
)
def test_waits_of_each_batch(make, fit, waits):
    if make.get("endless"):
        sequence = SafeSequence(Endless(), workers=0)
    else:
        sequence = sequence_of(make.get("batches", BATCHES), shard=make.get("shard"), workers=0)
    if "start" in make:
        sequence.load_state_dict({"epoch": 2, "batch": make["start"]})
    if "validation_data" in fit:
        fit = {"validation_data": sequence_of(2 * BATCHES, workers=0)}
    report = reported(sequence, **fit)
    assert (len(report.waits_seconds), len(report.shares)) == (waits, fit.get("epochs", 1))


@pytest.mark.one_keras
@pytest.mark.skipif(BACKEND == "torch", reason="Keras runs one step at a time on PyTorch")
def test_waits_of_several_steps_in_an_execution(monkeypatch):
    monkeypatch.setattr(waits, "_LOOKED_UP", 3)  # They are looked up in the midst of the epoch.
    model = wait_model(steps_per_execution=2)
    report = reported(sequence_of(2 * BATCHES, workers=0), model=model, epochs=2)
    assert len(report.waits_seconds) == 2 * BATCHES


@pytest.mark.one_keras
def test_waits_for_slow_batches():
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
    report = reported(sequence, asks, model=wait_model(), shuffle=False)
    assert min(report.waits_seconds[2:]) >= 0.9 * SLOW
    assert report.shares[0] > 0
    assert (sequence.waits.batches, sequence.waits.seconds[-1] >= SLOW) == (BATCHES, True)


@pytest.mark.one_keras
@pytest.mark.serial
def test_waits_for_batches_read_ahead():
    sequence, busy = sequence_of(2 * BATCHES, workers=2), AfterBatch(lambda *_: slow(0))
    report = reported(sequence, busy, model=wait_model(), epochs=2)
    assert np.median(report.waits_seconds) < SLOW


@pytest.mark.one_keras
def test_waits_of_a_loop():
    with sequence_of(BATCHES, workers=0, batch_transform=slow) as sequence:
        for _ in sequence:
            pass
        assert sequence.waits.share > 0.5
        found = [(wait.epoch, wait.step) for wait in sequence.waits.latest()]
    assert found == [(0, step) for step in range(BATCHES)]


@pytest.mark.one_keras
def test_wait_report_deep_copy():
    with sequence_of(BATCHES, workers=0) as sequence:
        report = copy.deepcopy(WaitReport(sequence))
        linear().fit(sequence, callbacks=[report], verbose=0)
    assert len(report.waits_seconds) == BATCHES


def test_wait_report_log(caplog):
    with caplog.at_level(logging.INFO, "adapters"):
        reported(sequence_of(BATCHES, workers=0), epochs=2)
    lines = [record.getMessage() for record in caplog.records if ": waited " in record.getMessage()]
    assert [line[:16] for line in lines] == ["epoch 0: waited ", "epoch 1: waited "]
    assert "99% of them within" in lines[0]


def test_wait_report_of_another():
    with pytest.raises(TypeError, match=r"sequence must be the SafeSequence .* got list"):
        WaitReport([1, 2])
