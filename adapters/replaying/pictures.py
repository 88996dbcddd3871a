"""Which arrays are pictures, and how they are made ones that can be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.structure import flatten

_CHANNELS = (1, 3, 4)
# Of an edge: a table of numbers that is smaller is none.
_LEAST_PIXELS = 8


def as_numpy(array: Any) -> NDArray[Any]:
    """The same of a framework's array."""
    return np.asarray(array.asnumpy() if hasattr(array, "asnumpy") else array)


def pictures_of(batch: Any) -> list[NDArray[np.uint8]] | None:
    """The pictures of a batch, each uint8 (height, width, 3): its first array that holds any.

    One scale for all of them makes floats 0 to 255, so that what is darker stays so.
    """
    for leaf in flatten(batch)[0]:
        array = as_numpy(leaf)
        if array.ndim in (3, 4) and len(array):
            placed = _channels_last(array[0])
            if placed is not None:
                scaled = _scaled(array)
                return [_coloured(_channels_last(each)) for each in scaled]
    return None


def picture_of(sample: Any) -> NDArray[np.uint8] | None:
    """The picture in a sample, uint8 (height, width, 3); None if there is none."""
    for leaf in flatten(sample)[0]:
        array = as_numpy(leaf)
        if array.dtype.kind in "biuf" and _channels_last(array) is not None:
            return _coloured(_channels_last(_scaled(array)))
    return None


def _channels_last(array: NDArray[Any]) -> NDArray[Any] | None:
    """(height, width, channels) of a picture; None of anything else."""
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    elif array.ndim == 3 and array.shape[2] not in _CHANNELS and array.shape[0] in _CHANNELS:
        array = array.transpose(1, 2, 0)
    fits = array.ndim == 3 and array.shape[2] in _CHANNELS and min(array.shape[:2]) >= _LEAST_PIXELS
    return array if fits else None


def _scaled(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    values = np.nan_to_num(array.astype(np.float64))
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and high <= 255:
        low, high = 0.0, 255.0
    scaled: NDArray[np.uint8] = ((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    return scaled


def _coloured(array: NDArray[Any] | None) -> NDArray[np.uint8]:
    assert array is not None
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array[:, :, :3]
