"""PNG: its size, whether it is complete, and what OpenCV doesn't tell of its pixels.

::

    PNG    89 "PNG" 0D 0A 1A 0A | chunk | chunk | ... | chunk "IEND"
    chunk  u32 bytes of the data | kind, 4 letters | data | u32 CRC of kind and data

All numbers are big-endian (W3C, Portable Network Graphics, third edition). Chunks of an animation
are left out: OpenCV from 4.11 on reads them, and returns other pixels for some files, or none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import opencv

MAGIC = b"\x89PNG\r\n\x1a\n"
_HEADER_BYTES = 33
_ANIMATION = {b"acTL", b"fcTL", b"fdAT"}
_COLOURS = {b"PLTE", b"tRNS"}


# Kinds of samples; 2 is RGB, 6 is RGBA.
GREY, PALETTE, GREY_ALPHA = 0, 3, 4


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Read height and width from the header, and check them."""
    head = bytes(buffer[:_HEADER_BYTES])
    if head[12:16] != b"IHDR" or zlib.crc32(head[12:29]).to_bytes(4, "big") != head[29:]:
        raise ContentError("a PNG image", "a damaged or cut header")
    height, width = int.from_bytes(head[20:24], "big"), int.from_bytes(head[16:20], "big")
    opencv.check_size(height, width)
    return height, width


def colours(buffer: memoryview | bytes) -> tuple[int, int]:
    """Read the bits of a sample or index, and the kind, from a header ``size_of`` has checked."""
    return buffer[24], buffer[25]


def chunks(buffer: memoryview | bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the kind of each chunk, and all of its bytes.

    All CRCs and the end are checked: some OpenCV versions decode truncated files as far as they go.
    """
    view = memoryview(buffer)
    at, kind = len(MAGIC), b""
    while kind != b"IEND":
        length, kind = int.from_bytes(view[at : at + 4], "big"), bytes(view[at + 4 : at + 8])
        end = at + 12 + length
        if end > len(view):
            raise ContentError("a PNG image", f"one cut short: {len(view)} bytes of {end}")
        if zlib.crc32(view[at + 4 : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
            raise ContentError("a PNG image", f"a wrong CRC in its {kind!r}, at its byte {at}")
        yield kind, view[at:end]
        at = end


def decode(buffer: memoryview | bytes, indices: bool) -> NDArray[Any]:
    """Decode a PNG as stored, its still image; with ``indices``, a palette's, not its colours."""
    size_of(buffer)
    bits, kind = colours(buffer)
    found: dict[bytes, memoryview] = {}
    is_palette = kind == PALETTE and indices
    skipped = _ANIMATION | _COLOURS if is_palette else _ANIMATION
    kept: list[bytes | memoryview] = [MAGIC]
    for name, chunk in chunks(buffer):
        if name != b"tRNS" or b"IDAT" not in found:  # It counts before the pixels only.
            found.setdefault(name, chunk)
        if name not in skipped:
            kept.append(chunk)
    if is_palette:
        # As grey values, each index times ``255 // most``.
        header = bytearray(kept[1])
        header[17] = GREY
        header[21:25] = zlib.crc32(header[4:21]).to_bytes(4, "big")
        kept[1] = bytes(header)
    is_whole = not skipped & found.keys() and not is_palette
    image = opencv.decode(buffer if is_whole else b"".join(kept))
    most = (1 << bits) - 1
    if is_palette:
        return np.asarray(image // np.uint8(255 // most))
    if kind == GREY_ALPHA:
        return image[:, :, [0, 3]]
    if kind != GREY or b"tRNS" not in found:
        return image
    opaque = 255 if bits <= 8 else 65535
    level = int.from_bytes(found[b"tRNS"][8:-4], "big") * (opaque // most)
    alpha = np.where(image == level, 0, opaque).astype(image.dtype)
    return np.stack([image, alpha], axis=2)
