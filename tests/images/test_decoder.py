"""``ImageDecoder``: what is asked for, and what comes of it."""

from __future__ import annotations

import pickle
from typing import Any

import cv2
import numpy as np
import pytest

from adapters import ImageDecoder
from adapters.generators import DECODE, generator
from tests.images.pictures import by_pixels, encoded, picture

PHOTO = picture(37, 53)
PNG, JPEG = encoded(PHOTO, "PNG"), encoded(PHOTO, "JPEG")
KINDS: dict[str, dict[str, Any]] = {
    "whole": {"size": (20, 30)},
    "center": {"size": 20, "crop": "center", "resize_short": 24},
    "random": {"size": 20, "crop": "random", "flip": True},
    "random_resized": {"size": 20, "crop": "random_resized", "flip": True},
    "normalised": {"size": 20, "dtype": "float32", "mean": (1, 2, 3), "std": 4.0, "flip": True},
    "channels first": {"size": 20, "crop": "random", "layout": "NCHW"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def rng_of(number: int = 0, epoch: int = 0) -> np.random.Generator:
    return generator(0, epoch, number, DECODE)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"size": (5, -1)}, ValueError, r"size must be >= 1 pixel, got -1"),
        ({"size": (5, 5, 3)}, ValueError, r"size must be \(height, width\), .* got \(5, 5, 3\)"),
        ({"size": 224.0}, TypeError, r"size must be an integer >= 1 pixel, got 224.0"),
        ({"crop": "centre"}, ValueError, r"crop must be one of None, 'center', .* got 'centre'"),
        ({"crop": "center"}, ValueError, r"size must be given with crop='center'"),
        ({"resize_short": 0}, ValueError, r"resize_short must be >= 1 pixel, got 0"),
        ({"size": 5, "resize_short": 6}, ValueError, r"resize_short goes with .* got crop=None"),
        ({"area": 0.5}, ValueError, r"area must be \(least, most\), got 0.5"),
        ({"area": (0.5, 0.1)}, ValueError, r"area must be 0 < least <= most.* got \(0.5, 0.1\)"),
        ({"area": (0.5, 2)}, ValueError, r"area must be a part of the image, .* got \(0.5, 2.0\)"),
        ({"ratio": (1, float("inf"))}, ValueError, r"ratio must be .* finite, got \(1, inf\)"),
        ({"flip": 0.5}, TypeError, r"flip must be True or False, got 0.5"),
        (
            {"dtype": "float64"},
            ValueError,
            r'dtype must be "uint8", "uint16" or .* got \'float64\'',
        ),
        ({"dtype": None}, ValueError, r'dtype must be "uint8", "uint16" or "float32", got None'),
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


@pytest.mark.parametrize(
    ("decoder", "text"),
    [
        (ImageDecoder(), "ImageDecoder(None)"),
        (ImageDecoder(224, flip=True), "ImageDecoder((224, 224), flip=True)"),
        (
            ImageDecoder((2, 3), crop="center", resize_short=4, dtype=np.float32, mean=[1, 2, 3]),
            "ImageDecoder((2, 3), crop='center', resize_short=4, dtype='float32', "
            "mean=[1.0, 2.0, 3.0])",
        ),
    ],
)
def test_repr(decoder, text):
    assert repr(decoder) == text


@every_kind
def test_decoder_pickles_and_knows_its_shape(kind):
    decoder = ImageDecoder(**KINDS[kind])
    array = pickle.loads(pickle.dumps(decoder)).decode(JPEG, rng_of())
    np.testing.assert_array_equal(array, decoder.decode(JPEG, rng_of()))
    assert (array.shape, array.dtype) == (decoder.shape, decoder.dtype)


@every_kind
def test_image_is_written_into_its_row(kind):
    decoder = ImageDecoder(**KINDS[kind])
    assert decoder.shape is not None
    batch = np.full((3, *decoder.shape), 7, decoder.dtype)
    returned = decoder.decode(PNG, rng_of(), batch[1])
    assert returned.base is batch
    np.testing.assert_array_equal(batch[1], decoder.decode(PNG, rng_of()))
    np.testing.assert_array_equal(batch[::2], np.full_like(batch[::2], 7))


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1)])
@pytest.mark.parametrize("content", [PNG, JPEG, encoded(picture(1, 1), "JPEG")])
def test_rows_of_one_pixel(content, size):
    batch = np.full((2, *size, 3), 7, np.uint8)
    decoder = ImageDecoder(size, crop="random_resized", flip=True)
    expected = decoder.decode(content, rng_of())
    decoder.decode(content, rng_of(), batch[1])
    np.testing.assert_array_equal(batch[1], expected)


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
    ("mean", "std"),
    [(None, None), (100.0, None), (None, 2.5), (100.0, (1, 2, 3)), ((10, 20, 30), (1, 2, 3))],
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_pixels_are_normalised_as_numpy_would(mean, std, layout):
    decoder = ImageDecoder((20, 30), dtype="float32", mean=mean, std=std, layout=layout)
    expected = ImageDecoder((20, 30)).decode(PNG).astype(np.float32)
    expected = expected - np.float32(0 if mean is None else mean)
    expected = expected / np.float32(1 if std is None else std)
    expected = expected.transpose(2, 0, 1) if layout == "NCHW" else expected
    array = decoder.decode(PNG)
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, expected)


def test_one_channel_may_come_first():
    found = ImageDecoder((20, 30), channels=1, layout="NCHW").decode(PNG)
    expected = ImageDecoder((20, 30), channels=1).decode(PNG)
    np.testing.assert_array_equal(found, expected.transpose(2, 0, 1))


@every_kind
def test_box_is_computed_apart_from_the_pixels(kind):
    decoder = ImageDecoder(**{**KINDS[kind], "dtype": "uint8", "mean": None, "std": None})
    crop = decoder.crop_of(37, 53, rng_of())
    assert decoder.size is not None
    row = by_pixels(PNG, crop, *decoder.size)
    row = row.transpose(2, 0, 1) if decoder.layout == "NCHW" else row
    np.testing.assert_array_equal(decoder.decode(PNG, rng_of()), row)


@pytest.mark.parametrize("crop", ["random", "random_resized"])
def test_samples_and_epochs_have_their_own_boxes(crop):
    decoder = ImageDecoder((375, 250), crop=crop)
    places = [(number, epoch) for number in range(4) for epoch in range(4)]
    boxes = [[decoder.crop_of(2000, 3000, rng_of(*place)) for place in places] for _ in range(2)]
    assert boxes[0] == boxes[1]
    assert len(set(boxes[0])) == 16


def test_every_other_image_is_flipped():
    decoder = ImageDecoder(20, flip=True)
    flips = sum(decoder.crop_of(37, 53, rng_of(number)).flip for number in range(2000))
    assert 900 < flips < 1100  # 4.5 standard deviations.


@pytest.mark.parametrize(
    ("arguments", "draws"),
    [
        ({}, False),
        ({"flip": True}, True),
        ({"size": 5, "crop": "center"}, False),
        ({"size": 5, "crop": "random"}, True),
        ({"size": 5, "crop": "random_resized"}, True),
    ],
)
def test_draws_needs_a_generator(arguments, draws):
    assert ImageDecoder(**arguments).draws is draws
    if draws:
        with pytest.raises(ValueError, match=r"^rng must be a numpy\.random"):
            ImageDecoder(**arguments).decode(PNG)
