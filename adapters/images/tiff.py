"""TIFF: the tags of its directories, as Pillow reads them, and its first page, upright.

A TIFF has one directory a page; EXIF is a TIFF without an image. Pillow decodes 8 bits, OpenCV more
bits of grey and RGB, and tifffile other bands. OpenCV's own limit is 2^30 pixels, and of several
pages all of them take the first; so size and pages are read from the directories before.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import opencv, pillow

_TAGS = 254, 256, 257, 258, 262, 274, 277, 284, 338, 339
_SUBFILE, _WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, ORIENTATION, *_MORE = _TAGS
_SAMPLES, _PLANAR, _EXTRA, _FORMAT = _MORE
_HEADS = b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"
_BIG = 43  # A BigTIFF's number; of those, Pillow reads the little-endian ones.
# Bits of a page's subfile type: a smaller version of another page, or its mask.
_NO_PAGE = 1 | 4
# Photometric interpretations.
_GREYS, _RGB, _PALETTE, _CMYK = (0, 1), 2, 3, 5
# Extra sample: an alpha that the colours aren't multiplied by.
_UNASSOCIATED = 2
# Sample formats; below, with their bits.
_UNSIGNED, _SIGNED, _FLOATING = 1, 2, 3
_READ_BY_OPENCV = {(_UNSIGNED, 8), (_UNSIGNED, 16), (_FLOATING, 32), (_FLOATING, 64)} | {
    (_SIGNED, bits) for bits in (8, 16, 32)
}
_MOST_VALUES = 1 << 31


def is_tiff(buffer: memoryview | bytes) -> bool:
    """True if the buffer begins like a TIFF or a BigTIFF."""
    return bytes(buffer[:4]) in _HEADS


def directories(buffer: memoryview | bytes) -> list[dict[int, int]]:
    """Read some tags of each directory: integers, of several the first.

    ``ContentError`` says that it is damaged.
    """
    plugin, file = pillow.plugin("Tiff"), io.BytesIO(buffer)
    found: list[dict[int, int]] = []
    seen = {0}
    try:
        directory = plugin.ImageFileDirectory_v2(file.read(16 if buffer[2] == _BIG else 8))
        while directory.next not in seen:
            seen.add(directory.next)
            file.seek(directory.next)
            directory.load(file)
            found.append({})
            for tag in _TAGS:
                value = directory.get(tag)
                first = value[0] if isinstance(value, tuple) else value
                if isinstance(first, int):
                    found[-1][tag] = first
    except Exception as error:  # Pillow raises many kinds for damaged files.
        raise ContentError("a TIFF image", f"a damaged one: {error}") from error
    return found


def upright(image: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Turn an image (height, width, ...) upright; ``orientation`` is EXIF's 1 to 8."""
    if orientation >= 5:
        image = image.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def decode(buffer: memoryview | bytes, indices: bool) -> NDArray[Any]:
    """Decode the first page; ``indices`` asks for those of a palette, if it has one."""
    pages = directories(buffer) or [{}]
    tags = pages[0]
    height, width = tags.get(_HEIGHT, 0), tags.get(_WIDTH, 0)
    opencv.check_size(height, width)
    is_page = [_WIDTH in page and not page.get(_SUBFILE, 0) & _NO_PAGE for page in pages]
    opencv.check_one(sum(is_page))
    bands, bits, colours = tags.get(_SAMPLES, 1), tags.get(_BITS, 1), tags.get(_PHOTOMETRIC)
    number, extra = tags.get(_FORMAT, _UNSIGNED), tags.get(_EXTRA)
    if bits <= 8 and number == _UNSIGNED:
        has_alpha = bands == 4 and extra == _UNASSOCIATED
        if bands == 1 or colours == _CMYK or (colours not in _GREYS and (bands == 3 or has_alpha)):
            return pillow.decode(buffer, "Tiff", indices)
    is_read = bands == 1 or (bands in (3, 4) and colours == _RGB)
    is_read = is_read or (bands == 3 and number == _FLOATING)
    is_together = bands == 1 or tags.get(_PLANAR, 1) == 1
    if is_read and is_together and (number, bits) in _READ_BY_OPENCV:
        return opencv.decode(buffer)
    if height * width * bands > _MOST_VALUES:
        raise ContentError(f"a TIFF of at most {_MOST_VALUES:,} values", f"one of {bands} bands")
    return _by_tifffile(buffer, f"{bands} bands of {bits} bits", tags.get(ORIENTATION, 1))


def _by_tifffile(buffer: memoryview | bytes, what: str, orientation: int) -> NDArray[Any]:
    try:
        module = importlib.import_module("tifffile")
    except ImportError:
        raise ImportError(f"a TIFF of {what} needs tifffile: pip install tifffile") from None
    try:
        with module.TiffFile(io.BytesIO(buffer)) as file:
            page = file.pages[0]
            image = page.asarray()
    except Exception as error:
        raise ContentError("a TIFF image", f"what tifffile refuses: {error}") from error
    return upright(np.moveaxis(image, 0, -1) if page.axes == "SYX" else image, orientation)
