"""Images for examples that were given none: circles and squares, in folders or as arrays.

`Sheet` shows some of them in a notebook.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

CLASSES = ["circle", "square"]


def shape(number: int, side: int) -> tuple[np.ndarray, int]:
    """An image, uint8 (side, side, 3), and its class."""
    rng = np.random.default_rng(number)
    image = rng.integers(0, 80, (side, side, 3), dtype=np.uint8)
    radius = int(rng.integers(side // 6, side // 4))
    x, y = (int(value) for value in rng.integers(radius, side - radius, 2))
    colour = tuple(int(value) for value in rng.integers(120, 256, 3))
    if number % 2 == 0:
        cv2.circle(image, (x, y), radius, colour, -1)
    else:
        cv2.rectangle(image, (x - radius, y - radius), (x + radius, y + radius), colour, -1)
    return image, number % 2


def folder_of(root: Path, count: int, side: int = 160) -> Path:
    """A folder with a folder per class, with JPEGs in them."""
    for number in range(count):
        image, label = shape(number, side)
        path = root / CLASSES[label] / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), image)
    return root


def arrays_of(count: int, side: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (count, side, side, 1) and int64 (count,)."""
    images = [shape(number, side) for number in range(count)]
    x = np.stack([image.max(axis=2, keepdims=True) for image, _ in images])
    return x, np.array([label for _, label in images])


class Sheet:
    """Images side by side, which a notebook shows."""

    def __init__(self, images: np.ndarray) -> None:
        self.row = np.concatenate(list(images), axis=1)

    def _repr_png_(self) -> bytes:
        return cv2.imencode(".png", self.row[..., ::-1])[1].tobytes()
