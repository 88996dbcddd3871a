"""``RandomErasing``: one box of an image, of the size and value that was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from adapters.transforms import RandomErasing
from tests.transforms.images import LAYOUTS, last, pictures, rng


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("value", [0, (1, 2, 3)])
def test_one_box_of_the_asked_size_is_painted_with_the_value(layout, value):
    images = np.full((400, 40, 50, 3), 200, np.uint8)
    images = np.ascontiguousarray(images.transpose(0, 3, 1, 2)) if layout == "NCHW" else images
    made = last(
        RandomErasing(1.0, scale=(0.1, 0.2), ratio=(0.5, 2), value=value)(images, rng()), layout
    )
    areas, ratios = [], []
    for image in made:
        painted = (image != 200).any(axis=-1)
        rows, columns = np.flatnonzero(painted.any(1)), np.flatnonzero(painted.any(0))
        assert painted.sum() == len(rows) * len(columns)
        assert (image[painted] == value).all()
        areas.append(painted.mean())
        ratios.append(len(rows) / len(columns))
    assert 0.09 < min(areas) < 0.11 < 0.19 < max(areas) < 0.21
    assert 0.4 < min(ratios) < 0.6 < 1.7 < max(ratios) < 2.3


def test_the_probability_is_that_of_an_images_being_changed():
    images = np.ones((3000, 8, 8), np.float32)
    changed = (RandomErasing(0.3)(images, rng()) == 0).any(axis=(1, 2))
    assert abs(changed.mean() - 0.3) < 0.03
    assert (RandomErasing(0.0)(images, rng()) == 1).all()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_noise_is_noise_of_the_images_dtype(dtype):
    images = np.full((4, 64, 64, 3), 7, dtype)
    made = RandomErasing(1.0, scale=(0.5, 0.5), ratio=(1, 1), value="noise")(images, rng())
    noise = made[made != 7].astype(np.float64)
    mean, spread = {"uint8": (127.5, 74), "float32": (0, 1)}[dtype]
    assert abs(noise.mean() - mean) < spread / 10
    assert abs(noise.std() - spread) < spread / 10


@pytest.mark.parametrize("size", [(1, 1), (1, 30), (3, 2)])
def test_boxes_stay_within_small_images(size):
    images = pictures(20, size=size)
    made = RandomErasing(1.0, scale=(0.5, 1.0), ratio=(0.1, 10), value=0)(images, rng())
    assert ((made == images) | (made == 0)).all()


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ValueError, "scale must be in \\[0, 1\\], got 1.5", lambda: RandomErasing(scale=(0, 1.5))),
        (TypeError, "ratio must be \\(low, high\\), got 3", lambda: RandomErasing(ratio=3)),
        (TypeError, "value must be a number, got 'black'", lambda: RandomErasing(value="black")),
        (
            ValueError,
            "one for each of 3 channels, got \\(1, 2\\)",
            lambda: RandomErasing(value=(1, 2))(pictures(), rng()),
        ),
        (
            TypeError,
            "fit the images' uint8, got 0.5",
            lambda: RandomErasing(value=0.5)(pictures(), rng()),
        ),
        (
            TypeError,
            "uint8 or float for noise, got int16",
            lambda: RandomErasing(value="noise")(pictures().astype("int16"), rng()),
        ),
    ],
)
def test_wrong_arguments_are_refused(error, message, make):
    with pytest.raises(error, match=message):
        make()
