"""``ColorJitter``: the values of its definition, with the kernel and without it."""

from __future__ import annotations

import numpy as np
import pytest

from adapters.images import kernel
from adapters.transforms import ColorJitter, affine
from adapters.transforms.transform import axes_of as layout_axes
from tests.transforms.images import DTYPES, LAYOUTS, last, pictures, rng

GREY = np.array([0.299, 0.587, 0.114])


def one(name: str, factor: float) -> ColorJitter:
    return ColorJitter(**{name: (factor, factor)})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factor", [0.0, 0.7, 1.0, 1.6])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_each_is_what_it_is_defined_to_be(name, factor, dtype, layout):
    images = pictures(4, layout, dtype)
    made = last(one(name, factor)(images, rng()), layout)
    before = last(images, layout).astype(np.float64)
    grey = (before @ GREY)[..., None]
    about = {
        "brightness": 0,
        "contrast": grey.mean(axis=(1, 2, 3), keepdims=True),
        "saturation": grey,
    }
    high = 255 if dtype == "uint8" else 1
    wanted = np.clip(about[name] + factor * (before - about[name]), 0, high)
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


def test_the_factors_are_the_images_own_within_their_bounds():
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
@pytest.mark.parametrize("size", [(1, 1), (5, 7), (64, 33), (70, 61), (600, 2), (2, 600)])
def test_the_kernel_and_numpy_give_the_same_bits(layout, size, dtype, monkeypatch):
    jitter = ColorJitter(0.9, 0.9, 0.9, 0.5)
    images = pictures(9, layout, dtype, size)
    by_kernel = jitter(images, rng(7))
    assert by_kernel.tobytes() != images.tobytes()
    by_numpy(monkeypatch)
    assert jitter(images, rng(7)).tobytes() == by_kernel.tobytes()


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_no_number_stays_so_with_the_kernel_and_without_it(layout, monkeypatch):
    images = pictures(4, layout, "float32")
    images[1].reshape(-1)[::50] = np.nan
    images[2].reshape(-1)[7:9] = -np.inf, np.inf
    axes = layout_axes(images, layout)
    matrices, offsets = rng().normal(size=(4, 3, 3)), rng(1).normal(size=4)
    made = []
    for _ in range(2):
        made.append(images.copy())
        affine.apply(made[-1], axes, matrices, offsets, (0.0, 1.0))
        by_numpy(monkeypatch)
    assert np.isnan(made[0][1]).any()
    np.testing.assert_array_equal(*made)


def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affine, "transform", lambda *arguments: False)
    monkeypatch.setattr(affine, "channel_sums", lambda *arguments: None)


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built")
def test_the_kernel_refuses_what_has_another_size():
    functions, images = kernel.load(), pictures(2, dtype="float32")
    matrices, offsets = np.zeros((2, 3, 3), "f4"), np.zeros(2, "f4")
    right = [images, 2, 13, 17, False, matrices, offsets, 0.0, 1.0]
    functions.recolour_floats(*right)
    for at, wrong in ((0, images[:1]), (1, 3), (2, 0), (3, 1 << 61), (5, matrices[:1]), (6, b"")):
        with pytest.raises(ValueError, match="must be"):
            functions.recolour_floats(*right[:at], wrong, *right[at + 1 :])
    with pytest.raises(ValueError, match="sums must be 48 bytes, got 0"):
        functions.channel_sums_floats(images, 2, 13, 17, False, bytearray())


def test_factors_beyond_what_float32_holds_are_exact_all_the_same(monkeypatch):
    jitter = ColorJitter(brightness=(30, 30), contrast=(3, 3), saturation=(5, 5))
    images = pictures(3)
    by_kernel = jitter(images, rng())
    monkeypatch.setattr(affine, "transform", lambda *arguments: False)
    assert jitter(images, rng()).tolist() == by_kernel.tolist()


def test_an_empty_batch_stays_empty():
    assert ColorJitter(0.2, 0.2)(pictures(0), rng()).shape == pictures(0).shape


def test_images_of_one_channel_and_a_range_of_their_own():
    grey = pictures(3)[..., :1]
    assert one("saturation", 0.3)(grey, rng()).tolist() == grey.tolist()
    assert np.abs(one("brightness", 0.5)(grey, rng()) - grey * 0.5).max() <= 0.5
    wide = pictures(3, dtype="float32") * 255
    made = ColorJitter(brightness=(1.2, 1.2), value_range=(0, 255))(wide, rng())
    assert np.abs(made - np.clip(wide * 1.2, 0, 255)).max() < 1e-3


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (
            ValueError,
            "value_range=\\(0, 255\\), say",
            lambda: ColorJitter(0.1)(pictures(2, dtype="float32") * 255, rng()),
        ),
        (
            ValueError,
            "within \\(0.0, 1.0\\), got -",
            lambda: ColorJitter(0.1)(pictures(2, dtype="float32") * 4 - 2, rng()),
        ),
        (
            TypeError,
            "uint8 or float for ColorJitter, got int64",
            lambda: ColorJitter()(np.ones((2, 2, 2, 3), int), rng()),
        ),
        (ValueError, "1 or 3 channels", lambda: ColorJitter()(np.ones((2, 2, 2, 4), "f4"), rng())),
        (ValueError, "brightness must be >= 0, got -0.1", lambda: ColorJitter(-0.1)),
        (ValueError, "hue must be in \\[0, 0.5\\], got 0.7", lambda: ColorJitter(hue=0.7)),
        (ValueError, "low <= high, got \\(2, 1\\)", lambda: ColorJitter(contrast=(2, 1))),
    ],
)
def test_what_has_no_colours_to_change_is_refused(error, message, make):
    with pytest.raises(error, match=message):
        make()
