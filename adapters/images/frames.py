"""Number of images in a file of which OpenCV takes only the first: TIFF pages and animations.

Source: GIF89a; the WebP Container Specification.
"""

from __future__ import annotations

from adapters.images import tiff

_TABLE = 0x80
_EXTENSION, _IMAGE = 0x21, 0x2C


def count(buffer: memoryview | bytes) -> int:
    """Count the images of a TIFF, GIF or WebP; 1 for other kinds."""
    head = bytes(buffer[:16])
    if tiff.is_tiff(buffer):
        return tiff.pages(buffer)
    if head[:4] == b"GIF8":
        return _of_gif(memoryview(buffer))
    if head[:4] == b"RIFF" and head[8:] == b"WEBPVP8X":
        return _of_webp(memoryview(buffer))
    return 1


def _of_gif(view: memoryview) -> int:
    """Count the images of a GIF: a header, an optional colour table, then blocks."""
    if len(view) < 13:
        return 1
    at, images = 13 + _table_bytes(view[10]), 0
    while at + 10 <= len(view) and view[at] in (_EXTENSION, _IMAGE):
        if view[at] == _IMAGE:
            images += 1
            at += 11 + _table_bytes(view[at + 9])
        else:
            at += 2
        while at < len(view) and view[at]:  # Data sub-blocks, each with its length.
            at += 1 + view[at]
        at += 1
    return images


def _table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & _TABLE else 0


def _of_webp(view: memoryview) -> int:
    """Count the frames of a WebP: chunks of a name, u32 bytes and data, padded to even sizes."""
    at, frames = 12, 0
    while at + 8 <= len(view):
        frames += bytes(view[at : at + 4]) == b"ANMF"
        size = int.from_bytes(view[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    return max(frames, 1)
