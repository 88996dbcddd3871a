"""JPEG 2000, decoded by Pillow, if it is installed.

OpenCV isn't used: at 4.11, one wrong bit in the header of such a file may end the process.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError

# Boxes, as in .jp2 files; a bare codestream.
MAGICS = b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"
# Raised by Pillow for damaged files.
_ERRORS = (OSError, SyntaxError, ValueError)
_MODES = ("L", "LA", "RGB", "RGBA")
# After the codestream's magic: two bytes each of length and capabilities, eight numbers of 4 bytes
# about sizes and tiles, and 2 bytes with the number of components.
_DEPTH_AT = 4 + 2 + 2 + 32 + 2


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Read height and width from the header.

    Raises:
        ContentError: The header is damaged.
    """
    width, height = _opened(buffer).size
    return height, width


def decode(buffer: memoryview | bytes) -> NDArray[Any]:
    """Decode an image as stored; Pillow keeps 16 bits only for one channel.

    Returns:
        uint8 or uint16 (height, width), or uint8 (height, width, channels).

    Raises:
        ContentError: The image is damaged, or several channels have more than 8 bits.
    """
    image = _opened(buffer)
    if _bits(buffer) > 8 and not image.mode.startswith("I;16"):
        raise ContentError(
            "JPEG 2000 of 8 bits, or of one channel, as Pillow reads it: convert it to PNG or TIFF",
            f"{_bits(buffer)} bits of {image.mode}",
        )
    try:
        image.load()
    except _ERRORS as error:
        raise _damaged(error) from error
    if image.mode.startswith("I;16"):
        return np.array(image, np.uint16)
    return np.array(image if image.mode in _MODES else image.convert("RGB"))


def _bits(buffer: memoryview | bytes) -> int:
    """Read the bits of the first component from the codestream's header."""
    at = bytes(buffer).find(MAGICS[1])
    return (buffer[at + _DEPTH_AT] & 0x7F) + 1 if 0 <= at < len(buffer) - _DEPTH_AT else 8


def _opened(buffer: memoryview | bytes) -> Any:
    """Open with the plugin itself: ``Image.open`` has its own size limit, and warns."""
    try:
        plugin: Any = importlib.import_module("PIL.Jpeg2KImagePlugin")
    except ImportError:
        raise ImportError("JPEG 2000 needs Pillow: pip install pillow") from None
    try:
        return plugin.Jpeg2KImageFile(io.BytesIO(buffer))
    except _ERRORS as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> ContentError:
    return ContentError("a JPEG 2000 image", f"a damaged one: {error}")
