"""Which part of an image is wanted, and where boxes and points go with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from adapters import ImageDecoder
from adapters.generators import DECODE, generator
from adapters.images import boxes
from adapters.images.geometry import Crop, cut, random_resized, reduced, short_side

AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
sides = st.integers(1, 700)
seeds = st.integers(0, 1000)


def inside(crop: Crop) -> bool:
    height, width = crop.resized or crop.image
    return (
        crop.height > 0
        and crop.width > 0
        and 0 <= crop.top <= height - crop.height
        and 0 <= crop.left <= width - crop.width
    )


def drawn(count: int, area: tuple[float, float], ratio: tuple[float, float]) -> list[Crop]:
    return [
        random_resized(1000, 1000, area, ratio, False, generator(0, 0, number, DECODE))
        for number in range(count)
    ]


def distance_to_uniform(values: Any, least: float, most: float) -> float:
    """Kolmogorov and Smirnov's: how far the shares are from those of a uniform distribution."""
    ranks = (np.sort(values) - least) / (most - least)
    return float(np.abs(ranks - (np.arange(len(ranks)) + 0.5) / len(ranks)).max())


@given(sides, sides, seeds)
@example(1, 1, 0)
@example(1, 700, 0)
@example(700, 1, 0)
def test_random_resized_box_lies_inside(height, width, seed):
    rng = np.random.default_rng(seed)
    assert inside(random_resized(height, width, AREA, RATIO, False, rng))


@pytest.mark.parametrize(
    ("size", "box"),
    [((30, 900), (0, 430, 30, 40)), ((900, 30), (430, 0, 40, 30)), ((1, 1000), (0, 499, 1, 1))],
)
def test_random_resized_without_a_fit(size, box):
    crop = random_resized(*size, (1.0, 1.0), RATIO, True, np.random.default_rng(0))
    assert crop == Crop(size, None, *box, True)


def test_random_resized_is_uniform():
    areas = [crop.height * crop.width / 1e6 for crop in drawn(3000, (0.1, 0.9), (1.0, 1.0))]
    assert distance_to_uniform(areas, 0.1, 0.9) < 0.03
    crops = drawn(3000, (0.2, 0.3), RATIO)
    aspects = [math.log(crop.width / crop.height) for crop in crops]
    assert distance_to_uniform(aspects, math.log(3 / 4), math.log(4 / 3)) < 0.03
    places = [crop.left / (1000 - crop.width) for crop in crops]
    assert distance_to_uniform(places, 0, 1) < 0.03


def test_random_resized_golden_box():
    """Or a training run couldn't be repeated."""
    crop = random_resized(375, 500, AREA, RATIO, False, generator(0, 0, 0, DECODE))
    assert crop == Crop((375, 500), None, 121, 197, 233, 219, False)


@given(sides, sides, sides)
def test_short_side_keeps_the_aspect(h, w, short):
    height, width = short_side(h, w, short)
    assert min(height, width) == short
    assert abs(height * w - width * h) < max(h, w) * 1.000001


@given(sides, sides, st.tuples(sides, sides), st.none() | sides, st.none() | seeds)
@example(1, 1, (1, 1), None, None)
@example(1, 700, (700, 1), None, 0)
@example(700, 1, (3, 700), 1, 0)
def test_cut_lies_inside(height, width, size, resize_short, seed):
    rng = None if seed is None else np.random.default_rng(seed)
    assert inside(cut(height, width, size, resize_short, False, rng))


@given(sides, sides, st.tuples(sides, sides))
def test_cut_is_the_largest_of_its_aspect(height, width, size):
    crop = cut(height, width, size, None, False, None)
    assert crop.height == height or crop.width == width
    if crop.height < height:
        assert crop.height == max(1, size[0] * width // size[1])
    if crop.width < width:
        assert crop.width == max(1, size[1] * height // size[0])


@pytest.mark.parametrize(
    ("size", "resize_short", "crop"),
    [
        ((4, 6), 10, Crop((20, 40), (10, 20), 3, 7, 4, 6, False)),
        ((10, 20), 10, Crop((20, 40), (10, 20), 0, 0, 10, 20, False)),
        ((11, 20), 10, Crop((20, 40), (10, 20), 0, 1, 10, 18, False)),
        ((5, 5), None, Crop((20, 40), None, 0, 10, 20, 20, False)),
        ((60, 60), None, Crop((20, 40), None, 0, 10, 20, 20, False)),
    ],
)
def test_cut_in_the_middle(size, resize_short, crop):
    assert cut(20, 40, size, resize_short, False, None) == crop


def test_cut_is_anywhere():
    rng = np.random.default_rng(0)
    lefts = [cut(20, 25, (5, 5), None, False, rng).left for _ in range(200)]
    assert set(lefts) == set(range(6))


def test_reduced_box_is_never_empty_nor_outside():
    for image in range(1, 40):
        for factor in (2, 4, 8):
            size = -(-image // factor)
            for top in range(image):
                for height in range(1, image - top + 1):
                    box = reduced((top, 0, height, 1), factor, (size, 1))
                    assert 0 <= box[0] < box[0] + box[2] <= size


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
        x, y = given[:, [0, 0, 2, 2]] * width, given[:, [1, 3, 1, 3]] * height
        corners = np.stack([x, y, np.ones_like(x)], -1) @ matrix_of(crop).T
        first, last = corners[..., :2].min(1), corners[..., :2].max(1)
        moved = boxes.moved(given, crop)
        np.testing.assert_allclose(moved, np.concatenate([first, last], 1), atol=1e-9)
        clipped, kept = boxes.clipped(moved, 0.3)
        inside = [np.maximum(first, 0), np.minimum(last, 1)]
        seen = np.maximum(inside[1] - inside[0], 0).prod(1) / (last - first).prod(1)
        clear = np.abs(seen - 0.3) > 1e-4
        np.testing.assert_array_equal(kept[clear], seen[clear] > 0.3)
        np.testing.assert_allclose(clipped[kept], np.concatenate(inside, 1)[kept], atol=1e-9)


@pytest.mark.parametrize("format", [*boxes.BOX_FORMATS, *boxes.POINT_FORMATS])
def test_box_formats_are_read_as_written(format):
    columns = 2 if format in boxes.POINT_FORMATS else 4
    values = np.random.default_rng(3).random((50, columns))
    found = boxes.read(boxes.written(values, format), format)
    np.testing.assert_allclose(found, values, atol=1e-6)
    for each in (found[:0], values[:0]):
        assert boxes.written(each, format).shape == (0, columns)
