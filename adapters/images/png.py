"""What is read of a PNG before OpenCV decodes it: its size, and whether it is whole.

::

    PNG    89 "PNG" 0D 0A 1A 0A | chunk | chunk | ... | chunk "IEND"
    chunk  u32 bytes of the data | kind, 4 letters | data | u32 CRC of kind and data

All numbers are big-endian (W3C, Portable Network Graphics, third edition). What makes it move is in
chunks of three kinds, which decoders that know none of them leave out: the picture is that of its
``IDAT`` then. OpenCV from 4.11 on reads them, and takes other pixels out of some of these files, or
none.
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
    """What a PNG's header says of its pixels.

    Args:
        bits: Of a sample, or of an index.
        kind: 0 grey, 2 RGB, 3 a palette, 4 grey and alpha, 6 RGBA.
    """

    bits: int
    kind: int


GREY, PALETTE, GREY_ALPHA = 0, 3, 4


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Height and width, by the header alone.

    Raises:
        ContentError: The header is damaged.
    """
    head = bytes(buffer[:_HEADER_BYTES])
    if zlib.crc32(head[12:29]).to_bytes(4, "big") != head[29:]:
        raise ContentError("a PNG image", "a damaged or cut header")
    return int.from_bytes(head[20:24], "big"), int.from_bytes(head[16:20], "big")


def colours(buffer: memoryview | bytes) -> Colours:
    """Depth and kind, of a header that ``size_of`` has read."""
    return Colours(*bytes(buffer[24:26]))


def chunks(buffer: memoryview | bytes) -> Iterator[tuple[bytes, int, int]]:
    """The kind of each chunk, where it begins and where it ends.

    All CRCs are looked at, and that it has an end: some OpenCVs decode as far as it goes.

    Raises:
        ContentError: It is cut short, or damaged.
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
    """The same without what makes it move, if there is such a thing.

    Raises:
        ContentError: It is cut short, or damaged.
    """
    return _without(_ANIMATION, buffer)


def as_grey(buffer: memoryview | bytes) -> bytes:
    """A PNG of indices into a palette as one of grey values, each index times ``255 // most``.

    Raises:
        ContentError: It is cut short, or damaged.
    """
    grey = bytearray(_without(_ANIMATION | {b"PLTE", b"tRNS"}, buffer))
    grey[25] = GREY
    grey[29:33] = zlib.crc32(grey[12:29]).to_bytes(4, "big")
    return bytes(grey)


def transparent_grey(buffer: memoryview | bytes) -> int | None:
    """The level that stands for transparent pixels, of a whole grey PNG that has one."""
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
