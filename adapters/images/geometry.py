"""Crop geometry, computed from an image's size alone, without pixels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

# Random boxes that may not fit, before the largest one in the middle is taken.
_TRIES = 10
# Pixels. In smaller images, 3/8 may be as many pixels as 1/2, and simplejpeg takes 3/8.
_LEAST_REDUCED = 16


# Top, left, height and width, in pixels.
Box = tuple[int, int, int, int]


class Crop(NamedTuple):
    """Steps from an image to a row: resize (optional), cut the box, resize it to the row, flip."""

    image: tuple[int, int]
    """Height and width."""
    resized: tuple[int, int] | None
    """Height and width to resize the whole image to first."""
    top: int  # Of the box, in pixels after that resizing.
    left: int
    height: int
    width: int
    flip: bool

    @property
    def box(self) -> Box:
        """Top, left, height and width."""
        return self.top, self.left, self.height, self.width


def whole(height: int, width: int, flip: bool = False) -> Crop:
    """Return a crop of the whole image."""
    return Crop((height, width), None, 0, 0, height, width, flip)


def reduction(crop: Crop, goal: tuple[int, int]) -> int:
    """Return the divisor of a JPEG's size when decoding it for a row of the size ``goal``.

    1, 2, 4 or 8: the largest one that leaves the part to be resized as large as its target.
    """
    if min(crop.image) < _LEAST_REDUCED:
        return 1
    resized = crop.resized or goal
    box = crop.image if crop.resized is not None else (crop.height, crop.width)
    factor = 1
    while factor < 8 and box[0] >= resized[0] * factor * 2 and box[1] >= resized[1] * factor * 2:
        factor *= 2
    return factor


def reduced(box: Box, factor: int, image: tuple[int, ...]) -> Box:
    """Convert a box to ``image``, height and width at 1 / ``factor``; it is never empty."""
    if factor == 1:
        return box

    def edges(begin: int, length: int, size: int) -> tuple[int, int]:
        # Round halves up: half to even would make 1.5 and 2.5 the same.
        first, last = ((2 * at + factor) // (2 * factor) for at in (begin, begin + length))
        first = min(first, size - 1)
        return first, max(last - first, 1)

    top, height = edges(box[0], box[2], image[0])
    left, width = edges(box[1], box[3], image[1])
    return top, left, height, width


def short_side(height: int, width: int, short: int) -> tuple[int, int]:
    """Scale height and width so that the shorter one is ``short``; rounded as in MXNet."""
    if height < width:
        return short, width * short // height
    return height * short // width, short


def cut(
    height: int,
    width: int,
    size: tuple[int, int],
    resize_short: int | None,
    flip: bool,
    rng: np.random.Generator | None,
) -> Crop:
    """Cut a box of ``size`` from the image, after resizing its shorter side to ``resize_short``.

    Without ``resize_short``, or if the image is smaller than ``size``, the box is the largest one
    of that aspect. ``rng`` draws the box's position; None takes the middle.
    """
    image, resized = (height, width), None
    if resize_short is not None:
        resized = height, width = short_side(height, width, resize_short)
    if resize_short is not None and size[0] <= height and size[1] <= width:
        box = size
    else:
        # Rounded down, as MXNet.
        box = (
            min(height, max(1, size[0] * width // size[1])),
            min(width, max(1, size[1] * height // size[0])),
        )
    spare = height - box[0], width - box[1]
    if rng is None:
        top, left = spare[0] // 2, spare[1] // 2
    else:
        top, left = (int(rng.random() * (each + 1)) for each in spare)
    return Crop(image, resized, top, left, *box, flip)


def random_resized(
    height: int,
    width: int,
    area: tuple[float, float],
    ratio: tuple[float, float],
    flip: bool,
    rng: np.random.Generator,
) -> Crop:
    """Draw a box of random area, aspect and position, as Inception was trained with.

    The fraction of the image's area is uniform, and so is the logarithm of width / height. Whether
    a box fits depends on the image's aspect alone, so that an image and its mask of another size
    get the same one.
    """
    least, most = math.log(ratio[0]), math.log(ratio[1])
    tall, wide = height / width, width / height
    for _ in range(_TRIES):
        fraction = area[0] + (area[1] - area[0]) * rng.random()
        aspect = math.exp(least + (most - least) * rng.random())
        if fraction * aspect * tall <= 1 and fraction / aspect * wide <= 1:
            pixels = height * width * fraction
            box_width = min(width, max(1, round(math.sqrt(pixels * aspect))))
            box_height = min(height, max(1, round(math.sqrt(pixels / aspect))))
            top = int(rng.random() * (height - box_height + 1))
            left = int(rng.random() * (width - box_width + 1))
            return Crop((height, width), None, top, left, box_height, box_width, flip)
    aspect = min(max(wide, ratio[0]), ratio[1])
    box_height = min(height, max(1, round(width / aspect)))
    box_width = min(width, max(1, round(height * aspect)))
    top, left = (height - box_height) // 2, (width - box_width) // 2
    return Crop((height, width), None, top, left, box_height, box_width, flip)
