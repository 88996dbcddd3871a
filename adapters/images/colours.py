"""Colour matrices, channel sums and mixing by the native kernel, for the transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load

_CHANNELS = 3  # Other counts are left to NumPy.
_MIXING = {np.dtype(np.uint8): "mix", np.dtype(np.float32): "mix_floats"}


def mix(images: NDArray[Any], order: NDArray[np.int64], shares: NDArray[np.int64]) -> bool:
    """Mix images in place, each with the next one in an order, the last with the first.

    Args:
        images: uint8 or float32 ``(batch, ...)``, contiguous; other dtypes are left alone.
        order: Each image's number, once.
        shares: Weight of each image itself, in 1/256, by its number.

    Returns:
        True if done; False leaves it to NumPy.
    """
    kernel: Any = load()
    name = _MIXING.get(images.dtype)
    if name is None or kernel is None or not images.size or not images.flags.aligned:
        return False
    getattr(kernel, name)(images, len(images), order, shares)
    return True


def channel_sums(
    images: NDArray[np.uint8], channels: int, size: tuple[int, int], channels_first: bool
) -> NDArray[np.int64] | None:
    """Sum each channel of each image, ``(batch, channels)``; None leaves it to NumPy.

    Args:
        images: uint8, contiguous.
        channels: Number of channels.
        size: ``(height, width)``.
        channels_first: True if channels are the axis after the batch, False if the last.
    """
    kernel: Any = load()
    if kernel is None or channels != _CHANNELS or not images.size:
        return None
    sums = np.empty((len(images), channels), np.int64)
    kernel.channel_sums(images, len(images), *size, channels_first, sums)
    return sums


def float_sums(
    images: NDArray[Any], channels: int, size: tuple[int, int], channels_first: bool
) -> NDArray[np.float64] | None:
    """Sum each channel of each image, ``(batch, channels)``; None leaves it to NumPy.

    Args:
        images: Contiguous; only float32 is handled.
        channels: Number of channels.
        size: ``(height, width)``; rows are added to each other first, then their columns.
        channels_first: True if channels are the axis after the batch, False if the last.
    """
    kernel: Any = load()
    if kernel is None or not _are_floats(images, channels):
        return None
    sums = np.empty((len(images), channels))
    kernel.channel_sums_floats(images, len(images), *size, channels_first, sums)
    return sums


def transform_floats(
    images: NDArray[Any],
    channels: int,
    size: tuple[int, int],
    channels_first: bool,
    matrices: NDArray[Any],
    offsets: NDArray[Any],
    bounds: tuple[float, float],
) -> bool:
    """Replace each pixel by ``matrix @ pixel + offset`` within bounds, in place.

    Args:
        images: Contiguous; only float32 is handled.
        channels: Number of channels.
        size: ``(height, width)``.
        channels_first: True if channels are the axis after the batch, False if the last.
        matrices: ``(batch, channels, channels)``, of the images' dtype.
        offsets: Added to all channels, ``(batch,)``, of their dtype.
        bounds: Lowest and highest value.

    Returns:
        True if done; False leaves it to NumPy.
    """
    kernel: Any = load()
    if kernel is None or not _are_floats(images, channels):
        return False
    given = images, len(images), *size, channels_first, matrices, offsets
    kernel.recolour_floats(*given, *(float(bound) for bound in bounds))
    return True


def _are_floats(images: NDArray[Any], channels: int) -> bool:
    known = images.dtype == np.float32 and channels == _CHANNELS
    return bool(known and images.size and images.flags.aligned)


def transform(
    images: NDArray[np.uint8],
    channels: int,
    size: tuple[int, int],
    channels_first: bool,
    matrices: NDArray[np.int32],
    offsets: NDArray[np.int32],
    bits: int,
    bounds: tuple[int, int],
) -> bool:
    """Replace each pixel by ``(matrix @ pixel + offset) >> bits`` within bounds, in place.

    Args:
        images: uint8, contiguous.
        channels: Number of channels.
        size: ``(height, width)``.
        channels_first: True if channels are the axis after the batch, False if the last.
        matrices: ``(batch, channels, channels)``.
        offsets: Added to all channels, ``(batch,)``.
        bits: Coefficients are multiples of ``2 ** -bits``.
        bounds: Lowest and highest value, within 0 and 255.

    Returns:
        True if done; False leaves it to NumPy.
    """
    kernel: Any = load()
    most = int(np.abs(matrices).sum(axis=2, dtype=np.int64).max(initial=0)) * 255
    most += int(np.abs(offsets.astype(np.int64)).max(initial=0))
    if kernel is None or channels != _CHANNELS or not images.size or most >= 1 << 31:
        return False
    low, high = bounds
    given = images, len(images), *size, channels_first, matrices, offsets
    kernel.recolour(*given, bits, low, high)
    return True
