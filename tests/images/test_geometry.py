"""Which part of an image is wanted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.generators import DECODE, generator
from adapters.images.geometry import Crop, cut, random_resized, reduced, short_side, whole

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


class Counting:
    """A generator that counts its draws."""

    def __init__(self) -> None:
        self.count = 0
        self.rng = np.random.default_rng(0)

    def random(self) -> float:
        self.count += 1
        return float(self.rng.random())


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
def test_a_random_resized_box_lies_inside_the_image(height, width, seed):
    rng = np.random.default_rng(seed)
    assert inside(random_resized(height, width, AREA, RATIO, False, rng))


@given(sides, sides, seeds)
def test_a_box_that_fits_has_area_and_aspect_within_their_bounds_but_for_rounding(h, w, seed):
    counting = Counting()
    counting.rng = np.random.default_rng(seed)
    crop = random_resized(h, w, (0.3, 0.6), (0.5, 2.0), False, counting)  # type: ignore[arg-type]
    if counting.count == 20:
        return  # None fitted.
    least = (crop.height - 0.5) * (crop.width - 0.5), (crop.width - 0.5) / (crop.height + 0.5)
    most = (crop.height + 0.5) * (crop.width + 0.5), (crop.width + 0.5) / (crop.height - 0.5)
    assert least[0] <= 0.6 * h * w + 1e-6
    assert most[0] >= 0.3 * h * w - 1e-6
    assert least[1] <= 2.0 + 1e-6
    assert most[1] >= 0.5 - 1e-6


def test_ten_boxes_are_tried():
    counting = Counting()
    random_resized(1, 1000, (1.0, 1.0), RATIO, False, counting)  # type: ignore[arg-type]
    assert counting.count == 2 * 10


@pytest.mark.parametrize(
    ("size", "box"),
    [((30, 900), (0, 430, 30, 40)), ((900, 30), (430, 0, 40, 30)), ((1, 1000), (0, 499, 1, 1))],
)
def test_without_a_fit_it_is_the_largest_box_in_the_middle(size, box):
    crop = random_resized(*size, (1.0, 1.0), RATIO, True, np.random.default_rng(0))
    assert crop == Crop(size, None, *box, True)


def test_areas_are_uniform_between_their_bounds():
    areas = [crop.height * crop.width / 1e6 for crop in drawn(3000, (0.1, 0.9), (1.0, 1.0))]
    assert distance_to_uniform(areas, 0.1, 0.9) < 0.03


def test_logarithms_of_aspects_are_uniform_between_their_bounds():
    aspects = [math.log(crop.width / crop.height) for crop in drawn(3000, (0.2, 0.3), RATIO)]
    assert distance_to_uniform(aspects, math.log(3 / 4), math.log(4 / 3)) < 0.03


def test_places_are_uniform_over_the_image():
    places = [crop.left / (1000 - crop.width) for crop in drawn(3000, (0.2, 0.3), RATIO)]
    assert distance_to_uniform(places, 0, 1) < 0.03


def test_boxes_are_those_that_every_version_has_drawn():
    """Or a training run couldn't be repeated."""
    crop = random_resized(375, 500, AREA, RATIO, False, generator(0, 0, 0, DECODE))
    assert crop == Crop((375, 500), None, 121, 197, 233, 219, False)


@given(sides, sides, sides)
def test_the_short_side_gets_its_length_and_the_aspect_stays_but_for_rounding(h, w, short):
    height, width = short_side(h, w, short)
    assert min(height, width) == short
    assert abs(height * w - width * h) < max(h, w) * 1.000001


@given(sides, sides, st.tuples(sides, sides), st.none() | sides, st.none() | seeds)
@example(1, 1, (1, 1), None, None)
@example(1, 700, (700, 1), None, 0)
@example(700, 1, (3, 700), 1, 0)
def test_a_box_that_is_cut_lies_inside_the_image(height, width, size, resize_short, seed):
    rng = None if seed is None else np.random.default_rng(seed)
    assert inside(cut(height, width, size, resize_short, False, rng))


@given(sides, sides, st.tuples(sides, sides))
def test_without_resize_short_the_largest_box_of_that_aspect_is_cut(height, width, size):
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
def test_a_box_in_the_middle(size, resize_short, crop):
    assert cut(20, 40, size, resize_short, False, None) == crop


def test_random_boxes_are_anywhere():
    rng = np.random.default_rng(0)
    lefts = [cut(20, 25, (5, 5), None, False, rng).left for _ in range(200)]
    assert set(lefts) == set(range(6))


def test_a_whole_image_is_a_box_without_margins():
    assert whole(3, 4, True) == Crop((3, 4), None, 0, 0, 3, 4, True)


@pytest.mark.parametrize("image", range(1, 40))
def test_a_box_in_a_reduced_image_is_never_empty_nor_outside(image):
    for factor in (2, 4, 8):
        size = -(-image // factor)
        for top in range(image):
            for height in range(1, image - top + 1):
                box = reduced((top, 0, height, 1), factor, (size, 1))
                assert box[0] >= 0
                assert box[2] > 0
                assert box[0] + box[2] <= size
