"""Conversion of an image's bit depth and bands; it loses data only on explicit request.

    stored                 requested                      result
    grey                   3 channels                     three equal ones
    RGB                    1 channel                      grey, 0.299 R + 0.587 G + 0.114 B
    RGBA                   3 or 1 channels, explicitly    as RGB; alpha is dropped
    RGBA                   3 channels, the default        as RGB if it is opaque, else an error
    RGB, grey              4 channels                     RGBA, opaque
    8 bits                 uint16, float32                the same numbers
    16 bits                uint8                          an error
    anything               channels=None                  as stored
    any other bands        another number of channels     an error

Grey with alpha is treated like RGBA.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import opencv


class Unwritten(int):
    """Number of channels by default, not by request: losing transparency to it is an error."""


RGB = Unwritten(3)
_UINT8 = np.dtype(np.uint8)
# Channels with alpha: channels without.
_WITH_ALPHA = {2: 1, 4: 3}


class Wanted(NamedTuple):
    """Requested format of a decoded image; None for the channels or the dtype that are stored."""

    channels: int | None = RGB
    dtype: np.dtype[Any] | None = _UINT8
    interpolation: str = "bilinear"

    @property
    def by_kernel(self) -> bool:
        """True if the kernel supports this format."""
        return self.channels == 3 and self.interpolation == "bilinear" and self.dtype in _BY_KERNEL

    @property
    def indices(self) -> bool:
        """True if a palette gives its indices, not its colours."""
        return self.channels in (1, None) and self.interpolation == "nearest"


# Dtypes whose colours OpenCV converts exactly.
_BY_OPENCV = (np.dtype(np.uint8), np.dtype(np.uint16))
_BY_KERNEL = (np.dtype(np.uint8), np.dtype(np.float32))
PLAIN = Wanted()
AS_STORED = Wanted(None, None)


def fitted(image: NDArray[Any], wanted: Wanted) -> NDArray[Any]:
    """Convert ``(height, width)`` or ``(height, width, channels)`` to channels and dtype.

    uint8 stays uint8 for float32 until it is resized. ``ContentError`` says what would be lost.
    """
    if image.ndim not in (2, 3) or image.dtype.kind not in "biuf":
        raise ContentError(
            "numbers as (height, width) or (height, width, channels)",
            f"{image.dtype} {image.shape}",
        )
    if image.ndim == 2:
        image = image[:, :, np.newaxis]
    if 0 in image.shape[:2]:
        raise ContentError("an image", f"one of {image.shape[0]} x {image.shape[1]} pixels")
    return _in_dtype(_in_channels(image, wanted.channels), wanted.dtype)


def opaque(image: NDArray[Any]) -> NDArray[Any]:
    """Drop an alpha channel that is opaque everywhere."""
    if image.ndim == 3 and image.shape[2] in _WITH_ALPHA and _is_opaque(image):
        return image[:, :, : _WITH_ALPHA[image.shape[2]]]
    return image


def _in_dtype(image: NDArray[Any], dtype: np.dtype[Any] | None) -> NDArray[Any]:
    if dtype is None:
        return image.astype(image.dtype.newbyteorder("="), copy=False)
    if image.dtype == dtype or (image.dtype == _UINT8 and dtype == np.float32):
        return image
    if np.can_cast(image.dtype, dtype):
        return image.astype(dtype)
    if dtype != _UINT8:
        is_float = image.dtype.kind == "f"
        with np.errstate(invalid="ignore", over="ignore"):
            cast = image.astype(dtype)
            is_back = np.array_equal(cast.astype(image.dtype), image, equal_nan=is_float)
        # Casting back also restores negative integers from unsigned ones.
        if is_back and (image.dtype.kind != "i" or dtype.kind == "f" or (image >= 0).all()):
            return cast
    if dtype == _UINT8 and image.dtype == np.uint16:
        keeps = 'an ImageDecoder with dtype="uint16" or "float32" keeps more'
    elif dtype != np.float32:
        keeps = 'an ImageDecoder with dtype="float32" keeps more'
    else:
        keeps = "a function as decode= makes of others what you want"
    raise ContentError(f"an image that {dtype} holds ({keeps})", f"one of {image.dtype}")


def _in_channels(image: NDArray[Any], channels: int | None) -> NDArray[Any]:
    stored = image.shape[2]
    if channels is None or channels == stored:
        return image
    if stored in _WITH_ALPHA and channels in (1, 3):
        if isinstance(channels, Unwritten) and not _is_opaque(image):
            raise ContentError(
                "an image that is opaque, or asked for with its alpha (an ImageDecoder with "
                f"channels={stored} or None keeps it, one with channels=3 drops it)",
                f"one of {stored} channels, transparent in places",
            )
        return _in_channels(image[:, :, : _WITH_ALPHA[stored]], channels)
    if channels == 3 and stored == 1:
        return _coloured(image)
    if channels == 1 and stored == 3:
        return _grey(image)
    if channels == 4 and stored in (1, 2, 3):
        colours = image[:, :, : _WITH_ALPHA.get(stored, stored)]
        opaque = np.full((*image.shape[:2], 1), _most(image), image.dtype)
        alpha = image[:, :, 1:] if stored == 2 else opaque
        return np.concatenate([_in_channels(colours, 3), alpha], axis=2)
    raise ContentError(
        f"an image that {channels} channels hold (an ImageDecoder with channels={stored} or None "
        "keeps all)",
        f"one of {stored} channels",
    )


def _coloured(image: NDArray[Any]) -> NDArray[Any]:
    """Repeat grey as three equal channels."""
    if image.dtype not in _BY_OPENCV or not image.size:
        return np.repeat(image, 3, axis=2)
    # 0.05 ms instead of 0.5 for a 500x375 image.
    cv2 = opencv.load()
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_GRAY2RGB))


def _grey(image: NDArray[Any]) -> NDArray[Any]:
    """Compute grey by OpenCV's weights; equal channels keep their value."""
    if image.dtype in _BY_OPENCV:
        cv2 = opencv.load()
        grey: NDArray[Any] = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY)
        return grey[:, :, np.newaxis]
    red, green, blue = (image[:, :, band] for band in range(3))
    mixed = 0.299 * red + 0.587 * green + 0.114 * blue
    return np.where((red == green) & (green == blue), red, mixed).astype(image.dtype)[..., None]


def _is_opaque(image: NDArray[Any]) -> bool:
    return bool((image[:, :, -1] == _most(image)).all())


def _most(image: NDArray[Any]) -> int:
    return 1 if image.dtype.kind in "bf" else int(np.iinfo(image.dtype).max)
