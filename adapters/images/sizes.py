"""Sizes that image headers claim, read before OpenCV decodes the image.

OpenCV's own limit is 2^30 pixels. If a header has several sizes, the largest counts, as it isn't
known which one OpenCV takes; a header without a size is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from adapters.errors import ContentError
from adapters.images import tiff

_PNM = re.compile(rb"P[1-6fF](?:\s(?:\s|#[^\r\n]*[\r\n])*(\d+))(?:\s(?:\s|#[^\r\n]*[\r\n])*(\d+))")
_HDR = re.compile(rb"-Y\s*\+?(\d+)\s*\+X\s*\+?(\d+)")
_HDR_MOST_BYTES = 1 << 16


def size_in_header(buffer: memoryview | bytes) -> tuple[int, int] | None:
    """Read height and width; None for kinds that aren't known here.

    Raises:
        ContentError: The header is damaged.
    """
    head = bytes(buffer[:32])
    for begin, read in _READERS.items():
        if re.match(begin, head, re.DOTALL):
            try:
                return read(memoryview(buffer))
            except (struct.error, ValueError) as error:
                expected = "an image whose header says how large it is"
                raise ContentError(expected, f"a damaged one: {error}") from error
    return None


def _tiff(view: memoryview) -> tuple[int, int]:
    """Read the size in the first directory, which is the first image's."""
    found = {tiff.WIDTH: 0, tiff.HEIGHT: 0}
    for tag, kind, value in next(tiff.directories(view), []):
        if tag in found:
            if value is None:
                raise ValueError(f"a size of type {kind}")
            found[tag] = max(found[tag], value)
    return found[tiff.HEIGHT], found[tiff.WIDTH]


def _bmp(view: memoryview) -> tuple[int, int]:
    (header_bytes,) = struct.unpack_from("<I", view, 14)
    width, height = struct.unpack_from("<HH" if header_bytes == 12 else "<ii", view, 18)
    return abs(height), width


def _webp(view: memoryview) -> tuple[int, int]:
    """Read the size of a canvas; files without one have at most 16,383 x 16,383 pixels."""
    width, height = (int.from_bytes(view[at : at + 3], "little") + 1 for at in (24, 27))
    return height, width


def _gif(view: memoryview) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", view, 6)
    return height, width


def _sun(view: memoryview) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", view, 4)
    return height, width


def _pnm(view: memoryview) -> tuple[int, int]:
    found = _PNM.match(view)
    if found is None:
        raise ValueError("no width and height behind its first letters")
    return int(found[2]), int(found[1])


def _hdr(view: memoryview) -> tuple[int, int]:
    found = [(int(y), int(x)) for y, x in _HDR.findall(view[:_HDR_MOST_BYTES])]
    return max(found, key=lambda size: size[0] * size[1])


_READERS: dict[bytes, Callable[[memoryview], tuple[int, int]]] = {
    rb"II[*+]\0|MM\0[*+]": _tiff,
    rb"BM": _bmp,
    rb"RIFF....WEBPVP8X": _webp,
    rb"GIF8": _gif,
    rb"\x59\xa6\x6a\x95": _sun,
    rb"P[1-6fF]\s": _pnm,
    rb"#\?(RGBE|RADIANCE)": _hdr,
}
