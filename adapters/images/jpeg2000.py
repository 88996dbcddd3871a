"""JPEG 2000, which Pillow decodes, where it is installed.

OpenCV isn't asked: at 4.11, one wrong bit in the header of such a file may end the process.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError

# In boxes, as .jp2 files have it; the codestream by itself.
MAGICS = b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51"
# What Pillow raises for what is damaged.
_ERRORS = (OSError, SyntaxError, ValueError)


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Height and width, by the header alone.

    Raises:
        ContentError: The header is damaged.
    """
    width, height = _opened(buffer).size
    return height, width


def decode(buffer: memoryview | bytes) -> NDArray[np.uint8]:
    """The image, without transparency; of 16 bits, the upper 8.

    Returns:
        uint8 (height, width, 3), RGB.

    Raises:
        ContentError: It is damaged.
    """
    image = _opened(buffer)
    try:
        image.load()
    except _ERRORS as error:
        raise _damaged(error) from error
    if image.mode.startswith("I;16"):
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
    return np.array(image.convert("RGB"))


def _opened(buffer: memoryview | bytes) -> Any:
    """By the plugin itself, as ``Image.open`` has a limit of its own, and warns."""
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
