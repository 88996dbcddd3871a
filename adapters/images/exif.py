"""EXIF orientation of an image, for images that are encoded again.

::

    JPEG  FF D8 | segment | ...    segment: FF, marker, u16 bytes with these two, data
    EXIF  segment E1, "Exif" 00 00, a TIFF without an image
          in a PNG, that TIFF in a chunk "eXIf"; in a WebP, in a chunk "EXIF"

Source: EXIF 2.3, tag 274: the corner of the first pixel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images import png, tiff

_JPEG, _APP1, _SCAN = b"\xff\xd8\xff", 0xE1, 0xDA
_NAME = b"Exif\0\0"


def orientation(buffer: memoryview | bytes) -> int:
    """Return EXIF's 1 to 8; 1 if an image has none or is damaged."""
    block = next(_blocks(memoryview(buffer)), memoryview(b""))
    block = block[len(_NAME) :] if bytes(block[: len(_NAME)]) == _NAME else block
    if not tiff.is_tiff(block):
        return 1
    try:
        found = next(tiff.directories(block), {}).get(tiff.ORIENTATION) or 1
    except (struct.error, ValueError):
        return 1
    return found if 1 <= found <= 8 else 1


def upright(image: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Turn an image (height, width, ...) upright."""
    if orientation >= 5:
        image = image.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def jpeg_segments(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield marker and data of each segment before a JPEG's first scan."""
    at = 2
    while at + 4 <= len(view) and view[at] == 0xFF and view[at + 1] != _SCAN:
        if view[at + 1] == 0xFF:  # Filling.
            at += 1
            continue
        end = at + 2 + int.from_bytes(view[at + 2 : at + 4], "big")
        yield view[at + 1], view[at + 4 : end]
        at = end


def riff_chunks(view: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the chunks of a WebP: a name, u32 bytes and data, padded to even sizes."""
    at = 12
    while at + 8 <= len(view):
        size = int.from_bytes(view[at + 4 : at + 8], "little")
        yield bytes(view[at : at + 4]), view[at + 8 : at + 8 + size]
        at += 8 + size + size % 2


def _blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of EXIF, perhaps with its name."""
    head = bytes(view[:12])
    if head[:3] == _JPEG:
        for marker, data in jpeg_segments(view):
            if marker == _APP1 and bytes(data[: len(_NAME)]) == _NAME:
                yield data
    elif head[:8] == png.MAGIC:
        yield from (chunk[8:-4] for kind, chunk in png.chunks(view) if kind == b"eXIf")
    elif head[8:] == b"WEBP":
        yield from (data for kind, data in riff_chunks(view) if kind == b"EXIF")
