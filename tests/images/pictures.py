"""Pictures, and the files that hold them."""

from __future__ import annotations

import io
import platform
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adapters.images.bands import PLAIN
from adapters.images.geometry import Crop
from adapters.images.pixels import cropped

# Levels by which OpenCV's resizing lies beside the kernel's, which is the same on all processors:
# for Arm, OpenCV has one of its own that rounds otherwise.
OPENCV_LEVELS = 0 if platform.machine() == "x86_64" else 2


def picture(height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    """Smooth colours, uint8 ``(height, width, channels)``, the same each time."""
    coarse = np.random.default_rng(channels).integers(0, 256, (3, 4, channels), np.uint8)
    return cv2.resize(coarse, (width, height)).reshape(height, width, channels)


def encoded(image: Any, kind: str, mode: str | None = None, **options: Any) -> bytes:
    """The picture as Pillow writes such a file; ``mode`` converts it before."""
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image[:, :, 0] if image.shape[2:] == (1,) else image)
    file = io.BytesIO()
    (image.convert(mode) if mode else image).save(file, kind, **options)
    return file.getvalue()


def npy(array: NDArray[Any]) -> bytes:
    """The array as ``np.save`` writes it."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def by_opencv(encoded: bytes) -> NDArray[np.uint8]:
    """RGB, as OpenCV decodes it."""
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    return cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)[:, :, ::-1]


def by_pixels(content: bytes, crop: Crop, height: int, width: int) -> NDArray[np.uint8]:
    """The row of a crop, without the kernel."""
    row = cropped(content, crop, (height, width), PLAIN)
    assert (row.shape, row.dtype) == ((height, width, 3), np.uint8)
    return row
