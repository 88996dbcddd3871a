"""Palette indices of a GIF, BMP or TIFF, by Pillow: OpenCV gives only colours.

``png.as_grey`` is for PNGs. Here is also a TIFF's RGBA: OpenCV multiplies colours by alpha.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import tiff

_KINDS = {b"GI": "Gif", b"BM": "Bmp", b"II": "Tiff", b"MM": "Tiff"}
_PALETTE = 3  # TIFF photometric interpretation.
_ERRORS = (OSError, SyntaxError, ValueError)


def indices(buffer: memoryview | bytes) -> NDArray[np.uint8] | None:
    """Read indices (height, width); None without a palette, or if it is grey levels in order.

    Raises:
        ContentError: The image is damaged.
        ImportError: Pillow isn't installed.
    """
    name = _KINDS.get(bytes(buffer[:2]))
    if name is None or (name == "Bmp" and int.from_bytes(buffer[28:30], "little") > 8):
        return None
    if name == "Tiff":
        tags = tiff.numbers(next(tiff.directories(buffer), []))
        if tags.get(tiff.PHOTOMETRIC) != _PALETTE:
            return None
    image = _loaded(buffer, name, "the indices of a GIF, BMP or TIFF with a palette need")
    return np.array(image, np.uint8) if image.mode == "P" else None


def rgba_of_tiff(buffer: memoryview | bytes) -> NDArray[np.uint8]:
    """Decode a TIFF's colours as stored, and its alpha; uint8 (height, width, 4), upright.

    Raises:
        ContentError: The image is damaged.
        ImportError: Pillow isn't installed.
    """
    return np.array(_loaded(buffer, "Tiff", "a transparent TIFF of 8 bits needs"), np.uint8)


def _loaded(buffer: memoryview | bytes, name: str, needs: str) -> Any:
    try:
        plugin: Any = importlib.import_module(f"PIL.{name}ImagePlugin")
    except ImportError:
        raise ImportError(f"{needs} Pillow: pip install pillow") from None
    try:
        image = getattr(plugin, f"{name}ImageFile")(io.BytesIO(buffer))
        image.load()
    except _ERRORS as error:
        raise ContentError("an image", f"what Pillow refuses: {error}") from error
    return image
