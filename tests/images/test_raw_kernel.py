"""Raw pictures through the kernel against NumPy's arithmetic, to the bit."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from adapters import ImageDecoder
from adapters.generators import DECODE, Generators, generator
from adapters.images import kernel
from adapters.images.geometry import Crop
from tests.fuzzing import examples
from tests.images.pictures import decode_into, npy, picture

pytestmark = pytest.mark.skipif(
    kernel.load() is None, reason="the kernel isn't built, or switched off"
)
KINDS = ("RGB", "grey")


def content_of(kind: str, image: NDArray[np.uint8]) -> bytes:
    return npy(image if kind == "RGB" else image[:, :, :1])


def by_kernel(content: bytes, crop: Crop, goal: tuple[int, int]) -> Any:
    """The row; None where the kernel left it undone."""
    out = np.full((3, *goal, 3), 77, np.uint8)
    left = kernel.decode_crops([content], [crop], [1], kernel.Target(out, False, None))
    assert (out[::2] == 77).all()
    return None if left else out[1]


def taps(length: int, resized: int, offset: int, count: int) -> Any:
    places = ((np.arange(count) + offset + 0.5) * (1.0 / (resized / length)) - 0.5).astype("f4")
    places = np.maximum(places, 0)
    at = places.astype(int)
    rest = np.where(at >= length - 1, 0, places - at.astype("f4")).astype("f4")
    weights = (np.rint(part * np.float32(2048)).astype(int) for part in (1 - rest, rest))
    return np.minimum(at, length - 1), np.minimum(at + 1, length - 1), *weights


def by_numpy(image: NDArray[np.uint8], crop: Crop, goal: tuple[int, int]) -> Any:
    """RGB pixels resized with the arithmetic that ``resize.h`` describes."""
    if crop.resized is not None:
        part, scaled = image, zip(image.shape, crop.resized, (crop.top, crop.left), goal)
    else:
        part = image[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
        scaled = zip(part.shape, goal, (0, 0), goal)
    (above, below, upper, lower), (left, right, first, second) = (taps(*axis) for axis in scaled)
    wide = part.astype(int)
    first, second = first[:, np.newaxis], second[:, np.newaxis]
    upper, lower = upper[:, np.newaxis, np.newaxis], lower[:, np.newaxis, np.newaxis]
    lines = (wide[:, left] * first + wide[:, right] * second) >> 4
    row = ((lines[above] * upper >> 16) + (lines[below] * lower >> 16) + 2) >> 2
    return (row[:, ::-1] if crop.flip else row).astype(np.uint8)


def expected(kind: str, image: NDArray[np.uint8], crop: Crop, goal: tuple[int, int]) -> Any:
    grey = np.repeat(image[:, :, :1], 3, 2)
    return by_numpy(image if kind == "RGB" else grey, crop, goal)


@st.composite
def works(draw: Any) -> tuple[str, NDArray[np.uint8], Crop, tuple[int, int]]:
    height, width = draw(st.integers(1, 120)), draw(st.integers(1, 120))
    goal = draw(st.integers(1, 99)), draw(st.integers(1, 99))
    flip = draw(st.booleans())
    if draw(st.booleans()):
        spare = draw(st.integers(0, 30)), draw(st.integers(0, 30))
        place = draw(st.integers(0, spare[0])), draw(st.integers(0, spare[1]))
        resized = goal[0] + spare[0], goal[1] + spare[1]
        crop = Crop((height, width), resized, *place, *goal, flip)
    else:
        top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
        box = draw(st.integers(1, height - top)), draw(st.integers(1, width - left))
        crop = Crop((height, width), None, top, left, *box, flip)
    # Noise is what shows every wrong neighbour.
    noise = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, (height, width, 3))
    return draw(st.sampled_from(KINDS)), noise.astype(np.uint8), crop, goal


@given(works())
@settings(max_examples=examples(600))
def test_any_box_is_numpys_to_the_bit(work):
    kind, image, crop, goal = work
    row = by_kernel(content_of(kind, image), crop, goal)
    np.testing.assert_array_equal(row, expected(kind, image, crop, goal))


@given(works())
@settings(max_examples=examples(300))
def test_a_raw_box_differs_by_1_at_most_from_opencvs(work):
    """What is done without the kernel."""
    kind, image, crop, goal = work
    content = content_of(kind, image)
    row = np.empty((*goal, 3), np.uint8)
    decode_into(content, crop, row)
    assert np.abs(by_kernel(content, crop, goal).astype(int) - row).max() <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("goal", [(224, 224), (31, 500), (500, 31), (9, 9)])
@pytest.mark.parametrize("flip", [False, True])
def test_a_picture_of_256_pixels_is_numpys_to_the_bit(kind, goal, flip):
    """Wide enough for every processor's own code, enlarged and shrunk by far."""
    image = np.random.default_rng(0).integers(0, 256, (256, 341, 3), np.uint8)
    for box in [(0, 0, 256, 341), (1, 3, 255, 338), (40, 60, 90, 81), (0, 0, 200, 20)]:
        crop = Crop((256, 341), None, *box, flip)
        row = by_kernel(content_of(kind, image), crop, goal)
        np.testing.assert_array_equal(row, expected(kind, image, crop, goal))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    "more", [{}, {"dtype": "float32"}, {"dtype": "float32", "mean": (1, 2, 3), "std": (4, 5, 6.5)}]
)
def test_every_layout_and_dtype_has_the_values_of_the_plain_one(kind, layout, more):
    content = content_of(kind, picture(75, 103))
    options = {"crop": "random_resized", "flip": True}
    plain, other = (
        ImageDecoder((20, 33), **options),
        ImageDecoder((20, 33), layout=layout, **options, **more),
    )
    for number in range(4):
        row = plain.decode(content, generator(0, 0, number, DECODE)).astype(more.get("dtype", "u1"))
        if "mean" in more:
            row = (row - np.float32(more["mean"])) / np.float32(more["std"])
        found = other.decode(content, generator(0, 0, number, DECODE))
        assert found.dtype == row.dtype
        np.testing.assert_array_equal(found, row.transpose(2, 0, 1) if layout == "NCHW" else row)


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_in_python_touches_the_pixels(kind, monkeypatch):
    def called(*arguments: Any) -> None:
        raise AssertionError("the other way")

    monkeypatch.setattr("adapters.images.decoder.cropped", called)
    monkeypatch.setattr("adapters.images.decoder.size_of", called)
    contents = [content_of(kind, picture(40 + n, 60 - n)) for n in range(9)]
    for decoder in (
        ImageDecoder(24, crop="random_resized", flip=True),
        ImageDecoder(24, crop="center", resize_short=32),
        ImageDecoder(24, crop="random"),
        ImageDecoder((24, 30)),
    ):
        out = np.zeros((9, *(decoder.shape or ())), np.uint8)
        by_turns = [generator(0, 0, place, DECODE) for place in range(9)]
        for rng_of in (by_turns.__getitem__, Generators(0, 0, DECODE, np.arange(9))):
            before = out.copy()
            assert decoder.decode_rows(contents, rng_of, range(9), out) == []
            assert out.any((1, 2, 3)).all()
        np.testing.assert_array_equal(out, before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_part_is_not_made_of_a_smaller_picture_first(kind):
    """As JPEGs are: an eighth of the size is a pixel of eight, not their mean."""
    stripes = np.zeros((160, 160, 3), np.uint8)
    stripes[:, ::2] = 255
    row = ImageDecoder(20).decode(content_of(kind, stripes))
    reference = cv2.resize(stripes, (20, 20), interpolation=cv2.INTER_LINEAR)
    assert np.abs(row.astype(int) - reference).max() <= 1
    rows = np.zeros((2, 20, 20, 3), np.uint8)
    assert ImageDecoder(20).decode_rows([content_of(kind, stripes)] * 2, None, [0, 1], rows) == []
    np.testing.assert_array_equal(rows, [row, row])


def test_arrays_that_only_others_can_read_are_left_to_them():
    """In Fortran's order, of another header, or of another version of it."""
    image = picture(20, 30)
    turned = npy(np.asfortranarray(image))
    spaced = npy(image).replace(b"'descr': '|u1'", b"'descr':  'u1'")
    assert b"'fortran_order': True" in turned
    for content in (turned, spaced):
        assert by_kernel(content, Crop((20, 30), None, 0, 0, 20, 30, False), (20, 30)) is None
        np.testing.assert_array_equal(ImageDecoder((20, 30)).decode(content), image)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_do_not_begin_at_an_even_address_are_read_all_the_same(kind):
    content = content_of(kind, picture(40, 60))
    row = ImageDecoder(24).decode(content)
    for shift in (1, 3, 8, 63):
        moved = memoryview(bytes(shift) + content)[shift:]
        np.testing.assert_array_equal(ImageDecoder(24).decode(moved), row)
