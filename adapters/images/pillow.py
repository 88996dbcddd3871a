"""Images that Pillow decodes: GIF, JPEG 2000, TIFFs of 8 bits, and the indices of a BMP's palette.

OpenCV isn't used for these. At 4.11, one wrong bit in the header of a JPEG 2000 may end the
process. OpenCV gives only the colours of a palette, multiplies colours of a TIFF by their alpha,
and decodes GIF in some builds only.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images.opencv import check_one, check_size

# A bare codestream of JPEG 2000 begins so; .jp2 files have one behind boxes.
_CODESTREAM = b"\xff\x4f\xff\x51"
PLUGINS = {b"GIF8": "Gif", b"\0\0\0\x0cjP  ": "Jpeg2K", _CODESTREAM: "Jpeg2K"}
"""First bytes of files that only Pillow decodes, and the name of Pillow's plugin."""
# After the codestream's magic: two bytes each of length and capabilities, eight numbers of 4 bytes
# about sizes and tiles, and 2 bytes with the number of components.
_DEPTH_AT = 4 + 2 + 2 + 32 + 2
_MODES = ("L", "LA", "RGB", "RGBA")


def plugin(name: str) -> Any:
    """Import a plugin of Pillow."""
    try:
        return importlib.import_module(f"PIL.{name}ImagePlugin")
    except ImportError:
        raise ImportError(
            "this image needs Pillow: pip install 'loader-adapters[images]'"
        ) from None


def opened(buffer: memoryview | bytes, name: str) -> Any:
    """Open with a plugin itself: ``Image.open`` has its own size limit, and warns."""
    opener = getattr(plugin(name), f"{name}ImageFile")
    try:
        image = opener(io.BytesIO(buffer))
    except Exception as error:  # Pillow raises many kinds for damaged files.
        raise _refused(error) from error
    check_size(image.height, image.width)
    return image


def decode(buffer: memoryview | bytes, name: str, indices: bool) -> NDArray[Any]:
    """Decode as stored by a plugin; ``indices`` asks for those of a palette, if it has one."""
    image = opened(buffer, name)
    try:
        images = image.n_frames if name == "Gif" else 1
        image.load()
        mode = image.mode
        if mode not in _MODES and not (mode == "P" and indices) and not mode.startswith("I;16"):
            colours = "RGBA" if "transparency" in image.info else "RGB"
            image = image.convert("L" if mode == "1" else colours)
    except Exception as error:
        raise _refused(error) from error
    check_one(images)
    if name == "Jpeg2K" and image.mode in _MODES and (bits := _depth(bytes(buffer))) > 8:
        raise ContentError(
            "JPEG 2000 of 8 bits, or of one channel, as Pillow reads it: convert it to PNG or TIFF",
            f"{bits} bits of {image.mode}",
        )
    return np.array(image, np.uint16 if image.mode.startswith("I;16") else np.uint8)


def _refused(error: Exception) -> ContentError:
    return ContentError("an image", f"what Pillow refuses: {error}")


def _depth(content: bytes) -> int:
    """Read the bits of a JPEG 2000's first component."""
    at = content.find(_CODESTREAM)
    return (content[at + _DEPTH_AT] & 0x7F) + 1 if 0 <= at < len(content) - _DEPTH_AT else 8
