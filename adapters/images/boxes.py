"""Boxes and points that follow their image through crop, resize and flip.

Coordinates are continuous: in an image 4 pixels wide, the left edge is 0, the right edge 4, and
the middle of the first pixel 0.5. Between steps they are float64 and relative to the image, from 0
to 1, so resizing changes nothing. All functions are pure and handle all boxes of a sample at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.geometry import Crop

Floats = NDArray[np.float64]

# Relative to the image's side. Thinner boxes have no area as float32.
_LEAST_SIDE = 1e-6
# float32 coordinates of a box that is wholly inside may exceed the edge by their last bit.
_ROUNDING = 1e-5


_RELATIVE = "rel_"
_OF_BOXES, _OF_POINTS = ("xyxy", "yxyx", "xywh", "center_xywh"), ("xy", "yx")
BOX_FORMATS = (*_OF_BOXES, *(_RELATIVE + name for name in _OF_BOXES))
POINT_FORMATS = (*_OF_POINTS, *(_RELATIVE + name for name in _OF_POINTS))
"""Formats in pixels, then relative to the image."""


def is_relative(format: str) -> bool:
    """True if coordinates are fractions of the image's sides, not pixels."""
    return format.startswith(_RELATIVE)


def read(values: NDArray[Any], format: str) -> Floats:
    """Convert boxes to corners x, y, x, y, or points to x, y, in the units of the format."""
    first, second = _halves(values.astype(np.float64), format)
    if format.endswith("center_xywh"):
        first, second = first - second / 2, first + second / 2
    elif format.endswith("xywh"):
        second = first + second
    return np.concatenate([first, second], 1)


def written(values: Floats, format: str) -> NDArray[np.float32]:
    """Reverse ``read``."""
    first, second = _halves(values, format)
    if format.endswith("center_xywh"):
        first, second = (first + second) / 2, second - first
    elif format.endswith("xywh"):
        second = second - first
    return np.concatenate([first, second], 1).astype(np.float32)


def _halves(values: Floats, format: str) -> tuple[Floats, Floats]:
    """Take boxes apart into two pairs, and points into one and nothing; x before y."""
    if format.endswith("yx"):
        values = values[:, [1, 0, 3, 2][: values.shape[1]]]
    return values[:, :2], values[:, 2:]


def scaled(values: Floats, height: float, width: float) -> Floats:
    """Multiply coordinates x, y, x, y or x, y by the sides of an image."""
    return values * np.array([width, height] * (values.shape[1] // 2), np.float64)


def moved(values: Floats, crop: Crop) -> Floats:
    """Convert corners or points from relative to the image to relative to its crop, unclipped."""
    height, width = crop.resized or crop.image
    points = values.reshape(-1, 2)
    begin, size = np.array([crop.left, crop.top]), np.array([crop.width, crop.height])
    points = (points * (width, height) - begin) / size
    if crop.flip:
        points[:, 0] = 1 - points[:, 0]
    found: Floats = points.reshape(values.shape)
    # A flip swaps the left and the right side of a box.
    return found[:, [2, 1, 0, 3]] if crop.flip and values.shape[1] == 4 else found


def clipped(boxes: Floats, min_visible: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Clip corners, relative to the image; return also a mask of boxes visible enough.

    ``min_visible`` is the least fraction of a box's area that has to be inside the image.
    """
    inside = boxes.clip(0, 1)
    area, visible = (np.prod(each[:, 2:] - each[:, :2], axis=1) for each in (boxes, inside))
    return inside, has_area(inside) & (visible >= area * min_visible * (1 - _ROUNDING))


def has_area(boxes: Floats) -> NDArray[np.bool_]:
    """Mask of the boxes, relative to the image, whose sides aren't 0 or negative."""
    have: NDArray[np.bool_] = np.all(boxes[:, 2:] - boxes[:, :2] > _LEAST_SIDE, axis=1)
    return have


def are_inside(points: Floats) -> NDArray[np.bool_]:
    """Mask of the points, relative to the image, in it or on its edge; NaN is outside."""
    inside: NDArray[np.bool_] = np.all((points >= 0) & (points <= 1), axis=1)
    return inside
