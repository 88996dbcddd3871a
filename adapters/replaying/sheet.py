"""Pictures on one sheet, and that as a PNG, by NumPy and zlib alone."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.images.geometry import Crop

_TILE_PIXELS, _GAP_PIXELS, _FRAME_PIXELS = 128, 4, 2
_RED = (255, 0, 0)

Picture = NDArray[np.uint8]


def sheet(pairs: Sequence[tuple[Picture | None, Picture, Crop | None]]) -> Picture:
    """Before above after, beside each other and in rows: uint8 (height, width, 3).

    Args:
        pairs: Of each sample, both pictures, uint8 (height, width, 3), and what was cut out of the
            first; the first may be None.
    """
    across = max(1, math.ceil(math.sqrt(2 * len(pairs))))
    down = -(-len(pairs) // across)
    width = _TILE_PIXELS + _GAP_PIXELS
    height = 2 * _TILE_PIXELS + 2 * _GAP_PIXELS
    page = np.full((down * height, across * width, 3), 255, np.uint8)
    for place, (before, after, crop) in enumerate(pairs):
        top, left = place // across * height, place % across * width
        if before is not None:
            _put(page, top, left, _framed(before, crop))
        _put(page, top + _TILE_PIXELS, left, _fitted(after))
    return page


def png(picture: Picture) -> bytes:
    """A picture, uint8 (height, width, 3), as a PNG file.

        signature | IHDR: size, 8 bits, RGB | IDAT: zlib of rows, each after a 0 | IEND

    (W3C, Portable Network Graphics, third edition.)
    """

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    height, width, _ = picture.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # 0: no filter.
    rows[:, 1:] = picture.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(rows.tobytes())
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def _put(page: Picture, top: int, left: int, tile: Picture) -> None:
    page[top : top + tile.shape[0], left : left + tile.shape[1]] = tile


def _fitted(picture: Picture) -> Picture:
    """Within a tile, of the same aspect; each pixel is the nearest one."""
    scale = _TILE_PIXELS / max(picture.shape[:2])
    rows, columns = (max(1, round(size * scale)) for size in picture.shape[:2])
    down = (np.arange(rows) / scale).astype(int).clip(0, picture.shape[0] - 1)
    across = (np.arange(columns) / scale).astype(int).clip(0, picture.shape[1] - 1)
    fitted: Picture = picture[down[:, np.newaxis], across]
    return fitted


def _framed(picture: Picture, crop: Crop | None) -> Picture:
    """The same with a red frame around what was cut out."""
    tile = np.array(_fitted(picture))
    if crop is None:
        return tile
    size = crop.resized or crop.image
    down, across = tile.shape[0] / size[0], tile.shape[1] / size[1]
    top, left = int(crop.top * down), int(crop.left * across)
    bottom = max(top + 1, int((crop.top + crop.height) * down))
    right = max(left + 1, int((crop.left + crop.width) * across))
    within = tile[top:bottom, left:right].copy()
    frame = _FRAME_PIXELS
    tile[top:bottom, left:right] = _RED
    if bottom - top > 2 * frame and right - left > 2 * frame:
        inner = within[frame:-frame, frame:-frame]
        tile[top + frame : bottom - frame, left + frame : right - frame] = inner
    return tile
