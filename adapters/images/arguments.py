"""Argument checks of ``ImageDecoder``: return the value to store, or raise with rule and value."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.bands import Unwritten

_DTYPES = ("uint8", "uint16", "float32")


def size_of_row(size: Any) -> tuple[int, int] | None:
    """Return height and width, or None."""
    if size is None:
        return None
    if not isinstance(size, (tuple, list)):
        size = (size, size)
    if len(size) != 2:
        raise ValueError(f"size must be (height, width), a number or None, got {size!r}")
    return side("size", size[0]), side("size", size[1])


def side(name: str, value: Any) -> int:
    """Check a number of pixels."""
    try:
        pixels = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer of pixels, got {value!r}") from None
    if pixels < 1:
        raise ValueError(f"{name} must be >= 1 pixel, got {value!r}")
    return pixels


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Check that a value is allowed."""
    if value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")
    return value


def dtype_of(value: Any) -> np.dtype[Any]:
    """Return uint8, uint16 or float32 as a dtype."""
    try:
        name = np.dtype(value).name
    except TypeError:
        name = ""
    if value is None or name not in _DTYPES:
        raise ValueError(f'dtype must be "uint8", "uint16" or "float32", got {value!r}')
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def interval(name: str, value: Any) -> tuple[float, float]:
    """Return the least and the most."""
    try:
        least, most = map(float, value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be (least, most), got {value!r}") from None
    if not 0 < least <= most < math.inf:
        raise ValueError(f"{name} must be 0 < least <= most, and finite, got {value!r}")
    return least, most


def channels_of(value: Any) -> int | None:
    """Check a number of channels, or None."""
    if value is None or isinstance(value, Unwritten):
        return value
    try:
        channels = operator.index(value)
    except TypeError:
        raise TypeError(
            f"channels must be a number, like 1 or 3, or None for those stored, got {value!r}"
        ) from None
    if isinstance(value, (bool, np.bool_)) or channels < 1:
        raise ValueError(f"channels must be >= 1, or None for those stored, got {value!r}")
    return channels


def of_channels(name: str, value: Any, channels: int | None) -> NDArray[np.float32] | None:
    """Return a number, or one per channel, as float32."""
    if value is None:
        return None
    try:
        array = np.array(value, np.float32)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number or one per channel, got {value!r}") from None
    fits = array.ndim == 1 and array.size and channels in (None, array.size)
    if not (array.shape in ((), (1,)) or fits) or not np.isfinite(array).all():
        called = " (RGB)" if channels == 3 else f" ({channels})" if channels else ""
        raise ValueError(
            f"{name} must be a finite number or one per channel{called}, got {value!r}"
        )
    return array
