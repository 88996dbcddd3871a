"""Colour matrices, channel sums and mixing by the native kernel, for the transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load

_CHANNELS = 3  # Other counts are left to NumPy.
_UINT8, _FLOAT32 = np.dtype(np.uint8), np.dtype(np.float32)


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
    if kernel is None or not _is_known(images):
        return False
    function = kernel.mix if images.dtype == _UINT8 else kernel.mix_floats
    function(images, len(images), order, shares)
    return True


def channel_sums(
    images: NDArray[Any], channels: int, size: tuple[int, int], channels_first: bool
) -> NDArray[Any] | None:
    """Sum each channel of each image; None leaves it to NumPy.

    Args:
        images: uint8 or float32, contiguous.
        channels: Number of channels.
        size: ``(height, width)``. Rows of floats are added to each other first, then their columns.
        channels_first: True if channels are the axis after the batch, False if the last.

    Returns:
        ``(batch, channels)``: int64 for uint8, float64 for float32.
    """
    kernel: Any = load()
    if kernel is None or channels != _CHANNELS or not _is_known(images):
        return None
    is_uint8 = images.dtype == _UINT8
    sums = np.empty((len(images), channels), np.int64 if is_uint8 else np.float64)
    function = kernel.channel_sums if is_uint8 else kernel.channel_sums_floats
    function(images, len(images), *size, channels_first, sums)
    return sums


def transform(
    images: NDArray[Any],
    channels: int,
    size: tuple[int, int],
    channels_first: bool,
    matrices: NDArray[Any],
    offsets: NDArray[Any],
    bounds: tuple[float, float],
    bits: int = 0,
) -> bool:
    """Replace each pixel by ``matrix @ pixel + offset`` within bounds, in place.

    Args:
        images: uint8 or float32, contiguous.
        channels: Number of channels.
        size: ``(height, width)``.
        channels_first: True if channels are the axis after the batch, False if the last.
        matrices: ``(batch, channels, channels)``, float32; int32 for uint8 images.
        offsets: Added to all channels, ``(batch,)``, of the matrices' dtype.
        bounds: Lowest and highest value; integers within 0 and 255 for uint8 images.
        bits: For uint8 images, matrices and offsets are multiples of ``2 ** -bits``; results are
            rounded down.

    Returns:
        True if done; False leaves it to NumPy.
    """
    kernel: Any = load()
    if kernel is None or channels != _CHANNELS or not _is_known(images):
        return False
    given = images, len(images), *size, channels_first, matrices, offsets
    if images.dtype == _FLOAT32:
        kernel.recolour_floats(*given, float(bounds[0]), float(bounds[1]))
        return True
    most = int(np.abs(matrices).sum(axis=2, dtype=np.int64).max(initial=0)) * 255
    most += int(np.abs(offsets.astype(np.int64)).max(initial=0))
    if most >= 1 << 31:
        return False
    kernel.recolour(*given, bits, *bounds)
    return True


def _is_known(images: NDArray[Any]) -> bool:
    """True if the kernel reads these images."""
    known = images.dtype in (_UINT8, _FLOAT32) and images.size and images.flags.aligned
    return bool(known)
