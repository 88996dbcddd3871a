"""The compiled kernel against what works without it."""

from __future__ import annotations

import contextlib
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.generators import DECODE, generator
from adapters.images import kernel, pixels
from adapters.images.geometry import Crop, whole
from adapters.images.kernel import Target
from tests.fuzzing import examples
from tests.images.pictures import OPENCV_LEVELS, decode_into, encoded, npy, picture

pytestmark = pytest.mark.skipif(
    kernel.load() is None, reason="the kernel isn't built, or switched off"
)
SAMPLINGS = {
    name: getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{name}")
    for name in ("411", "420", "422", "440", "444")
}
PHOTO = picture(75, 103)
BASELINE = encoded(PHOTO, "JPEG")


def jpeg(image: Any, sampling: str = "420", quality: int = 90) -> bytes:
    flags = [cv2.IMWRITE_JPEG_QUALITY, quality]
    flags += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling]]
    content: bytes = cv2.imencode(".jpg", image, flags)[1].tobytes()
    return content


def by_kernel(content: bytes, crop: Crop, height: int, width: int) -> Any:
    """The row; None where the kernel left it undone."""
    out = np.full((1, height, width, 3), 77, np.uint8)
    left = kernel.decode_crops([content], [crop], [0], Target(out, False, None))
    return None if left else out[0]


def by_pixels(content: bytes, crop: Crop, height: int, width: int) -> Any:
    row = np.empty((height, width, 3), np.uint8)
    decode_into(content, crop, row)
    return row


@st.composite
def works(draw: Any) -> tuple[bytes, Crop, tuple[int, int]]:
    height, width = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    goal = draw(st.integers(1, 70)), draw(st.integers(1, 70))
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
    seed, sampling = draw(st.integers(0, 99)), draw(st.sampled_from(sorted(SAMPLINGS)))
    # Noise is what shows every wrong neighbour.
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return jpeg(noise, sampling, draw(st.integers(5, 100))), crop, goal


@given(works())
@settings(max_examples=examples(600))
def test_any_box_differs_by_1_at_most_from_all_of_it_decoded(work):
    """Of 256: what OpenCV's resizing may round otherwise. Boxes at any border of MCUs."""
    content, crop, goal = work
    row = by_kernel(content, crop, *goal)
    assert row is not None
    assert np.abs(row.astype(int) - by_pixels(content, crop, *goal)).max() <= 1


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_hardly_a_pixel_of_a_photograph_differs(sampling):
    """0.01 of 256 on average."""
    decoder, differences = ImageDecoder(40, crop="random_resized"), []
    content = jpeg(PHOTO, sampling)
    for number in range(100):
        crop = decoder.crop_of(75, 103, generator(0, 0, number, DECODE))
        row = by_kernel(content, crop, 40, 40)
        differences.append(np.abs(row.astype(int) - by_pixels(content, crop, 40, 40)).mean())
    assert np.mean(differences) < max(0.01, OPENCV_LEVELS / 4)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_box_that_is_not_resized_is_what_all_of_it_decoded_has(sampling):
    content = jpeg(PHOTO, sampling)
    image = pixels.decode(content)
    for top in range(0, 60, 7):
        for left in range(0, 80, 5):
            row = by_kernel(content, Crop((75, 103), None, top, left, 15, 23, False), 15, 23)
            np.testing.assert_array_equal(row, image[top : top + 15, left : left + 23])


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_a_reduced_image_is_simplejpegs(factor):
    content = encoded(picture(160, 240), "JPEG")
    goal = 160 // factor, 240 // factor
    np.testing.assert_array_equal(
        by_kernel(content, whole(160, 240), *goal), pixels._jpeg(content, factor)
    )


