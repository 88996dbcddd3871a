"""A mask keeps its ids."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from adapters import (
    ImageDecoder,
)
from tests.contract.image_files import (
    COLOURS,
    IDS,
    NEAREST,
    SIXTEEN,
    encoded,
    npy,
    palette,
)

RNG = np.random.default_rng(8)

# --- masks ---


def crops(count: int) -> list[tuple[np.ndarray, ImageDecoder, int]]:
    """Masks of random sizes, and decoders of a random box of them into random sizes."""
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        height, width, *size = (int(side) for side in rng.integers(2, 70, 4))
        ids = rng.integers(0, 256, (height, width), np.uint8)
        decoder = ImageDecoder(tuple(size), crop="random_resized", flip=True, **NEAREST)
        found.append((ids, decoder, seed))
    return found


def test_nearest_is_opencvs_exact_one_on_1000_random_crops():
    for ids, decoder, seed in crops(1000):
        crop = decoder.crop_of(*ids.shape, np.random.default_rng(seed))
        part = ids[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
        size = decoder.size[::-1]
        wanted = cv2.resize(part, size, interpolation=cv2.INTER_NEAREST_EXACT)
        found = decoder.decode(encoded(ids), np.random.default_rng(seed))[:, :, 0]
        np.testing.assert_array_equal(found, wanted[:, ::-1] if crop.flip else wanted)


def test_nearest_is_pillows_on_1000_random_crops_where_one_pixel_is_nearest():
    """Halfway between two pixels, either is right, and Pillow's choice is that of its rounding."""
    for ids, decoder, seed in crops(1000):
        crop = decoder.crop_of(*ids.shape, np.random.default_rng(seed))
        box = crop.left, crop.top, crop.left + crop.width, crop.top + crop.height
        part = Image.fromarray(ids).crop(box)
        wanted = np.array(part.resize(decoder.size[::-1], Image.Resampling.NEAREST))
        found = decoder.decode(encoded(ids), np.random.default_rng(seed))[:, :, 0]
        found = found[:, ::-1] if crop.flip else found
        clear = [
            (2 * np.arange(goal) + 1) * length % (2 * goal) > 0
            for goal, length in zip(decoder.size, (crop.height, crop.width))
        ]
        both = np.ix_(*clear)
        np.testing.assert_array_equal(found[both], wanted[both])


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "NPY"])
@pytest.mark.parametrize("crop", [None, "center", "random", "random_resized"])
def test_a_mask_has_no_other_ids(kind, crop):
    content = npy(IDS) if kind == "NPY" else encoded(IDS, kind)
    resize = {"resize_short": 26} if crop in ("center", "random") else {}
    for size in (7, (19, 33), 90):
        decoder = ImageDecoder(size, crop=crop, flip=True, **resize, **NEAREST)
        found = decoder.decode(content, np.random.default_rng(3))
        assert set(np.unique(found)) <= {0, 1, 7, 255}


@pytest.mark.parametrize("channels", [1, None])
@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF"])
def test_the_indices_of_a_palette_are_the_ids(kind, channels):
    content = encoded(palette(), kind)
    decoder = ImageDecoder(channels=channels, interpolation="nearest")
    stored = np.array(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(decoder.decode(content)[:, :, 0], stored)
    assert kind == "GIF" or (stored == IDS).all()  # As a GIF, Pillow renumbers its colours.


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_the_indices_of_a_small_palette_are_the_ids(bits):
    ids = RNG.integers(0, 1 << bits, (30, 41), np.uint8)
    content = encoded(palette(ids), bits=bits)
    np.testing.assert_array_equal(ImageDecoder(**NEAREST).decode(content)[:, :, 0], ids)


def test_16_bit_ids_are_kept():
    decoder = ImageDecoder((17, 23), dtype="uint16", **NEAREST)
    assert set(np.unique(decoder.decode(encoded(SIXTEEN)))) <= set(np.unique(SIXTEEN))


def test_a_jpeg_is_not_made_smaller_first_for_nearest():
    stripes = np.zeros((160, 160, 3), np.uint8)
    stripes[:, ::2] = 255
    found = ImageDecoder(20, interpolation="nearest").decode(
        encoded(stripes, "JPEG", quality=100, subsampling=0)
    )
    assert ((found < 20) | (found > 235)).all()


@pytest.mark.parametrize(("name", "flag"), [("area", cv2.INTER_AREA), ("cubic", cv2.INTER_CUBIC)])
@pytest.mark.parametrize("image", [COLOURS, SIXTEEN])
def test_other_interpolations_are_opencvs(name, flag, image):
    decoder = ImageDecoder((9, 50), interpolation=name, channels=None, dtype="uint16")
    found = decoder.decode(encoded(image)).squeeze()
    wanted = cv2.resize(image.astype(np.uint16), (50, 9), interpolation=flag)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_16_bits_are_flipped_cut_and_resized_as_8_are(dtype):
    rng = np.random.default_rng(5)
    decoder = ImageDecoder(
        (9, 11), crop="random", resize_short=16, flip=True, dtype=dtype, channels=1
    )
    crop = decoder.crop_of(30, 40, np.random.default_rng(5))
    whole = cv2.resize(SIXTEEN.astype(dtype), crop.resized[::-1])
    wanted = whole[crop.top : crop.top + 9, crop.left : crop.left + 11]
    found = decoder.decode(encoded(SIXTEEN), rng)[:, :, 0]
    np.testing.assert_array_equal(found, wanted[:, ::-1] if crop.flip else wanted)
