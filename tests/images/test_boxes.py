"""Geometry of boxes and points, against matrices applied to one corner after another."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters import ImageDecoder
from adapters.images import boxes
from adapters.images.geometry import Crop, whole

DECODERS = [
    ImageDecoder(100, crop="random_resized", flip=True),
    ImageDecoder((90, 160), crop="random", resize_short=170, flip=True),
    ImageDecoder((200, 120), crop="random"),
    ImageDecoder(64, crop="center", resize_short=80, flip=True),
    ImageDecoder(resize_short=99),
]
EACH, CROPS = 20, 100


def matrix_of(crop: Crop) -> NDArray[np.float64]:
    """From pixels of the image to parts of what the crop gives."""
    height, width = crop.image
    resized = crop.resized or crop.image
    resize = np.diag([resized[1] / width, resized[0] / height, 1])
    cut = np.array([[1, 0, -crop.left], [0, 1, -crop.top], [0, 0, 1]])
    scale = np.diag([1 / crop.width, 1 / crop.height, 1])
    mirror = np.array([[-1, 0, 1], [0, 1, 0], [0, 0, 1]]) if crop.flip else np.eye(3)
    return mirror @ scale @ cut @ resize


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_boxes_are_moved_as_their_corners(decoder):
    """10,000 boxes over all decoders."""
    assert len(DECODERS) * CROPS * EACH >= 10_000
    rng = np.random.default_rng(1)
    for _ in range(CROPS):
        height, width = rng.integers(20, 600, 2).tolist()
        crop = decoder.crop_of(height, width, rng)
        begins = rng.random((EACH, 2))
        given = np.concatenate([begins, begins + rng.random((EACH, 2)) * (1 - begins)], 1)
        moved = boxes.moved(given, crop)
        inside, keep = boxes.clipped(moved, 0.3)
        matrix = matrix_of(crop)
        for box, its, clipped, kept in zip(given, moved, inside, keep):
            corners = [
                matrix @ (x * width, y * height, 1) for x in box[[0, 2]] for y in box[[1, 3]]
            ]
            left, top = np.min(corners, 0)[:2]
            right, bottom = np.max(corners, 0)[:2]
            np.testing.assert_allclose(its, [left, top, right, bottom], atol=1e-9)
            seen_x, seen_y = min(right, 1) - max(left, 0), min(bottom, 1) - max(top, 0)
            share = max(seen_x, 0) * max(seen_y, 0) / ((right - left) * (bottom - top))
            if abs(share - 0.3) > 1e-4:
                assert kept == (share > 0.3)
            if kept:
                edges = [max(left, 0), max(top, 0), min(right, 1), min(bottom, 1)]
                np.testing.assert_allclose(clipped, edges, atol=1e-9)


def test_a_whole_image_moves_nothing_and_two_flips_undo_each_other():
    given = np.random.default_rng(2).random((50, 4))
    np.testing.assert_allclose(boxes.moved(given, whole(33, 47)), given, atol=1e-15)
    flip = whole(33, 47, flip=True)
    np.testing.assert_allclose(boxes.moved(boxes.moved(given, flip), flip), given, atol=1e-15)
    points = given[:, :2]
    np.testing.assert_allclose(boxes.moved(boxes.moved(points, flip), flip), points, atol=1e-15)


@pytest.mark.parametrize("format", [*boxes.BOX_FORMATS, *boxes.POINT_FORMATS])
def test_what_is_written_is_read_again(format):
    columns = 2 if format in boxes.POINT_FORMATS else 4
    values = np.random.default_rng(3).random((50, columns))
    found = boxes.read(boxes.written(values, format), format)
    np.testing.assert_allclose(found, values, atol=1e-6)
    for each in (found[:0], values[:0]):
        assert boxes.written(each, format).shape == (0, columns)


def test_no_boxes_are_moved_and_clipped():
    none = boxes.moved(np.empty((0, 4)), whole(3, 4, flip=True))
    inside, keep = boxes.clipped(none, 1)
    assert (inside.shape, keep.shape, keep.dtype) == ((0, 4), (0,), np.bool_)
