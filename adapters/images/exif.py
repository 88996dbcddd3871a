"""EXIF orientation of a JPEG, for images that are encoded again.

::

    JPEG  FF D8 | segment | ...    segment: FF, marker, u16 bytes with these two, data
    EXIF  segment E1, "Exif" 00 00, a TIFF without an image

Source: EXIF 2.3, tag 274: the corner of the first pixel.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images import tiff

_JPEG, _APP1, _SCAN = b"\xff\xd8\xff", 0xE1, 0xDA
_NAME = b"Exif\0\0"


def orientation(buffer: memoryview | bytes) -> int:
    """Return EXIF's 1 to 8; 1 if there is none, or a damaged one."""
    segments = jpeg_segments(memoryview(buffer)) if bytes(buffer[:3]) == _JPEG else ()
    for marker, data in segments:
        if marker == _APP1 and bytes(data[: len(_NAME)]) == _NAME:
            block = data[len(_NAME) :]
            with contextlib.suppress(struct.error, ValueError):
                tags = next(tiff.directories(block), {}) if tiff.is_tiff(block) else {}
                found = tags.get(tiff.ORIENTATION) or 1
                return found if 1 <= found <= 8 else 1
    return 1


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
