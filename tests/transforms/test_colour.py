"""``ColorJitter`` and ``RandomErasing``: their definitions' values, with the kernel and without."""

from __future__ import annotations

import numpy as np
import pytest

from adapters.images import kernel
from adapters.transforms import ColorJitter, RandomErasing, colour
from adapters.transforms.transform import axes_of as layout_axes
from tests.transforms.images import DTYPES, LAYOUTS, last, pictures, rng

GREY = np.array([0.299, 0.587, 0.114])


def one(name: str, factor: float) -> ColorJitter:
    return ColorJitter(**{name: (factor, factor)})


@pytest.mark.parametrize(("dtype", "layout"), list(zip(DTYPES, LAYOUTS)))
@pytest.mark.parametrize("factor", [0.0, 0.7, 1.6])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_jitter_is_what_it_is_defined_to_be(name, factor, dtype, layout):
    images = pictures(4, layout, dtype)
    made = last(one(name, factor)(images, rng()), layout)
    before = last(images, layout).astype(np.float64)
    grey = (before @ GREY)[..., None]
    means = grey.mean(axis=(1, 2, 3), keepdims=True)
    about = {"brightness": 0, "contrast": means, "saturation": grey}[name]
    wanted = np.clip(about + factor * (before - about), 0, 255 if dtype == "uint8" else 1)
    assert made.dtype == images.dtype
    assert np.abs(made - wanted).max() <= (0.65 if dtype == "uint8" else 1e-5)


def test_hue_turns_colours_about_the_greys():
    images = pictures(4, dtype="float32") * 0.2 + 0.4
    turned = ColorJitter(hue=(0.25, 0.25))(images, rng())
    back = ColorJitter(hue=(-0.25, -0.25))(turned, rng())
    assert np.abs(back - images).max() < 1e-5
    assert np.abs(turned @ GREY - images @ GREY).max() < 1e-3
    assert np.abs(turned - images).max() > 0.05
    greys = np.repeat(images[..., :1], 3, axis=3)
    assert np.abs(ColorJitter(hue=0.5)(greys, rng()) - greys).max() < 1e-5
    whole = ColorJitter(hue=(0.5, 0.5))
    assert np.abs(whole(whole(images, rng()), rng()) - images).max() < 1e-5


def test_jitter_factors_are_each_images_own():
    images = np.full((3000, 1, 1, 1), 0.4, np.float32)
    factors = ColorJitter(brightness=0.5)(images, rng()).ravel() / 0.4
    assert 0.5 <= factors.min() < 0.51
    assert 1.49 < factors.max() <= 1.5
    assert abs(factors.mean() - 1) < 0.02
    changed = ColorJitter(brightness=(1.5, 2), probability=0.3)(images, rng()).ravel() > 0.41
    assert abs(changed.mean() - 0.3) < 0.03


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(1, 1), (64, 33), (70, 61), (2, 600)])
def test_jitter_of_kernel_and_numpy_is_the_same(layout, size, dtype, monkeypatch):
    jitter = ColorJitter(0.9, 0.9, 0.9, 0.5)
    images = pictures(9, layout, dtype, size)
    by_kernel = jitter(images, rng(7))
    assert by_kernel.tobytes() != images.tobytes()
    by_numpy(monkeypatch)
    assert jitter(images, rng(7)).tobytes() == by_kernel.tobytes()


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_jitter_keeps_nan(layout, monkeypatch):
    images = pictures(4, layout, "float32")
    images[1].reshape(-1)[::50] = np.nan
    images[2].reshape(-1)[7:9] = -np.inf, np.inf
    axes = layout_axes(images, layout)
    matrices, offsets = rng().normal(size=(4, 3, 3)), rng(1).normal(size=4)
    made = []
    for _ in range(2):
        made.append(images.copy())
        colour.apply(made[-1], axes, matrices, offsets, (0.0, 1.0))
        by_numpy(monkeypatch)
    assert np.isnan(made[0][1]).any()
    np.testing.assert_array_equal(*made)


def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colour, "kernel_for", lambda images: None)


