"""Decoding by OpenCV, and the limits of images: their size, and one a file."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.signatures import HEAD_BYTES, recognized

# 16,384 x 16,384, as in the kernel.
MOST_PIXELS = 1 << 28
# WebP: its kind of first chunk with flags, their place, and the flag of an animation.
_EXTENDED, _FLAGS_AT, _ANIMATION = b"WEBPVP8X", 20, 2


def check_size(height: int, width: int) -> None:
    """Check the size of an image."""
    if not 0 < height * width <= MOST_PIXELS:
        raise ContentError(
            f"an image of 1 to {MOST_PIXELS:,} pixels", f"one of {height} x {width} pixels"
        )


def check_one(images: int) -> None:
    """Check the number of images in a file."""
    if images > 1:
        raise ContentError(
            "a file of one image (a function as decode= makes one array of several)",
            f"one of {images} pages or frames",
        )


@functools.cache
def load() -> ModuleType:
    """Import OpenCV."""
    try:
        return importlib.import_module("cv2")
    except ImportError:
        raise ImportError("images need OpenCV: pip install 'loader-adapters[images]'") from None


def decode(buffer: memoryview | bytes) -> NDArray[Any]:
    """Decode as stored; BGR becomes RGB."""
    cv2 = load()
    encoded = np.frombuffer(buffer, np.uint8)
    flags = cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION
    if bytes(buffer[8:16]) == _EXTENDED and buffer[_FLAGS_AT] & _ANIMATION:
        check_one(2)
    try:
        image: NDArray[Any] | None = cv2.imdecode(encoded, flags) if len(encoded) else None
    except cv2.error as error:
        raise ContentError("an image", f"what OpenCV refuses: {error}") from error
    if image is None:
        shown = bytes(buffer[:8]).hex(" ") or "nothing"
        found = recognized(bytes(buffer[:HEAD_BYTES]))
        raise ContentError("an image", found or f"{len(encoded)} bytes that begin with {shown}")
    check_size(*image.shape[:2])
    if image.shape[2:] == (3,) and image.dtype != np.float64:
        cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)
    elif image.ndim == 3:
        image = np.ascontiguousarray(image[:, :, [2, 1, 0, 3][: image.shape[2]]])
    return image
