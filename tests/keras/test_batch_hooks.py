"""Hooks of callbacks around batches: called as Keras does, and not at all where none has any."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras.internals import sync_state

BATCHES, BATCH_SIZE = 5, 4
X = np.arange(BATCHES * BATCH_SIZE, dtype="float32").reshape(-1, 1)
CALLS = ("fit", "evaluate", "predict")
KINDS = {"fit": "train", "evaluate": "test", "predict": "predict"}


class Batches(keras.utils.PyDataset):
    """The same batches, read by Keras itself."""

    def __init__(self, labelled: bool) -> None:
        super().__init__()
        self._labelled = labelled

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        x = X[index * BATCH_SIZE : (index + 1) * BATCH_SIZE]
        return (x, x) if self._labelled else (x,)


def data_of(ours: bool, name: str) -> Any:
    if not ours:
        return Batches(name != "predict")
    return SafeSequence(X if name == "predict" else (X, X), BATCH_SIZE)


def compiled() -> keras.Model:
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "mse")
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


@pytest.mark.parametrize("name", CALLS)
def test_callbacks_are_told_what_keras_tells_them(name):
    assert heard(True, name, Told()) == heard(False, name, Told())


@pytest.mark.parametrize(
    "named", ["on_KIND_batch_begin", "on_KIND_batch_end", "on_batch_begin", "on_batch_end"]
)
@pytest.mark.parametrize("name", CALLS)
def test_hooks_of_batches_are_called_as_keras_calls_them(name, named):
    kind = hooks(KINDS[name], named)
    assert heard(True, name, kind()) == heard(False, name, kind())


def test_a_function_in_the_place_of_a_hook_is_called():
    batches: list[int] = []
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: batches.append(batch)
    )
    compiled().fit(data_of(True, "fit"), verbose=0, callbacks=[callback])
    assert batches == list(range(BATCHES))


def test_the_hooks_of_a_validation_within_fit_are_called():
    kind = hooks("test", "on_KIND_batch_end")
    runs = [
        heard(ours, "fit", kind(), validation_data=data_of(ours, "evaluate"))
        for ours in (True, False)
    ]
    assert runs[0] == runs[1]
    assert sum(each[0] == "on_KIND_batch_end" for each in runs[0] if len(each) == 3) == 2 * BATCHES


def test_steps_per_epoch_are_the_steps_that_callbacks_are_told():
    told = Told()
    compiled().fit(data_of(True, "fit"), verbose=0, callbacks=[told], steps_per_epoch=2, epochs=2)
    assert ("train", {"verbose": 0, "epochs": 2, "steps": 2}) in told.heard


@pytest.mark.parametrize("name", CALLS)
def test_no_thread_is_given_hooks_that_do_nothing(name, monkeypatch):
    submitted: list[str] = []
    submit = concurrent.futures.ThreadPoolExecutor.submit

    def noted(self: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
        submitted.append(getattr(function, "__name__", ""))
        return submit(self, function, *arguments, **keywords)

    monkeypatch.setattr(concurrent.futures.ThreadPoolExecutor, "submit", noted)
    getattr(compiled(), name)(data_of(True, name), verbose=0, callbacks=[Told()])
    assert not any("batch" in each for each in submitted)


@pytest.mark.parametrize("named", ["on_train_batch_end", "on_batch_end"])
@pytest.mark.parametrize("moment", ["on_train_begin", "on_epoch_begin"])
def test_a_hook_that_a_callback_gets_later_is_called(moment, named):
    """As tqdm's callback sets its own."""
    batches: list[int] = []

    class Later(keras.callbacks.Callback):
        def _set(self, *_: Any, **__: Any) -> None:
            setattr(self, named, lambda batch, logs=None: batches.append(batch))

    setattr(Later, moment, Later._set)
    compiled().fit(data_of(True, "fit"), verbose=0, callbacks=[Later()])
    assert sorted(batches) == list(range(BATCHES))  # Keras calls such hooks in several threads.


def test_a_list_of_callbacks_calls_all_hooks_in_a_later_call_of_keras_own():
    kind = hooks("test", "on_KIND_batch_end")
    callback, model = kind(), compiled()
    listed = keras.callbacks.CallbackList([], model=model)
    model.evaluate(data_of(True, "evaluate"), verbose=0, callbacks=listed)
    listed.callbacks.append(callback)
    model.evaluate(data_of(False, "evaluate"), verbose=0, callbacks=listed)
    assert sum(each[0] == "on_KIND_batch_end" for each in callback.heard) == BATCHES


def test_a_class_of_callback_lists_with_hooks_of_its_own_keeps_them():
    batches: list[int] = []

    class Own(keras.callbacks.CallbackList):
        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            batches.append(batch)

    model = compiled()
    model.evaluate(data_of(True, "evaluate"), verbose=0, callbacks=Own([], model=model))
    assert batches == list(range(BATCHES))


def test_a_list_of_callbacks_is_as_it_was_after_a_call():
    model = compiled()
    listed = keras.callbacks.CallbackList([keras.callbacks.History()], model=model)
    before = set(vars(listed))
    model.fit(data_of(True, "fit"), verbose=0, callbacks=listed)
    model.evaluate(data_of(True, "evaluate"), verbose=0, callbacks=listed)
    assert {name for name in vars(listed) if name.startswith("on_")} - before == set()


@pytest.mark.parametrize("ours", [True, False])
def test_a_list_of_callbacks_may_serve_an_evaluation_within_fit(ours):
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
