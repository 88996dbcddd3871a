"""Takes Keras's private names away, one after the other, and trains without each.

So does ``ADAPTERS_STOCK_KERAS=1``. Prints, for each of them, what was warned of, whether Keras's
function for adapters is as it was, the numbers that were predicted from, the batches that were
trained and validated on, the epoch after that, and what is left of the workers.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import keras
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import data_adapter_utils, py_dataset_adapter

from tests.keras.samples import numbered
from tests.leftovers import Leftovers

_PACKAGE = "keras.src.trainers.data_adapters"
_ABSENT = object()
STOCK = data_adapters.get_data_adapter
METHODS = {name: getattr(keras.Model, name) for name in ("fit", "evaluate", "predict")}
BATCHES, EPOCHS = 10, 2
warned: list[str] = []


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            warned.append(record.getMessage())


class _Without(AbstractContextManager[None]):
    """For a while, something that ``where`` has is not there, or something else."""

    def __init__(self, where: Any, name: str, other: Any = _ABSENT) -> None:
        self._where, self._name, self._other = where, name, other

    def __enter__(self) -> None:
        if isinstance(self._where, dict):
            self._there, self._where[self._name] = self._where[self._name], None
        else:
            self._there = self._where.__dict__[self._name]
            delattr(self._where, self._name)
            if self._other is not _ABSENT:
                setattr(self._where, self._name, self._other)

    def __exit__(self, *_: object) -> None:
        if isinstance(self._where, dict):
            self._where[self._name] = self._there
        else:
            setattr(self._where, self._name, self._there)


def _without_shuffle(x: Any, y: Any = None, **options: Any) -> Any:
    return STOCK(x, y, **options)


def breaks() -> dict[str, AbstractContextManager[Any]]:
    """What may have moved, on this backend."""
    adapter = py_dataset_adapter.PyDatasetAdapter
    found: dict[str, AbstractContextManager[Any]] = {
        "ADAPTERS_STOCK_KERAS": mock.patch.dict(os.environ, {"ADAPTERS_STOCK_KERAS": "1"}),
        "data_adapters": _Without(sys.modules, _PACKAGE),
        "py_dataset_adapter": _Without(sys.modules, f"{_PACKAGE}.py_dataset_adapter"),
        "PyDatasetAdapter": _Without(py_dataset_adapter, "PyDatasetAdapter"),
        "its arguments": _Without(adapter, "__init__", lambda self, dataset: None),
        "_standardize_batch": _Without(adapter, "_standardize_batch"),
        "_get_iterator": _Without(adapter, "_get_iterator"),
        "its parameters": _Without(data_adapters, "get_data_adapter", _without_shuffle),
        "get_data_adapter": _Without(data_adapters, "get_data_adapter"),
    }
    if keras.backend.backend() == "tensorflow":
        found["data_adapter_utils"] = _Without(sys.modules, f"{_PACKAGE}.data_adapter_utils")
        found["get_tensor_spec"] = _Without(data_adapter_utils, "get_tensor_spec")
    return found


def imported_without(break_: AbstractContextManager[Any]) -> Callable[..., Any]:
    """``SafeSequence``, imported anew while a name was away."""
    for name in [name for name in sys.modules if name.split(".")[:2] == ["adapters", "keras"]]:
        del sys.modules[name]
    for name, method in METHODS.items():
        setattr(keras.Model, name, method)
    with break_:
        return importlib.import_module("adapters.keras").SafeSequence


def predicted(sequence: Any) -> list[int]:
    """The numbers of the samples that Keras predicts from, in their order."""
    model = keras.Sequential([keras.layers.Activation("linear")])
    model.compile()
    return [int(number) for number in model.predict(sequence, verbose=0).ravel()]


def trained(safe_sequence: Any) -> tuple[list[list[int]], list[list[int]], int]:
    """The batches of ``fit`` in the order of the sequence, those of its validation, the epoch."""
    # These import the package, which has to be without a name by then.
    from tests.keras.recording import Recorder

    recorder, samples = Recorder(), numbered(BATCHES * 4)
    with (
        safe_sequence(samples, 4, shuffle=True, workers=2) as sequence,
        safe_sequence(samples, 4, workers=2) as validation,
    ):
        given = {"validation_data": [validation], "shuffle": False, "verbose": 0}
        recorder.fit(sequence, epochs=EPOCHS, **given)
    return recorder.trained, recorder.tested, sequence.epoch


def report(name: str, safe_sequence: Any) -> None:
    """Print what became of Keras, and of a training."""
    before = Leftovers.now()
    as_it_was = data_adapters.get_data_adapter is STOCK
    with safe_sequence((numbered(10)[0],), 4, workers=2) as sequence:
        numbers = predicted(sequence)
        left = before.lasting()
    found = [*trained(safe_sequence), left]
    print(json.dumps([name, list(warned), as_it_was, numbers, *found]))


if __name__ == "__main__":
    logging.getLogger("adapters").addHandler(_Warnings())
    for name, break_ in breaks().items():
        warned.clear()
        report(name, imported_without(break_))
