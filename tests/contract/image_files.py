"""Files of images of all depths, and arrays of what they hold."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import tifffile
from PIL import Image

from tests.images import pictures

RNG = np.random.default_rng(7)
COLOURS = RNG.integers(0, 256, (30, 40, 3), np.uint8)
SIXTEEN = RNG.integers(0, 65536, (30, 40), np.uint16)
RGB16 = np.dstack([SIXTEEN, SIXTEEN[::-1], SIXTEEN[:, ::-1]])
RGBA16 = np.dstack([RGB16, SIXTEEN])
TRANSPARENT = np.dstack([COLOURS, COLOURS[:, :, 0]])
IDS = RNG.choice(np.array([0, 1, 7, 255], np.uint8), (30, 40))
NEAREST: dict[str, Any] = {"channels": 1, "interpolation": "nearest"}


def encoded(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    return pictures.encoded(image, kind, **options)


def by_opencv(image: np.ndarray, ending: str = ".png") -> bytes:
    order = {3: [2, 1, 0], 4: [2, 1, 0, 3]}.get(image.shape[2] if image.ndim == 3 else 1)
    return cv2.imencode(ending, image if order is None else image[:, :, order])[1].tobytes()


def tiff(array: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, array, **options)
    return file.getvalue()


def bands(count: int, dtype: str = "uint16", **options: Any) -> tuple[bytes, np.ndarray]:
    array = (RNG.random((30, 40, count)) * 200).astype(dtype)
    options = {"photometric": "minisblack", "planarconfig": "contig", **options}
    return tiff(array, **options), array


def palette(indices: np.ndarray = IDS) -> Image.Image:
    """Pascal VOC stores its masks so: colours for people, whose numbers are the classes."""
    image = Image.fromarray(indices, "P")
    image.putpalette(np.random.default_rng(1).integers(0, 256, 768).tolist())
    return image