def test_a_grey_image_gets_three_channels():
    content = encoded(picture(37, 53, 1), "JPEG")
    row = by_kernel(content, whole(37, 53, True), 37, 53)
    np.testing.assert_array_equal(row, pixels.decode(content)[:, ::-1])


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("width", [1, 31, 103])
@pytest.mark.parametrize("mean", [0.0, 3.0, -0.25])
def test_floats_are_what_the_table_has_for_each_number(layout, width, mean):
    """Also where they are the numbers themselves, which are cast."""
    content, crop = jpeg(PHOTO), Crop((75, 103), None, 3, 0, 20, width, False)
    table = (np.arange(768, dtype=np.float32) % 256 - np.float32(mean)).reshape(3, 256)
    shape = (1, 20, width, 3) if layout == "NHWC" else (1, 3, 20, width)
    out = np.full(shape, np.nan, np.float32)
    target = Target(out, layout == "NCHW", table)
    assert kernel.decode_crops([content], [crop], [0], target) == []
    expected = by_kernel(content, crop, 20, width).astype(np.float32) - np.float32(mean)
    found = out[0] if layout == "NHWC" else out[0].transpose(1, 2, 0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    "more", [{}, {"dtype": "float32"}, {"dtype": "float32", "mean": (1, 2, 3), "std": (4, 5, 6.5)}]
)
def test_every_layout_and_dtype_has_the_values_of_the_other_way(layout, more, monkeypatch):
    decoder = ImageDecoder(
        (20, 31), crop="center", resize_short=33, flip=True, layout=layout, **more
    )
    rows = [decoder.decode(BASELINE, generator(0, 0, i, DECODE)) for i in range(4)]
    monkeypatch.setattr(kernel, "load", lambda: None)
    for number, row in enumerate(rows):
        other = decoder.decode(BASELINE, generator(0, 0, number, DECODE))
        np.testing.assert_allclose(row, other, rtol=0, atol=OPENCV_LEVELS)


# --- sizes ---


@pytest.mark.parametrize(
    "content",
    [
        *(jpeg(PHOTO, sampling) for sampling in SAMPLINGS),
        encoded(PHOTO, "JPEG", progressive=True),
        encoded(PHOTO, "JPEG", "CMYK"),
        encoded(picture(75, 103, 1), "JPEG"),
    ],
)
def test_the_size_of_any_jpeg_is_known_without_a_decoder(content):
    assert kernel.sizes([content, memoryview(content)]) == [(75, 103), (75, 103)]


@pytest.mark.parametrize(
    "content",
    {
        "PNG": encoded(PHOTO, "PNG"),
        "nothing": b"",
        "two markers": b"\xff\xd8\xff\xd9",
        "no height yet": BASELINE.replace(b"\x00\x4b\x00\x67", b"\x00\x00\x00\x67", 1),
        "too large": BASELINE.replace(b"\x00\x4b\x00\x67", b"\xff\xff\xff\xff", 1),
        "gaps": memoryview(BASELINE)[::2],
    }.values(),
)
def test_the_size_of_anything_else_is_not(content):
    assert kernel.sizes([content]) == [None]


@given(st.data())
def test_a_size_that_is_known_is_the_decoders(data):
    content = bytearray(BASELINE[:700])
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, 250))] = data.draw(st.integers(0, 255))
    (size,) = kernel.sizes([bytes(content[: data.draw(st.integers(0, 700))])])
    if size is not None:
        with contextlib.suppress(ContentError):  # It sees more than the size.
            assert size == pixels.size_of(bytes(content) + BASELINE[700:])


# --- what it leaves to others ---


@pytest.mark.parametrize(
    "content",
    {
        "progressive": encoded(PHOTO, "JPEG", progressive=True),
        "CMYK": encoded(PHOTO, "JPEG", "CMYK"),
        "PNG": encoded(PHOTO, "PNG"),
        "bytes behind it": BASELINE + b"\0",
        "nothing": b"",
        "two markers": b"\xff\xd8\xff\xd9",
    }.values(),
)
def test_what_is_no_whole_baseline_jpeg_is_left(content):
    assert by_kernel(content, whole(75, 103), 9, 9) is None


def test_a_jpeg_cut_anywhere_is_left():
    """Also where all rows that are wanted are there."""
    crop = Crop((75, 103), None, 0, 0, 5, 5, False)
    assert by_kernel(BASELINE, crop, 5, 5) is not None
    for size in range(len(BASELINE)):
        assert by_kernel(BASELINE[:size], crop, 5, 5) is None
    # The last bytes of the data may be but filling.
    for size in range(len(BASELINE) - 10):
        assert by_kernel(BASELINE[:size] + b"\xff\xd9", whole(75, 103), 5, 5) is None


def test_a_jpeg_of_another_size_than_the_box_was_made_for_is_left():
    assert by_kernel(BASELINE, whole(75, 102), 9, 9) is None