def test_jitter_large_factors_are_exact(monkeypatch):
    """Beyond what float32 holds."""
    jitter = ColorJitter(brightness=(30, 30), contrast=(3, 3), saturation=(5, 5))
    images = pictures(3)
    by_kernel = jitter(images, rng())
    by_numpy(monkeypatch)
    assert jitter(images, rng()).tolist() == by_kernel.tolist()
    assert jitter(pictures(0), rng()).shape == pictures(0).shape


def test_jitter_of_grey_and_of_other_ranges():
    grey = pictures(3)[..., :1]
    assert one("saturation", 0.3)(grey, rng()).tolist() == grey.tolist()
    assert np.abs(one("brightness", 0.5)(grey, rng()) - grey * 0.5).max() <= 0.5
    wide = pictures(3, dtype="float32") * 255
    made = ColorJitter(brightness=(1.2, 1.2), value_range=(0, 255))(wide, rng())
    assert np.abs(made - np.clip(wide * 1.2, 0, 255)).max() < 1e-3


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ValueError, r"value_range=\(0, 255\), say", lambda: jittered(pictures(2) * 1.0)),
        (ValueError, r"within \(0.0, 1.0\), got -", lambda: jittered(pictures(2) / 64 - 2)),
        (
            TypeError,
            "uint8 or float for ColorJitter, got int64",
            lambda: jittered(ONES.astype(int)),
        ),
        (ValueError, "1 or 3 channels", lambda: jittered(np.ones((2, 2, 2, 4), "f4"))),
        (ValueError, "brightness must be >= 0, got -0.1", lambda: ColorJitter(-0.1)),
        (ValueError, r"hue must be in \[0, 0.5\], got 0.7", lambda: ColorJitter(hue=0.7)),
        (ValueError, r"low <= high, got \(2, 1\)", lambda: ColorJitter(contrast=(2, 1))),
    ],
)
def test_jitter_refuses_what_has_no_colours(error, message, make):
    with pytest.raises(error, match=message):
        make()


ONES = np.ones((2, 2, 2, 3))


def jittered(images):
    return ColorJitter(0.1)(images, rng())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("value", [0, (1, 2, 3)])
def test_erasing_paints_a_box_of_the_asked_size(layout, value):
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


def test_erasing_probability():
    images = np.ones((3000, 8, 8), np.float32)
    changed = (RandomErasing(0.3)(images, rng()) == 0).any(axis=(1, 2))
    assert abs(changed.mean() - 0.3) < 0.03
    assert (RandomErasing(0.0)(images, rng()) == 1).all()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_erasing_noise_is_of_the_images_dtype(dtype):
    images = np.full((4, 64, 64, 3), 7, dtype)
    made = RandomErasing(1.0, scale=(0.5, 0.5), ratio=(1, 1), value="noise")(images, rng())
    noise = made[made != 7].astype(np.float64)
    mean, spread = {"uint8": (127.5, 74), "float32": (0, 1)}[dtype]
    assert abs(noise.mean() - mean) < spread / 10
    assert abs(noise.std() - spread) < spread / 10


@pytest.mark.parametrize("size", [(1, 1), (1, 30), (3, 2)])
def test_erasing_stays_within_small_images(size):
    images = pictures(20, size=size)
    made = RandomErasing(1.0, scale=(0.5, 1.0), ratio=(0.1, 10), value=0)(images, rng())
    assert ((made == images) | (made == 0)).all()


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, r"scale must be in \[0, 1\], got 1.5", {"scale": (0, 1.5)}),
        (TypeError, r"ratio must be \(low, high\), got 3", {"ratio": 3}),
        (TypeError, "value must be a number, got 'black'", {"value": "black"}),
        (ValueError, r"one for each of 3 channels, got \(1, 2\)", {"value": (1, 2)}),
        (TypeError, "fit the images' uint8, got 0.5", {"value": 0.5}),
    ],
)
def test_erasing_refuses_wrong_arguments(error, message, arguments):
    with pytest.raises(error, match=message):
        RandomErasing(**arguments)(pictures(), rng())
    with pytest.raises(TypeError, match="uint8 or float for noise, got int16"):
        RandomErasing(value="noise")(pictures().astype("int16"), rng())
