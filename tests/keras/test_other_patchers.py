"""Other packages that patch ``keras.Model``, as autologgers and tuners do, beside this one."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras.src.trainers import data_adapters

from adapters import SafeSequence
from adapters.keras import Resume
from adapters.keras.adapter import _Batches
from tests.keras.recording import built_recorder, epochs_of, sequence_of

BATCHES = 6
CALLS = ("fit", "evaluate", "predict")


@pytest.fixture(autouse=True)
def put_back_at_the_end() -> Iterator[None]:
    ours = {name: getattr(keras.Model, name) for name in CALLS}
    of_adapters = data_adapters.get_data_adapter
    yield
    data_adapters.get_data_adapter = of_adapters
    for name, method in ours.items():
        setattr(keras.Model, name, method)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_lost_its_wrapper_says_so_and_the_next_one_has_it_again(name, caplog):
    setattr(keras.Model, name, inspect.unwrap(getattr(keras.Model, name)))
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.arange(8, dtype="float32").reshape(-1, 1)
    with SafeSequence(x if name == "predict" else (x, x), 2, workers=0) as sequence:
        getattr(model, name)(sequence, verbose=0)
        assert [f"around {name}," in line for line in warnings_of(caplog)] == [True]
        getattr(model, name)(sequence, verbose=0)
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("late_seconds", [0.0, 0.5])
def test_batches_and_epochs_are_right_without_the_wrapper(late_seconds, monkeypatch):
    """TensorFlow may ask for the end of the data only when ``fit`` is over, if at all."""
    finish = _Batches._finish

    def late(self: _Batches) -> None:
        time.sleep(late_seconds)
        finish(self)

    monkeypatch.setattr(_Batches, "_finish", late)
    keras.Model.fit = inspect.unwrap(keras.Model.fit)
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, workers=2) as sequence:
        recorder.fit(sequence, epochs=2, verbose=0)
        assert sequence.epoch == 2
    assert recorder.trained == epochs_of(sequence_of(BATCHES, shuffle=True, workers=0), 2)


@pytest.mark.one_keras  # Resume needs a newer one than the oldest.
@pytest.mark.parametrize("wraps", [True, False])
def test_a_patch_around_ours_changes_nothing(wraps, tmp_path, caplog):
    recorder, inner, calls = built_recorder(), keras.Model.fit, []

    def fit(self: Any, *arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        return inner(self, *arguments, **keywords)

    keras.Model.fit = functools.wraps(inner)(fit) if wraps else fit
    with sequence_of(BATCHES, workers=0) as sequence:
        recorder.fit(sequence, epochs=2, callbacks=[Resume(tmp_path)], verbose=0)
    assert (len(recorder.trained), calls, warnings_of(caplog)) == (2 * BATCHES, [1], [])


@pytest.mark.one_keras
def test_resume_is_refused_where_fit_lost_its_wrapper(tmp_path):
    keras.Model.fit = inspect.unwrap(keras.Model.fit)
    with sequence_of(BATCHES, workers=0) as sequence, pytest.raises(RuntimeError, match="Resume"):
        built_recorder().fit(sequence, callbacks=[Resume(tmp_path)], verbose=0)


def test_keras_s_own_adapter_in_the_place_of_ours_is_named(caplog):
    data_adapters.get_data_adapter = inspect.unwrap(data_adapters.get_data_adapter)
    recorder = built_recorder()
    with sequence_of(BATCHES, workers=0) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
    assert ["restored its get_data_adapter" in line for line in warnings_of(caplog)] == [True]
    assert recorder.trained == 2 * epochs_of(sequence_of(BATCHES, workers=0), 1)