def test_damage_where_pixels_are_used_is_left():
    content = bytearray(BASELINE)
    content[len(content) // 2 : len(content) // 2 + 40] = b"\xff" * 40
    assert by_kernel(bytes(content), whole(75, 103), 9, 9) is None


def test_what_it_leaves_is_decoded_all_the_same():
    contents = [BASELINE, encoded(PHOTO, "PNG"), b"no image", encoded(PHOTO, "JPEG", "CMYK")]
    out = np.zeros((5, 20, 30, 3), np.uint8)
    decoder = ImageDecoder((20, 30))
    failures = decoder.decode_rows(contents, lambda place: None, [4, 1, 2, 0], out)
    assert [place for place, _ in failures] == [2]
    for content, row in zip(contents[:2] + contents[3:], (4, 1, 0)):
        np.testing.assert_array_equal(out[row], decoder.decode(content))
    assert not out[2:4].any()


def test_a_row_that_is_not_contiguous_is_written_all_the_same():
    out = np.zeros((40, 30, 3), np.uint8)
    ImageDecoder((20, 30)).decode(BASELINE, out=out[::2])
    np.testing.assert_allclose(
        out[::2], ImageDecoder((20, 30)).decode(BASELINE), rtol=0, atol=OPENCV_LEVELS
    )
    assert not out[1::2].any()


def test_an_image_without_tables_does_not_get_those_of_the_one_before():
    content = BASELINE
    at = content.index(b"\xff\xdb")
    length = int.from_bytes(content[at + 2 : at + 4], "big")
    bare = content[:at] + content[at + 2 + length :]
    crops, out = [whole(75, 103)] * 2, np.zeros((2, 9, 9, 3), np.uint8)
    assert kernel.decode_crops([content, bare], crops, [0, 1], Target(out, False, None)) == [1]


def test_damage_that_only_the_end_shows_is_left_where_all_of_the_image_is_wanted():
    """As without the kernel, of one byte changed anywhere in the data."""
    begin = BASELINE.index(b"\xff\xda") + 14
    for place in range(begin, len(BASELINE) - 2, 5):
        content = bytearray(BASELINE)
        content[place] ^= 16
        try:
            expected = pixels.decode(bytes(content))
        except ContentError:
            assert by_kernel(bytes(content), whole(75, 103), 75, 103) is None
        else:
            row = by_kernel(bytes(content), whole(75, 103), 75, 103)
            assert row is None or (row == expected).all()


@pytest.mark.parametrize("sampling", [0x41, 0x12, 0x21, 0x22, 0x11, 0x14, 0x42, 0x31])
def test_unusual_subsampling_is_left_or_right(sampling):
    """The header says so; the data don't, but both ways take them for the same."""
    content = bytearray(jpeg(PHOTO, "444"))
    frame = content.index(b"\xff\xc0")
    content[frame + 11] = sampling
    for goal in ((75, 103), (37, 50), (18, 25), (9, 12)):
        row = by_kernel(bytes(content), whole(75, 103), *goal)
        assert row is not None or sampling != 0x11  # What the data are.
        if row is not None:
            assert (
                np.abs(row.astype(int) - by_pixels(bytes(content), whole(75, 103), *goal)).max()
                <= 1
            )


@pytest.mark.parametrize("content", [BASELINE, encoded(PHOTO, "PNG")], ids=["JPEG", "PNG"])
def test_a_buffer_with_gaps_is_an_error_of_its_own(content):
    spread = np.zeros(2 * len(content), np.uint8)
    spread[::2] = np.frombuffer(content, np.uint8)
    out = np.zeros((2, 9, 9, 3), np.uint8)
    failures = ImageDecoder(9).decode_rows([memoryview(spread)[::2], BASELINE], None, [0, 1], out)
    assert [place for place, _ in failures] == [0]
    np.testing.assert_array_equal(out[1], ImageDecoder(9).decode(BASELINE))


@pytest.mark.parametrize("dtype", [">f4", "int32", "float64"])
def test_an_array_of_another_dtype_is_written_by_the_other_way(dtype):
    decoder = ImageDecoder((20, 30), dtype="float32", mean=10)
    out = np.zeros((20, 30, 3), dtype)
    decoder.decode(BASELINE, out=out)
    np.testing.assert_allclose(out, decoder.decode(BASELINE), atol=1)


def test_an_image_that_becomes_huge_is_refused_and_the_others_are_decoded():
    decoder = ImageDecoder(20, crop="center", resize_short=256)
    out = np.zeros((2, 20, 20, 3), np.uint8)
    thin = npy(np.zeros((1, 2_000_000), np.uint8))
    ((place, error),) = decoder.decode_rows([thin, BASELINE], None, [0, 1], out)
    assert place == 0
    assert "at most 268,435,456 pixels, resized" in str(error)
    np.testing.assert_array_equal(out[1], decoder.decode(BASELINE))


@pytest.mark.parametrize("side", [3, 5, 15, 16])
def test_small_images_are_reduced_alike(side):
    content = jpeg(np.random.default_rng(side).integers(0, 256, (side, side, 3), np.uint8))
    for goal in range(1, 5):
        row = by_kernel(content, whole(side, side), goal, goal)
        other = by_pixels(content, whole(side, side), goal, goal)
        assert np.abs(row.astype(int) - other).max() <= 1
