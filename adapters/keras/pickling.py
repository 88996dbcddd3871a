"""How Keras's own class of data sets travels to worker processes: as a stand-in, without Keras."""

from __future__ import annotations

from typing import Any

import keras

from adapters.engine import parcel
from adapters.sources.pydataset import PyDatasetWithoutKeras


def _stand_in() -> type:
    return PyDatasetWithoutKeras


def _reduce(value: Any) -> Any:
    if value is keras.utils.PyDataset:
        return _stand_in, ()
    return NotImplemented


parcel.reducers.append(_reduce)
