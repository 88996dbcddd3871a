"""Decoding by OpenCV, and the limits of images."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.lazily import required
from adapters.signatures import HEAD_BYTES, recognized

# 16,384 x 16,384, as in the kernel.
MOST_PIXELS = 1 << 28


def check_size(height: int, width: int) -> None:
    """Check the size of an image."""
    if not 0 < height * width <= MOST_PIXELS:
        raise ContentError(
            f"an image of 1 to {MOST_PIXELS:,} pixels", f"one of {height} x {width} pixels"
        )


def check_one(images: int) -> None:
    """Check that a file has one page or frame."""
    if images > 1:
        raise ContentError(
            "a file of one image (a function as decode= makes one array of several)",
            f"one of {images} pages or frames",
        )


@functools.cache
def load() -> Any:
    """Import OpenCV."""
    return required("cv2", "images need OpenCV: pip install 'loader-adapters[images]'")


def decode(buffer: memoryview | bytes, flag: str = "IMREAD_UNCHANGED") -> NDArray[Any]:
    """Decode as stored, or as 8-bit RGB with the flag for that; BGR becomes RGB."""
    cv2 = load()
    encoded = np.frombuffer(buffer, np.uint8)
    flags = getattr(cv2, flag) | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image: NDArray[Any] | None = cv2.imdecode(encoded, flags) if len(encoded) else None
    except cv2.error as error:
        raise ContentError("an image", f"what OpenCV refuses: {error}") from error
    if image is None:
        head = bytes(buffer[:HEAD_BYTES])
        shown = head[:8].hex(" ") or "nothing"
        is_damaged = head[:2] in (b"\xff\xd8", b"\x89P")  # A JPEG or PNG.
        found = None if is_damaged else recognized(head)
        raise ContentError("an image", found or f"{len(encoded)} bytes that begin with {shown}")
    check_size(*image.shape[:2])
    if image.shape[2:] in ((3,), (4,)) and image.dtype in (np.uint8, np.uint16, np.float32):
        swapped = cv2.COLOR_BGR2RGB if image.shape[2] == 3 else cv2.COLOR_BGRA2RGBA
        cv2.cvtColor(image, swapped, dst=image)
    elif image.ndim == 3:
        image = np.ascontiguousarray(image[:, :, [2, 1, 0, 3][: image.shape[2]]])
    return image
