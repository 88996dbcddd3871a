"""Images that Pillow decodes, if it is installed.

These are JPEG 2000, palette indices, TIFFs with alpha, BMPs of run lengths, and GIFs that OpenCV
can't decode.

Each function raises a ``ContentError`` for a damaged image, and an ``ImportError`` without Pillow.
OpenCV isn't used for these. At 4.11, one wrong bit in the header of a JPEG 2000 may end the
process. OpenCV gives only the colours of a palette, and multiplies colours of a TIFF by their
alpha. ``png.decode`` gives indices of PNGs.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import opencv

# JPEG 2000: boxes, as in .jp2 files; a bare codestream.
JPEG2000_MAGICS = b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"
# After the codestream's magic: two bytes each of length and capabilities, eight numbers of 4 bytes
# about sizes and tiles, and 2 bytes with the number of components.
_DEPTH_AT = 4 + 2 + 2 + 32 + 2
_MODES = ("L", "LA", "RGB", "RGBA")

SETTINGS = {
    ("PIL.Image", "MAX_IMAGE_PIXELS", "__setattr__", "MAX_IMAGE_PIXELS"),
    ("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES", "__setattr__", "LOAD_TRUNCATED_IMAGES"),
}
"""Pillow's settings, which worker processes take over."""


def jpeg2000_size(buffer: memoryview | bytes) -> tuple[int, int]:
    """Read height and width from a JPEG 2000's header, and check them."""
    image = _opened(buffer, "Jpeg2K", "JPEG 2000 needs", is_loaded=False)
    return image.height, image.width


def jpeg2000(buffer: memoryview | bytes) -> NDArray[Any]:
    """Decode a JPEG 2000 as stored; Pillow keeps 16 bits only for one channel."""
    image = _opened(buffer, "Jpeg2K", "JPEG 2000 needs")
    at = bytes(buffer).find(JPEG2000_MAGICS[1])
    bits = (buffer[at + _DEPTH_AT] & 0x7F) + 1 if 0 <= at < len(buffer) - _DEPTH_AT else 8
    if image.mode.startswith("I;16"):
        return np.array(image, np.uint16)
    if bits > 8:
        raise ContentError(
            "JPEG 2000 of 8 bits, or of one channel, as Pillow reads it: convert it to PNG or TIFF",
            f"{bits} bits of {image.mode}",
        )
    return np.array(image if image.mode in _MODES else image.convert("RGB"))


def indices(buffer: memoryview | bytes, name: str) -> NDArray[np.uint8] | None:
    """Read palette indices by a plugin; None for an image that has grey levels in order instead."""
    bits_at = 24 if buffer[14:15] == b"\x0c" else 28  # The header of OS/2 is shorter.
    if name == "Bmp" and int.from_bytes(buffer[bits_at : bits_at + 2], "little") > 8:
        return None
    image = _opened(buffer, name, "the indices of a GIF, BMP or TIFF with a palette need")
    return np.array(image, np.uint8) if image.mode == "P" else None


def colours(buffer: memoryview | bytes, name: str, needs: str) -> NDArray[np.uint8]:
    """Decode by a plugin: grey levels, or colours with alpha if there is transparency."""
    image = _opened(buffer, name, needs)
    if "transparency" in image.info:
        return np.array(image.convert("RGBA"))
    return np.array(image if image.mode == "L" else image.convert("RGB"))


def rgba_of_tiff(buffer: memoryview | bytes) -> NDArray[np.uint8]:
    """Decode a TIFF's colours as stored, and its alpha; uint8 (height, width, 4), upright."""
    return np.array(_opened(buffer, "Tiff", "a transparent TIFF of 8 bits needs"), np.uint8)


def _opened(buffer: memoryview | bytes, name: str, needs: str, is_loaded: bool = True) -> Any:
    """Open with a plugin itself: ``Image.open`` has its own size limit, and warns."""
    try:
        plugin: Any = importlib.import_module(f"PIL.{name}ImagePlugin")
    except ImportError:
        raise ImportError(f"{needs} Pillow: pip install pillow") from None
    try:
        image = getattr(plugin, f"{name}ImageFile")(io.BytesIO(buffer))
        opencv.check_size(image.height, image.width)
        if is_loaded:
            image.load()
    except ContentError:
        raise
    except Exception as error:  # Pillow raises many kinds for damaged files.
        if name == "Jpeg2K":
            raise ContentError("a JPEG 2000 image", f"a damaged one: {error}") from error
        raise ContentError("an image", f"what Pillow refuses: {error}") from error
    return image
