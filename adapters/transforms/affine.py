"""Affine transforms of colours, in place: one matrix and one offset for each image.

uint8 images are computed in integers, with coefficients in 1/4096: by the native kernel, or by
NumPy with the same values to the bit. Float images are computed in their own precision, float32 by
the kernel, with NumPy's arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.colours import channel_sums, transform
from adapters.transforms.transform import Axes

# Coefficients of uint8 images are multiples of 1 / 2**_BITS: an error of at most 0.1 of 255 values.
_BITS = 12
# Below it, sums of integers are exact in float32.
_EXACT = 1 << 24


def means(images: NDArray[Any], axes: Axes) -> NDArray[np.float64]:
    """Compute the mean of each channel of each image, ``(batch, channels)``."""
    pixels = max(axes.height * axes.width, 1)
    size = axes.height, axes.width
    sums = channel_sums(images, axes.channels, size, axes.channels_first)
    if sums is None and images.dtype == np.uint8:
        sums = _planes(images, axes).sum(axis=2, dtype=np.int64)
    elif sums is None:
        # Add up the rows, then the columns, in the kernel's order of additions.
        planes = axes.channels if axes.channels_first else 1
        rows = images.reshape(len(images), planes, *size, -1).sum(axis=2, dtype=np.float64)
        sums = np.cumsum(rows, axis=2)[:, :, -1].reshape(len(images), -1)
    means: NDArray[np.float64] = sums / pixels
    return means


def apply(
    images: NDArray[Any],
    axes: Axes,
    matrices: NDArray[np.float64],
    offsets: NDArray[np.float64],
    bounds: tuple[float, float],
) -> None:
    """Replace each pixel by ``matrix @ pixel + offset``, within bounds.

    Args:
        images: uint8 or float, contiguous; changed in place.
        axes: Axes of the images.
        matrices: ``(batch, channels, channels)``.
        offsets: Added to all channels, ``(batch,)``.
        bounds: Lowest and highest value.
    """
    if not images.size:
        return
    shape = axes.channels, (axes.height, axes.width), axes.channels_first
    if images.dtype == np.uint8:
        whole = np.rint(matrices * (1 << _BITS)).astype(np.int32)
        added = np.floor(offsets * (1 << _BITS) + (1 << (_BITS - 1))).astype(np.int32)
        within = int(np.ceil(max(bounds[0], 0))), int(np.floor(min(bounds[1], 255)))
        if not transform(images, *shape, whole, added, within, _BITS):
            most = np.abs(whole).sum(axis=2).max() * 255 + np.abs(added).max(initial=0)
            dtype = np.float32 if most < _EXACT else np.float64
            _by_numpy(images, axes, whole.astype(dtype), added.astype(dtype), within, _BITS)
    else:
        own = matrices.astype(images.dtype), offsets.astype(images.dtype)
        if not transform(images, *shape, *own, bounds):
            _by_numpy(images, axes, *own, bounds)


def _planes(images: NDArray[Any], axes: Axes) -> NDArray[Any]:
    """View images as ``(batch, channels, pixels)``."""
    if axes.channels_first:
        found: NDArray[Any] = images.reshape(len(images), axes.channels, -1)
    else:
        found = images.reshape(len(images), -1, axes.channels).transpose(0, 2, 1)
    return found


def _by_numpy(
    images: NDArray[Any],
    axes: Axes,
    matrices: NDArray[Any],
    offsets: NDArray[Any],
    bounds: tuple[float, float],
    bits: int = 0,
) -> None:
    """Apply matrices that are multiples of ``2 ** -bits``, in their dtype."""
    low, high = (matrices.dtype.type(bound) for bound in bounds)
    for image, matrix, offset in zip(_planes(images, axes), matrices, offsets):
        values = image.astype(matrices.dtype, order="C")
        mixed = matrix[:, :1] * values[0]
        for channel in range(1, axes.channels):
            mixed += matrix[:, channel : channel + 1] * values[channel]
        mixed += offset
        if bits:
            mixed *= matrices.dtype.type(1 / (1 << bits))
            np.floor(mixed, out=mixed)
        image[...] = np.clip(mixed, low, high, out=mixed)
