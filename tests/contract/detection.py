"""Detection as tests have it: images that say where they were cut out, and boxes in records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters import ImageDecoder
from tests.sources.example_files import encoded as example
from tests.sources.record_files import write

DECODERS = {
    "whole": ImageDecoder((60, 90)),
    "flipped": ImageDecoder((60, 90), flip=True),
    "as stored": ImageDecoder(flip=True),
    "shorter side": ImageDecoder(resize_short=70, flip=True),
    "center": ImageDecoder(64, crop="center", resize_short=80),
    "center, not resized": ImageDecoder((40, 80), crop="center"),
    "random": ImageDecoder((64, 48), crop="random", resize_short=90, flip=True),
    "random resized": ImageDecoder((64, 96), crop="random_resized", area=(0.2, 1), flip=True),
}
BBOX = [f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax")]
LABEL = "image/object/class/label"
MOVING = [
    ImageDecoder(16, crop="random_resized"),
    ImageDecoder(16, flip=True),
    ImageDecoder(16, crop="center"),
]


def detection(image: bytes, boxes: NDArray[Any], **more: Any) -> bytes:
    """An Example of the object-detection layout: boxes y, x, y, x, whose classes are numbers."""
    columns = {name: list(map(float, boxes[:, n])) for n, name in enumerate(BBOX)}
    return example({"image/encoded": [image], **columns, LABEL: list(range(len(boxes))), **more})


def written(path: Path, payloads: Iterable[bytes], format: str = "tfrecord") -> str:
    return str(write(path, format, payloads))


def gradient(height: int, width: int) -> NDArray[np.uint8]:
    """An image whose pixels say where they are: red the column, green the row."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([columns, rows, np.zeros_like(rows)], 2).astype(np.uint8)


def place_of(pixels: NDArray[Any]) -> NDArray[np.float64]:
    """Where a decoded gradient is of its image: x and y of it as ``scale * at + begin``, (2, 2)."""
    height, width = pixels.shape[:2]
    inner = pixels[3:-3, 3:-3].astype(float)  # The outermost ones may be repeated.
    columns = np.polyfit(np.arange(3, width - 3) + 0.5, inner[:, :, 0].mean(0) + 0.5, 1)
    rows = np.polyfit(np.arange(3, height - 3) + 0.5, inner[:, :, 1].mean(1) + 0.5, 1)
    return np.array([columns, rows])


def followed(
    box: NDArray[Any], place: NDArray[Any], height: int, width: int
) -> tuple[list[float], float]:
    """Where a box x, y, x, y in pixels is in the decoded image, and what part of it is visible.

    Each corner by itself, as ``place_of`` says.
    """
    (scale_x, begin_x), (scale_y, begin_y) = place
    corners = [
        ((x - begin_x) / scale_x, (y - begin_y) / scale_y)
        for x in (box[0], box[2])
        for y in (box[1], box[3])
    ]
    xs, ys = sorted(x for x, _ in corners), sorted(y for _, y in corners)
    left, right = (min(max(x, 0.0), width) for x in (xs[0], xs[-1]))
    top, bottom = (min(max(y, 0.0), height) for y in (ys[0], ys[-1]))
    area = (xs[-1] - xs[0]) * (ys[-1] - ys[0])
    return [left, top, right, bottom], (right - left) * (bottom - top) / area


def random_boxes(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Boxes y, x, y, x, relative to the image."""
    begins = rng.random((count, 2)) * 0.9
    ends = begins + (1 - begins) * (0.1 + 0.9 * rng.random((count, 2)))
    return np.concatenate([begins, ends], 1)
