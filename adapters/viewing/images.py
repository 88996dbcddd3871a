"""Detection of images in arrays, thumbnails, and contact sheets as PNG files.

An array is an image if it is numeric, has at least 4 pixels on each side, and is ``(height,
width)`` or has 1, 3 or 4 channels in the last or else the first axis.

One rule scales values to 8 bits. uint8 is shown unchanged. The other images of a call share a
range, so that their brightness stays comparable: [0, 1] if it holds all values, else [0, 255] if it
does, else from the minimum to the maximum. NaN is black.

Thumbnails use nearest-neighbour sampling. Captions need OpenCV; without it, there are none.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.remote.privatefiles import write_whole

RGB = NDArray[np.uint8]
"""uint8 (height, width, 3)."""

TILE_PIXELS = 128
_GAP_PIXELS, _FRAME_PIXELS, _CAPTION_PIXELS = 4, 2, 16
_CAPTION_CHARACTERS = 20
_CHANNELS = (1, 3, 4)
_LEAST_SIDE = 4
_RED = (255, 0, 0)


def images_in(array: Any) -> NDArray[Any] | None:
    """A view of a batch of images, ``(batch, height, width, channels)``; None for anything else."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        return None
    if array.ndim not in (3, 4) or not len(array):
        return None
    if array.ndim == 3:
        array = array[..., np.newaxis]
    elif array.shape[3] not in _CHANNELS:
        array = np.moveaxis(array, 1, 3)
    fits = array.shape[3] in _CHANNELS and min(array.shape[1:3]) >= _LEAST_SIDE
    return array if fits else None


def image_in(array: Any) -> NDArray[Any] | None:
    """A view of one image, ``(height, width, channels)``; None for anything else."""
    images = images_in(array[np.newaxis]) if isinstance(array, np.ndarray) else None
    return None if images is None else images[0]


def thumbnails(images: Sequence[NDArray[Any]]) -> list[RGB]:
    """Scale images to RGB tiles, whose longer side has ``TILE_PIXELS`` pixels."""
    picked = [_nearest_pixels(image) for image in images]
    low, high = _value_range([image for image in picked if image.dtype != np.uint8])
    return [_rgb(image, low, high) for image in picked]


def framed(tile: RGB, box: tuple[float, float, float, float]) -> RGB:
    """A copy of a thumbnail with a red frame: top, left, height and width as fractions."""
    tile = tile.copy()
    height, width = tile.shape[:2]
    top, left = int(box[0] * height), int(box[1] * width)
    bottom = max(top + 1, int((box[0] + box[2]) * height))
    right = max(left + 1, int((box[1] + box[3]) * width))
    inside = tile[top:bottom, left:right]
    inside[:_FRAME_PIXELS] = inside[-_FRAME_PIXELS:] = _RED
    inside[:, :_FRAME_PIXELS] = inside[:, -_FRAME_PIXELS:] = _RED
    return tile


def contact_sheet(rows: Sequence[Sequence[RGB | None]], captions: Sequence[str] = ()) -> bytes:
    """A PNG of thumbnails in rows, None for an empty place, with captions below them in order."""
    if not any(map(len, rows)):
        raise ValueError("rows must hold at least one image, got none")
    writer: Any = None
    if any(captions):
        with contextlib.suppress(ImportError):
            writer = importlib.import_module("cv2")
    height = TILE_PIXELS + _GAP_PIXELS + (_CAPTION_PIXELS if writer is not None else 0)
    width = TILE_PIXELS + _GAP_PIXELS
    sheet = np.full((len(rows) * height, max(map(len, rows)) * width, 3), 255, np.uint8)
    remaining = iter(captions)
    for top, row in zip(range(0, len(sheet), height), rows):
        for left, tile in zip(range(0, sheet.shape[1], width), row):
            if tile is not None:
                sheet[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
            text = next(remaining, "")[:_CAPTION_CHARACTERS]
            if writer is not None:
                place, font = (left, top + height - 2 * _GAP_PIXELS), writer.FONT_HERSHEY_SIMPLEX
                writer.putText(sheet, text, place, font, 0.38, (0, 0, 0), 1)
    return png(sheet[:-_GAP_PIXELS, :-_GAP_PIXELS])


def save(path: str | os.PathLike[str], sheet: bytes) -> None:
    """Write a contact sheet, which appears complete or not at all; a pipe stays in its place."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            file.write(sheet)
    else:
        write_whole(path, sheet)


def png(image: RGB) -> bytes:
    """An image as a PNG file.

        signature | IHDR: size, 8 bits, RGB | IDAT: zlib of rows, each after a 0 | IEND

    (W3C, Portable Network Graphics, third edition.)
    """

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    height, width, _ = image.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # 0: no filter.
    rows[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(rows.tobytes())
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def _nearest_pixels(image: NDArray[Any]) -> NDArray[Any]:
    """Fit an image into a tile, keeping its aspect ratio, and drop a fourth channel."""
    height, width = image.shape[:2]
    scale = TILE_PIXELS / max(height, width)
    size = [max(1, min(TILE_PIXELS, round(side * scale))) for side in (height, width)]
    rows = ((np.arange(size[0]) + 0.5) * height / size[0]).astype(int)
    columns = ((np.arange(size[1]) + 0.5) * width / size[1]).astype(int)
    picked: NDArray[Any] = image[rows[:, np.newaxis], columns, : min(3, image.shape[2])]
    return picked


def _value_range(images: Sequence[NDArray[Any]]) -> tuple[float, float]:
    finite = [values for image in images if (values := image[np.isfinite(image)]).size]
    low = min((float(values.min()) for values in finite), default=0.0)
    high = max((float(values.max()) for values in finite), default=1.0)
    for most in (1.0, 255.0):
        if low >= 0 and high <= most:
            return 0.0, most
    return low, high if high > low else max(low + 1, float(np.nextafter(low, np.inf)))


def _rgb(image: NDArray[Any], low: float, high: float) -> RGB:
    if image.dtype != np.uint8:
        values = (image.astype(np.float64) - low) * (255 / (high - low))
        image = np.clip(np.rint(np.nan_to_num(values)), 0, 255).astype(np.uint8)
    return image if image.shape[2] == 3 else np.repeat(image[..., :1], 3, axis=2)
