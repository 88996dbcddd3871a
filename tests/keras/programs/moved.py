"""Takes Keras's private names away, one after the other, and trains without each.

So does ``ADAPTERS_STOCK_KERAS=1``. Prints, for each of them, what was warned of, whether Keras's
function for adapters is as it was, the numbers that were predicted from, the batches that were
trained and validated on, the epoch after that, and what is left of the workers.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import keras
import pytest
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import data_adapter_utils, py_dataset_adapter

from tests.keras.samples import numbered
from tests.leftovers import Leftovers

PACKAGE = "keras.src.trainers.data_adapters"
ADAPTER = py_dataset_adapter.PyDatasetAdapter
STOCK = data_adapters.get_data_adapter
METHODS = {name: getattr(keras.Model, name) for name in ("fit", "evaluate", "predict")}
BATCHES, EPOCHS = 5, 2


def _without_shuffle(x: Any, y: Any = None, **options: Any) -> Any:
    return STOCK(x, y, **options)


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "ADAPTERS_STOCK_KERAS": lambda patch: patch.setenv("ADAPTERS_STOCK_KERAS", "1"),
    "data_adapters": lambda patch: patch.setitem(sys.modules, PACKAGE, None),
    "PyDatasetAdapter": lambda patch: patch.delattr(py_dataset_adapter, "PyDatasetAdapter"),
    "its arguments": lambda patch: patch.setattr(ADAPTER, "__init__", lambda self, dataset: None),
    "_get_iterator": lambda patch: patch.delattr(ADAPTER, "_get_iterator"),
    "its parameters": lambda patch: patch.setattr(
        data_adapters, "get_data_adapter", _without_shuffle
    ),
}
if keras.backend.backend() == "tensorflow":
    BREAKS["get_tensor_spec"] = lambda patch: patch.delattr(data_adapter_utils, "get_tensor_spec")


def imported_without(name: str) -> Any:
    """``SafeSequence``, imported anew while a name was away."""
    for module in [each for each in sys.modules if each.split(".")[:2] == ["adapters", "keras"]]:
        del sys.modules[module]
    for method, own in METHODS.items():
        setattr(keras.Model, method, own)
    with pytest.MonkeyPatch.context() as patch:
        BREAKS[name](patch)
        return importlib.import_module("adapters.keras").SafeSequence


def predicted(safe_sequence: Any) -> list[int]:
    """The numbers of the samples that Keras predicts from, in their order."""
    model = keras.Sequential([keras.layers.Activation("linear")])
    model.compile(run_eagerly=True)
    with safe_sequence((numbered(10)[0],), 4, workers=2) as sequence:
        return [int(number) for number in model.predict(sequence, verbose=0).ravel()]


def trained(safe_sequence: Any) -> tuple[list[list[int]], list[list[int]], int]:
    """The batches of ``fit`` in the order of the sequence, those of its validation, the epoch."""
    # These import the package, which has to be without a name by then.
    from tests.keras.recording import built_recorder

    recorder, samples = built_recorder(), numbered(BATCHES * 4)
    with (
        safe_sequence(samples, 4, shuffle=True, workers=2) as sequence,
        safe_sequence(samples, 4, workers=2) as validation,
    ):
        given = {"validation_data": [validation], "shuffle": False, "verbose": 0}
        recorder.fit(sequence, epochs=EPOCHS, **given)
        return recorder.trained, recorder.tested, sequence.epoch


if __name__ == "__main__":
    warned: list[str] = []
    logging.getLogger("adapters").addFilter(lambda record: not warned.append(record.getMessage()))
    for name in BREAKS:
        warned.clear()
        kind, before = imported_without(name), Leftovers.now()
        as_it_was = data_adapters.get_data_adapter is STOCK
        found = [predicted(kind), *trained(kind), before.lasting()]
        print(json.dumps([name, list(warned), as_it_was, *found]))
