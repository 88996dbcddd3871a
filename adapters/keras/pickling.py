"""Pickling of data sets for worker processes, without importing Keras, which takes seconds.

Keras's ``PyDataset`` class is replaced by a plain class, and a ``SafeSequence`` by a stand-in that
imports it on first use.
"""

from __future__ import annotations

from typing import Any

import keras

from adapters.engine.serialization import IMPORTERS, Later, reducers
from adapters.keras.sequence import SafeSequence
from adapters.sources import reduce_iterator
from adapters.sources.sequence import PyDatasetWithoutKeras


def _plain_class() -> type:
    return PyDatasetWithoutKeras


def _reduce(value: Any) -> Any:
    if value is keras.utils.PyDataset:
        return _plain_class, ()
    if type(value) is SafeSequence:
        return Later, (SafeSequence.__module__, SafeSequence.__name__), value.__getstate__()
    return NotImplemented


reducers += (_reduce, reduce_iterator)
IMPORTERS["mxnet"] = "adapters.gluon"  # A transform may use it; NumPy may lack names it needs.
