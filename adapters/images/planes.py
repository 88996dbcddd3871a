"""Images stored as planes of Y, U and V, the latter two of half the size: half the bytes of RGB.

::

    93 59 55 56 34 32 30 | u8 version, 1 | u32 height | u32 width | Y | U | V
     .  Y  U  V  4  2  0

Numbers are little-endian. Y is uint8 ``(height, width)``, U and V are uint8 ``((height + 1) // 2,
(width + 1) // 2)``; nothing follows them. Colours are BT.601 in full range, with the chroma in the
middle of its four pixels, as in JPEG files (ITU-T T.871). If a side is odd, the last row or column
counts twice.

The whole image is never converted to RGB: each plane is resized to the row by its own scale, and
converted there, with the arithmetic of ``native/yuv.h``. ``decode_into`` does that with NumPy, and
equals the kernel to the bit.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import kernel
from adapters.images.geometry import Crop, whole

MAGIC = b"\x93YUV420"
_VERSION = 1
_HEADER = struct.Struct("<7sBII")
_CHANNELS = (), (1,), (3,)
# Limit of the decoder.
_MOST_PIXELS = 1 << 28
# In 1/2^16, as in libjpeg.
_Y = 19595, 38470, 7471
_U = -11059, -21709, 32768
_V = 32768, -27439, -5329
_WEIGHT_ONE = np.float32(1 << 11)
# 128, with 3 fractional bits.
_MIDDLE = 128 << 3
# In 1/2^15: 0.598, 0.655864, 0.714136 and 0.772.
_RED_V, _GREEN_U, _GREEN_V, _BLUE_U = 19595, 21491, 23401, 25297

Plane = NDArray[np.uint8]


class _Taps(NamedTuple):
    """Sources of output pixels: weight ``first`` of pixel ``at``, ``second`` of the next one."""

    at: NDArray[np.int64]
    first: NDArray[np.int32]
    second: NDArray[np.int32]


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """Encode an image as planes.

    Args:
        pixels: RGB, uint8 ``(height, width, 3)``; or grey, ``(height, width)`` or with 1 channel,
            which becomes RGB.

    Raises:
        ContentError: The dtype or shape is another, or there are no pixels or too many.
    """
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in _CHANNELS:
        raise ContentError(
            'uint8 (height, width), or with 1 or 3 channels, for YUV; encoding="raw" takes any',
            f"{pixels.dtype} {pixels.shape}",
        )
    height, width = pixels.shape[:2]
    if not 0 < height * width <= _MOST_PIXELS:
        raise ContentError(
            f"a picture of 1 to {_MOST_PIXELS:,} pixels", f"one of {height} x {width} pixels"
        )
    header = _HEADER.pack(MAGIC, _VERSION, height, width)
    if pixels.shape[2:] != (3,):
        half = bytes([128]) * (-(-height // 2) * -(-width // 2))
        return b"".join((header, pixels.tobytes(), half, half))
    if height % 2 or width % 2:
        pixels = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
    channels = [pixels[:, :, c].astype(np.int32) for c in range(3)]
    luma = _product(channels, _Y, 16, 0)[:height, :width]
    fours = []
    for channel in channels:
        pairs = channel[0::2] + channel[1::2]
        fours.append(pairs[:, 0::2] + pairs[:, 1::2])
    chroma = (_product(fours, row, 18, 128) for row in (_U, _V))
    return b"".join((header, luma.tobytes(), *(plane.tobytes() for plane in chroma)))


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Read height and width, and check the number of bytes, which may have any value.

    Raises:
        ContentError: The version is another, or the number of bytes doesn't fit the header.
    """
    if len(buffer) < _HEADER.size:
        raise ContentError(f"a header of {_HEADER.size} bytes", f"{len(buffer)}")
    magic, version, height, width = _HEADER.unpack(buffer[: _HEADER.size])
    if magic != MAGIC or version != _VERSION:
        raise ContentError(f"YUV planes of version {_VERSION}", f"{magic!r}, version {version}")
    half = -(-height // 2) * -(-width // 2)
    size = _HEADER.size + height * width + 2 * half
    if len(buffer) != size:
        raise ContentError(f"{size} bytes of {height} x {width} pixels", f"{len(buffer)}")
    return height, width


def decode(buffer: memoryview | bytes, resized: tuple[int, int] | None = None) -> Plane:
    """Decode an image to RGB, in its own size or resized as a whole.

    Returns:
        uint8 ``(height, width, 3)``.

    Raises:
        ContentError: As for ``size_of``.
    """
    crop = whole(*size_of(buffer))
    if resized is not None:
        crop = crop._replace(resized=resized, height=resized[0], width=resized[1])
    row: Plane = np.empty((crop.height, crop.width, 3), np.uint8)
    if kernel.decode_rows([buffer], [crop], [0], row[np.newaxis], False, None):
        decode_into(buffer, crop, row)
    return row


def decode_into(buffer: memoryview | bytes, crop: Crop, row: Plane) -> None:
    """Resize a crop of an image into its row, with NumPy.

    Args:
        buffer: The image.
        crop: The crop; if the whole image is resized first, its box is as large as the row.
        row: uint8 ``(height, width, 3)``; overwritten completely.

    Raises:
        ContentError: As for ``size_of``.
    """
    height, width = size_of(buffer)
    pixels = np.frombuffer(buffer, np.uint8)
    sizes = (height, width), *[(-(-height // 2), -(-width // 2))] * 2
    axes = _axes(crop, row.shape[:2])
    values, at = [], _HEADER.size
    for number, size in enumerate(sizes):
        plane = pixels[at : at + size[0] * size[1]].reshape(size)
        at += plane.size
        taps = [(_half if number else _whole)(*axis, side) for axis, side in zip(axes, size)]
        values.append(_resized(plane, *taps))
    light, cb, cr = values[0], values[1] - _MIDDLE, values[2] - _MIDDLE
    channels = (
        light + 2 * cr - _rounded(cr, _RED_V),
        light - cb + _rounded(cb, _GREEN_U) - _rounded(cr, _GREEN_V),
        light + cb + _rounded(cb, _BLUE_U),
    )
    for number, channel in enumerate(channels):
        channel += 4
        channel >>= 3
        row[:, :, number] = np.clip(channel, 0, 255, out=channel)
    if crop.flip:
        row[...] = row[:, ::-1].copy()


def _product(
    channels: list[NDArray[np.int32]], factors: tuple[int, ...], bits: int, middle: int
) -> Plane:
    """Weight and add channels, rounded to the nearest; 255.5 becomes 255."""
    r, g, b = (channel * factor for channel, factor in zip(channels, factors))
    r += g
    r += b
    r += (middle << bits) + (1 << (bits - 1))
    r >>= bits
    return np.minimum(r, 255, out=r).astype(np.uint8)


_Axis = tuple[int, int, int, int, int]


def _axes(crop: Crop, goal: tuple[int, ...]) -> list[_Axis]:
    """Return begin, length, resized length, offset and count, for height and width."""
    boxes = zip(crop.image, crop.resized or goal, crop.box[:2], crop.box[2:], goal)
    if crop.resized is not None:
        return [(0, image, resized, begin, count) for image, resized, begin, _, count in boxes]
    return [(begin, length, count, 0, count) for _, _, begin, length, count in boxes]


def _places(length: int, resized: int, offset: int, count: int) -> NDArray[np.float64]:
    scale = 1.0 / (resized / length)
    return (np.arange(count, dtype=np.float64) + offset + 0.5) * scale - 0.5


def _whole(begin: int, length: int, resized: int, offset: int, count: int, plane: int) -> _Taps:
    """Compute taps as ``taps_fill`` of ``native/resize.c``."""
    places = np.maximum(_places(length, resized, offset, count).astype(np.float32), 0)
    at = places.astype(np.int64)
    rest: NDArray[np.float32] = places - at.astype(np.float32)
    taps = _taps(at, rest, length)
    return taps._replace(at=taps.at + begin)


def _half(begin: int, length: int, resized: int, offset: int, count: int, plane: int) -> _Taps:
    """Compute taps as ``half_taps_fill`` of ``native/yuv.c``."""
    places = np.clip(_places(length, resized, offset, count), 0, length - 1)
    places = np.maximum((begin + places) * 0.5 - 0.25, 0)
    at = places.astype(np.int64)
    return _taps(at, (places - at).astype(np.float32), plane)


def _taps(at: NDArray[np.int64], rest: NDArray[np.float32], length: int) -> _Taps:
    second: NDArray[np.float32] = np.where(at < length - 1, rest, np.float32(0))
    weights = (np.rint(part * _WEIGHT_ONE).astype(np.int32) for part in (1 - second, second))
    return _Taps(np.minimum(at, length - 1), *weights)


def _resized(plane: Plane, down: _Taps, across: _Taps) -> NDArray[np.int32]:
    """Resize a plane, with 3 fractional bits."""
    top, bottom = int(down.at.min()), int(down.at.max()) + 2
    rows = plane[top:bottom].astype(np.int32)
    behind = np.minimum(across.at + 1, plane.shape[1] - 1)
    lines = rows.take(across.at, 1)
    lines *= across.first
    right = rows.take(behind, 1)
    right *= across.second
    lines += right
    lines >>= 4
    below = np.minimum(down.at - top + 1, len(lines) - 1)
    above = _rounded(lines.take(down.at - top, 0), down.first[:, np.newaxis])
    return above + _rounded(lines.take(below, 0), down.second[:, np.newaxis])


def _rounded(values: NDArray[np.int32], factors: NDArray[np.int32] | int) -> NDArray[np.int32]:
    products: NDArray[np.int32] = values * factors
    products += 1 << 14
    products >>= 15
    return products
