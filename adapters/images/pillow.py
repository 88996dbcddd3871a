"""Images that Pillow decodes, if it is installed.

These are GIFs, JPEG 2000, BMPs of run lengths, TIFFs with alpha and palette indices.

Each function raises a ``ContentError`` for a damaged image, and an ``ImportError`` without Pillow.
OpenCV isn't used for these. At 4.11, one wrong bit in the header of a JPEG 2000 may end the
process. OpenCV gives only the colours of a palette, and multiplies colours of a TIFF by their
alpha. ``png.decode`` gives indices of PNGs.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import opencv
from adapters.lazily import required

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


def decode(buffer: memoryview | bytes, plugin: str, indices: bool) -> NDArray[np.uint8]:
    """Decode a GIF, BMP or TIFF by a plugin.

    The result has grey levels, or colours with alpha if there is transparency, as stored; with
    ``indices``, those of a palette. A TIFF is upright.
    """
    image = _opened(buffer, plugin, f"a {plugin.upper()} of this kind needs")
    if image.mode not in ("L", "RGBA") and not (image.mode == "P" and indices):
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    return np.array(image)


def _opened(buffer: memoryview | bytes, name: str, needs: str) -> Any:
    """Open with a plugin itself: ``Image.open`` has its own size limit, and warns."""
    plugin = required(f"PIL.{name}ImagePlugin", f"{needs} Pillow: pip install pillow")
    try:
        image = getattr(plugin, f"{name}ImageFile")(io.BytesIO(buffer))
        opencv.check_size(image.height, image.width)
        if name == "Gif":
            opencv.check_one(image.n_frames)
        image.load()
    except ContentError:
        raise
    except Exception as error:  # Pillow raises many kinds for damaged files.
        if name == "Jpeg2K":
            raise ContentError("a JPEG 2000 image", f"a damaged one: {error}") from error
        raise ContentError("an image", f"what Pillow refuses: {error}") from error
    return image
