"""Keras's own class of data sets travels to worker processes as a plain class, without Keras."""

from __future__ import annotations

from typing import Any

import keras

from adapters.engine import parcel
from adapters.sources.pydataset import PyDatasetWithoutKeras


def _plain_class() -> type:
    return PyDatasetWithoutKeras


def _reduce(value: Any) -> Any:
    if value is keras.utils.PyDataset:
        return _plain_class, ()
    return NotImplemented


parcel.reducers.append(_reduce)
