"""Checks of a PNG before OpenCV decodes it: its size, and whether it is complete.

::

    PNG    89 "PNG" 0D 0A 1A 0A | chunk | chunk | ... | chunk "IEND"
    chunk  u32 bytes of the data | kind, 4 letters | data | u32 CRC of kind and data

All numbers are big-endian (W3C, Portable Network Graphics, third edition). Animation is in chunks
of three kinds; decoders that don't know them skip them and show the image in ``IDAT``. OpenCV from
4.11 on reads them, and returns other pixels for some of these files, or none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from adapters.errors import ContentError

MAGIC = b"\x89PNG\r\n\x1a\n"
_HEADER_BYTES = 33
_ANIMATION = {b"acTL", b"fcTL", b"fdAT"}


class Colours(NamedTuple):
    """Pixel format from a PNG's header.

    Args:
        bits: Bits of a sample, or of an index.
        kind: 0 grey, 2 RGB, 3 a palette, 4 grey and alpha, 6 RGBA.
    """

    bits: int
    kind: int


GREY, PALETTE, GREY_ALPHA = 0, 3, 4


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Read height and width from the header.

    Raises:
        ContentError: The header is damaged.
    """
    head = bytes(buffer[:_HEADER_BYTES])
    if zlib.crc32(head[12:29]).to_bytes(4, "big") != head[29:]:
        raise ContentError("a PNG image", "a damaged or cut header")
    return int.from_bytes(head[20:24], "big"), int.from_bytes(head[16:20], "big")


def colours(buffer: memoryview | bytes) -> Colours:
    """Read depth and kind from a header that ``size_of`` has checked."""
    return Colours(*bytes(buffer[24:26]))


def chunks(buffer: memoryview | bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the kind, begin and end of each chunk.

    All CRCs and the end are checked: some OpenCV versions decode truncated files as far as they go.

    Raises:
        ContentError: The file is cut short, or damaged.
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
        yield kind, at, end
        at = end


def still(buffer: memoryview | bytes) -> memoryview | bytes:
    """Remove the animation, if there is one.

    Raises:
        ContentError: The file is cut short, or damaged.
    """
    return _without(_ANIMATION, buffer)


def as_grey(buffer: memoryview | bytes) -> bytes:
    """Turn a PNG of palette indices into one of grey values, each index times ``255 // most``.

    Raises:
        ContentError: The file is cut short, or damaged.
    """
    grey = bytearray(_without(_ANIMATION | {b"PLTE", b"tRNS"}, buffer))
    grey[25] = GREY
    grey[29:33] = zlib.crc32(grey[12:29]).to_bytes(4, "big")
    return bytes(grey)


def transparent_grey(buffer: memoryview | bytes) -> int | None:
    """Read the grey level that means transparent; the PNG must be complete. None without one."""
    view, at, kind = memoryview(buffer), len(MAGIC), b""
    while kind not in (b"tRNS", b"IDAT", b"IEND"):
        length, kind = int.from_bytes(view[at : at + 4], "big"), bytes(view[at + 4 : at + 8])
        at += 12 + length
    return int.from_bytes(view[at - 4 - length : at - 4], "big") if kind == b"tRNS" else None


def _without(kinds: set[bytes], buffer: memoryview | bytes) -> memoryview | bytes:
    view = memoryview(buffer)
    kept, begin, last = [], 0, 0
    for kind, at, end in chunks(view):
        if kind in kinds:
            kept.append(view[begin:at])
            begin = end
        last = end
    return b"".join([*kept, view[begin:last]]) if kept else buffer
