"""``ImageDecoder``: what is asked for, which part of an image that is, and what comes of it."""

from __future__ import annotations

import math
import pickle
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters import ImageDecoder
from adapters.generators import DECODE, generator
from adapters.images.geometry import Crop, random_resized
from tests.images.pictures import encoded, picture

PHOTO = picture(37, 53)
PNG, JPEG = encoded(PHOTO, "PNG"), encoded(PHOTO, "JPEG")
KINDS: dict[str, dict[str, Any]] = {
    "whole": {"size": (20, 30)},
    "center": {"size": 20, "crop": "center", "resize_short": 24},
    "random": {"size": 20, "crop": "random", "flip": True},
    "random_resized": {"size": 20, "crop": "random_resized", "flip": True},
    "normalised": {"size": 20, "dtype": "float32", "mean": (1, 2, 3), "std": 4.0, "flip": True},
    "channels first": {"size": 20, "crop": "random", "layout": "NCHW"},
    "one column": {"size": (9, 1), "crop": "random_resized"},
}


def rng_of(number: int = 0, epoch: int = 0) -> np.random.Generator:
    return generator(0, epoch, number, DECODE)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": (5, -1)}, ValueError, r"size must be >= 1 pixel, got -1"),
        ({"size": (5, 5, 3)}, ValueError, r"size must be \(height, width\), .* got \(5, 5, 3\)"),
        ({"size": 224.0}, TypeError, r"size must be an integer >= 1 pixel, got 224.0"),
        ({"crop": "centre"}, ValueError, r"crop must be one of None, 'center', .* got 'centre'"),
        ({"crop": "center"}, ValueError, r"crop='center' needs size"),
        ({"resize_short": 0}, ValueError, r"resize_short must be >= 1 pixel, got 0"),
        ({"size": 5, "resize_short": 6}, ValueError, r"resize_short goes with .* got crop=None"),
        ({"area": 0.5}, ValueError, r"area must be \(least, most\), got 0.5"),
        ({"area": (0.5, 0.1)}, ValueError, r"area must be 0 < least <= most.* got \(0.5, 0.1\)"),
        ({"area": (0.5, 2)}, ValueError, r"area must be a part of the image, .* got \(0.5, 2.0\)"),
        ({"ratio": (1, 1)}, ValueError, r"ratio needs crop=.* got \(1.0, 1.0\) with crop=None"),
        ({"ratio": (1, float("inf"))}, ValueError, r"ratio must be .* finite, got \(1, inf\)"),
        ({"flip": 0.5}, TypeError, r"flip must be True or False, got 0.5"),
        ({"dtype": "float64"}, ValueError, r"dtype must be one of 'uint8', .* got 'float64'"),
        ({"dtype": None}, ValueError, r"dtype must be one of .*'float32', got None"),
        ({"layout": "HWC"}, ValueError, r"layout must be one of 'NHWC', 'NCHW', got 'HWC'"),
        ({"mean": 1.0}, ValueError, r'mean and std need dtype="float32", got "uint8"'),
        ({"dtype": "float32", "mean": (1, 2)}, ValueError, r"mean must be .* got \(1, 2\)"),
        ({"dtype": "float32", "mean": "a"}, TypeError, r"mean must be a number .* got 'a'"),
        ({"dtype": "float32", "std": (1, 0, 1)}, ValueError, r"std must be > 0, got \[1.0, 0.0"),
        ({"dtype": "float32", "std": float("inf")}, ValueError, r"std must be a finite .* inf"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        ImageDecoder(**arguments)


def test_repr():
    decoder = ImageDecoder((2, 3), crop="center", resize_short=4, dtype=np.float32, mean=[1, 2, 3])
    assert repr(decoder) == (
        "ImageDecoder((2, 3), crop='center', resize_short=4, dtype='float32', mean=[1.0, 2.0, 3.0])"
    )


@pytest.mark.parametrize("content", [PNG, JPEG, encoded(picture(1, 1), "JPEG")])
@pytest.mark.parametrize("kind", KINDS)
def test_image_is_written_into_its_row(kind, content):
    """Also by a decoder that was pickled."""
    decoder = ImageDecoder(**KINDS[kind])
    assert decoder.shape is not None
    batch = np.full((3, *decoder.shape), 7, decoder.dtype)
    returned = decoder.decode(content, rng_of(), batch[1])
    assert returned.base is batch
    expected = pickle.loads(pickle.dumps(decoder)).decode(content, rng_of())
    assert (expected.shape, expected.dtype) == (decoder.shape, decoder.dtype)
    np.testing.assert_array_equal(batch[1], expected)
    np.testing.assert_array_equal(batch[::2], np.full_like(batch[::2], 7))


def test_without_a_size_an_image_keeps_its_own():
    np.testing.assert_array_equal(ImageDecoder().decode(PNG), PHOTO)
    assert ImageDecoder(resize_short=5).shape is None
    array = ImageDecoder(resize_short=20).decode(PNG)
    np.testing.assert_array_equal(array, cv2.resize(PHOTO, (53 * 20 // 37, 20)))


def test_center_is_cut_out_of_the_resized_image():
    array = ImageDecoder((20, 24), crop="center", resize_short=30).decode(PNG)
    resized = cv2.resize(PHOTO, (53 * 30 // 37, 30))
    np.testing.assert_array_equal(array, resized[5:25, 9:33])


@pytest.mark.parametrize(
    ("mean", "std", "layout"),
    [
        (None, 2.5, "NCHW"),
        (100.0, None, "NHWC"),
        ((10, 20, 30), (1, 2, 3), "NCHW"),
    ],
)
def test_pixels_are_normalised_as_numpy_would(mean, std, layout):
    decoder = ImageDecoder((20, 30), dtype="float32", mean=mean, std=std, layout=layout)
    expected = ImageDecoder((20, 30)).decode(PNG).astype(np.float32)
    expected = expected - np.float32(0 if mean is None else mean)
    expected = expected / np.float32(1 if std is None else std)
    expected = expected.transpose(2, 0, 1) if layout == "NCHW" else expected
    array = decoder.decode(PNG)
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("arguments", [{"flip": True}, {"size": 5, "crop": "random"}])
def test_generator_is_asked_for(arguments):
    with pytest.raises(ValueError, match=r"^rng must be a numpy\.random"):
        ImageDecoder(**arguments).decode(PNG)


def test_every_other_image_is_flipped():
    decoder = ImageDecoder(20, flip=True)
    flips = sum(decoder.crop_of(37, 53, rng_of(number)).flip for number in range(2000))
    assert 900 < flips < 1100  # 4.5 standard deviations.


# --- crops ---


AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
sides = st.integers(1, 600)  # Of an image of 1x600, resized, no more pixels than are allowed.
seeds = st.integers(0, 1000)


def drawn(count: int, area: tuple[float, float], ratio: tuple[float, float]) -> list[Crop]:
    return [
        random_resized(1000, 1000, area, ratio, False, generator(0, 0, number, DECODE))
        for number in range(count)
    ]


def distance_to_uniform(values: Any, least: float, most: float) -> float:
    """Kolmogorov and Smirnov's: how far the shares are from those of a uniform distribution."""
    ranks = (np.sort(values) - least) / (most - least)
    return float(np.abs(ranks - (np.arange(len(ranks)) + 0.5) / len(ranks)).max())


@given(sides, sides, st.tuples(sides, sides), sides, seeds)
@example(1, 1, (1, 1), 1, 0)
@example(1, 600, (600, 1), 600, 0)
@example(600, 1, (3, 600), 1, 0)
def test_crop_lies_inside(height, width, size, resize_short, seed):
    for options in (
        {"crop": "random_resized"},
        {"crop": "random"},
        {"crop": "random", "resize_short": resize_short},
        {"crop": "center", "resize_short": resize_short},
    ):
        decoder = ImageDecoder(size, **options)
        crop = decoder.crop_of(height, width, np.random.default_rng(seed))
        whole_height, whole_width = crop.resized or crop.image
        assert 0 <= crop.top < crop.top + crop.height <= whole_height
        assert 0 <= crop.left < crop.left + crop.width <= whole_width


@pytest.mark.parametrize(
    ("size", "box"),
    [((30, 900), (0, 430, 30, 40)), ((900, 30), (430, 0, 40, 30)), ((1, 1000), (0, 499, 1, 1))],
)
def test_random_resized_without_a_fit(size, box):
    crop = random_resized(*size, (1.0, 1.0), RATIO, True, np.random.default_rng(0))
    assert crop == Crop(size, None, *box, True)


def test_random_resized_golden_box():
    """Or a training run couldn't be repeated."""
    crop = ImageDecoder(9, crop="random_resized").crop_of(375, 500, rng_of())
    assert crop == Crop((375, 500), None, 121, 197, 233, 219, False)


def test_random_resized_is_uniform():
    areas = [crop.height * crop.width / 1e6 for crop in drawn(3000, (0.1, 0.9), (1.0, 1.0))]
    assert distance_to_uniform(areas, 0.1, 0.9) < 0.03
    crops = drawn(3000, (0.2, 0.3), RATIO)
    aspects = [math.log(crop.width / crop.height) for crop in crops]
    assert distance_to_uniform(aspects, math.log(3 / 4), math.log(4 / 3)) < 0.03
    places = [crop.left / (1000 - crop.width) for crop in crops]
    assert distance_to_uniform(places, 0, 1) < 0.03
