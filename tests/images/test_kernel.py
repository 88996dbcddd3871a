"""The compiled kernel's pixels against OpenCV's, libjpeg's and NumPy's."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from adapters import ImageDecoder
from adapters.generators import DECODE, generator
from adapters.images import kernel, pixels
from adapters.images.geometry import Crop, whole
from adapters.images.kernel import Target
from tests.fuzzing import examples
from tests.images.pictures import OPENCV_LEVELS, by_pixels, encoded, npy, picture

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
    out = np.full((3, height, width, 3), 77, np.uint8)
    is_done = kernel.decode_crop(content, crop, Target(out[1:2], False, None))
    assert (out[::2] == 77).all()
    return out[1] if is_done else None


def left_by_kernel(*contents: bytes) -> Any:
    """The numbers of those that it leaves of a batch."""
    target = Target(np.zeros((len(contents), 9, 9, 3), np.uint8), False, None)
    rows = range(len(contents))
    return list(kernel.decode(contents, None, None, rows, kernel.settings_of(*WHOLE), target))


WHOLE = (0, None, (1.0, 1.0), (1.0, 1.0), False)


@st.composite
def crops(draw: Any, most: int, most_goal: int) -> tuple[Crop, tuple[int, int]]:
    """Crop of an image with sides up to ``most``, and the height and width of its row."""
    height, width = draw(st.integers(1, most)), draw(st.integers(1, most))
    goal = draw(st.integers(1, most_goal)), draw(st.integers(1, most_goal))
    flip = draw(st.booleans())
    if draw(st.booleans()):
        spare = draw(st.integers(0, 30)), draw(st.integers(0, 30))
        place = draw(st.integers(0, spare[0])), draw(st.integers(0, spare[1]))
        resized = goal[0] + spare[0], goal[1] + spare[1]
        return Crop((height, width), resized, *place, *goal, flip), goal
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    box = draw(st.integers(1, height - top)), draw(st.integers(1, width - left))
    return Crop((height, width), None, top, left, *box, flip), goal


@given(crops(90, 70), st.sampled_from(sorted(SAMPLINGS)), st.integers(5, 100), st.integers(0, 99))
@settings(max_examples=examples(600))
def test_jpeg_box_differs_by_1_at_most(work, sampling, quality, seed):
    """Of 256: what OpenCV's resizing may round otherwise. Boxes at any border of MCUs."""
    crop, goal = work
    # Noise is what shows every wrong neighbour.
    noise = np.random.default_rng(seed).integers(0, 256, (*crop.image, 3), np.uint8)
    content = jpeg(noise, sampling, quality)
    row = by_kernel(content, crop, *goal)
    assert row is not None
    assert np.abs(row.astype(int) - by_pixels(content, crop, *goal)).max() <= 1


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "NCHW"},
        {"dtype": "float32"},
        {"dtype": "float32", "layout": "NCHW", "mean": 0.25},
        {"dtype": "float32", "mean": (1, 2, 3), "std": (4, 5, 6.5)},
    ],
)
def test_layouts_and_dtypes(options, monkeypatch):
    decoder = ImageDecoder((20, 31), crop="center", resize_short=33, flip=True, **options)
    contents = BASELINE, npy(PHOTO), npy(PHOTO[:, :, :1]), encoded(PHOTO[:, :, :1], "JPEG")
    asked = [(content, number) for content in contents for number in range(4)]
    rows = [decoder.decode(each, generator(0, 0, number, DECODE)) for each, number in asked]
    monkeypatch.setattr(kernel, "load", lambda: None)
    for (content, number), row in zip(asked, rows):
        other = decoder.decode(content, generator(0, 0, number, DECODE))
        np.testing.assert_allclose(row, other, rtol=0, atol=OPENCV_LEVELS)


TABLES = BASELINE.index(b"\xff\xdb")
BEHIND_TABLES = TABLES + 2 + int.from_bytes(BASELINE[TABLES + 2 : TABLES + 4], "big")


@pytest.mark.parametrize(
    "content",
    [
        BASELINE[:TABLES] + BASELINE[BEHIND_TABLES:],
        encoded(PHOTO, "JPEG", progressive=True),
        encoded(PHOTO, "JPEG", "CMYK"),
        encoded(PHOTO, "PNG"),
        BASELINE + b"\0",
        b"",
        b"\xff\xd8\xff\xd9",
    ],
)
def test_what_is_no_baseline_jpeg_is_left(content):
    assert by_kernel(content, whole(75, 103), 9, 9) is None
    assert by_kernel(BASELINE, whole(75, 102), 9, 9) is None  # Of another size than the box.
    assert left_by_kernel(BASELINE, content, BASELINE) == [1]


def test_jpeg_size_is_read_from_the_header():
    """Past filling. An image without pixels is left, and one of too many."""
    filled = BASELINE[:2] + b"\xff" * 3 + BASELINE[2:]
    sizes = [BASELINE.replace(b"\0\x4b\0\x67", each, 1) for each in (b"\0\0\0\x67", b"\xff" * 4)]
    assert left_by_kernel(filled, *sizes) == [1, 2]


def test_jpeg_cut_anywhere_is_left():
    """Also where all rows that are wanted are there."""
    crop = Crop((75, 103), None, 0, 0, 5, 5, False)
    assert by_kernel(BASELINE, crop, 5, 5) is not None
    for size in range(len(BASELINE)):
        assert by_kernel(BASELINE[:size], crop, 5, 5) is None
    # The last bytes of the data may be but filling.
    for size in range(len(BASELINE) - 10):
        assert by_kernel(BASELINE[:size] + b"\xff\xd9", whole(75, 103), 5, 5) is None


@pytest.mark.parametrize("sampling", [0x41, 0x12, 0x21, 0x22, 0x11, 0x14, 0x42, 0x31])
def test_jpeg_unusual_subsampling(sampling):
    """The header says so; the data don't, but both ways take them for the same."""
    content = bytearray(jpeg(PHOTO, "444"))
    frame = content.index(b"\xff\xc0")
    content[frame + 11] = sampling
    for goal in ((75, 103), (37, 50), (18, 25), (9, 12)):
        row = by_kernel(bytes(content), whole(75, 103), *goal)
        assert row is not None or sampling != 0x11  # What the data are.
        if row is not None:
            expected = by_pixels(bytes(content), whole(75, 103), *goal)
            assert np.abs(row.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("content", [BASELINE, encoded(PHOTO, "PNG")], ids=["JPEG", "PNG"])
def test_buffer_with_gaps_is_an_error_of_its_own(content):
    spread = np.zeros(2 * len(content), np.uint8)
    spread[::2] = np.frombuffer(content, np.uint8)
    out = np.zeros((2, 9, 9, 3), np.uint8)
    failures = ImageDecoder(9).decode_rows([memoryview(spread)[::2], BASELINE], None, [0, 1], out)
    assert [place for place, _ in failures] == [0]
    np.testing.assert_array_equal(out[1], ImageDecoder(9).decode(BASELINE))


@pytest.mark.parametrize("dtype", ["float32", ">f4", "int32", "float64"])
def test_array_of_another_layout_and_dtype(dtype):
    decoder = ImageDecoder((20, 30), dtype="float32", mean=10)
    out = np.zeros((40, 30, 3), dtype)
    decoder.decode(BASELINE, out=out[::2])
    np.testing.assert_allclose(out[::2], decoder.decode(BASELINE), atol=max(OPENCV_LEVELS, 1))
    assert not out[1::2].any()


def test_huge_image_is_refused():
    decoder = ImageDecoder(20, crop="center", resize_short=256)
    out = np.zeros((2, 20, 20, 3), np.uint8)
    thin = npy(np.zeros((1, 2_000_000), np.uint8))
    ((place, error),) = decoder.decode_rows([thin, BASELINE], None, [0, 1], out)
    assert place == 0
    assert "at most 268,435,456 pixels, resized" in str(error)
    np.testing.assert_array_equal(out[1], decoder.decode(BASELINE))


QUALITIES = (5, 50, 90, 98, 100)


def same(
    content: bytes, size: tuple[int, int], box: tuple[int, ...], goal: tuple[int, int]
) -> bool:
    """The box (top, left, height, width), resized to the goal, is that of libjpeg's whole image."""
    top, left, height, width = box
    numbers = (0, *size, 1, top, height, goal[0], 0, left, width, goal[1], 0, 0)
    rows = []
    for each in (content, npy(pixels.decode(content))):
        out, row = np.full((1, *goal, 3), 77, np.uint8), np.zeros(1, np.int64)
        crops = np.array([numbers], np.int32)
        given = [each], None, row, crops, None, None, out, (1, *goal), False, None
        assert kernel.load().decode(*given) == b"\x01"
        rows.append(out)
    return bool((rows[0] == rows[1]).all())


def test_own_jpeg_box_is_libjpegs():
    random = np.random.default_rng(7)
    for _ in range(400):
        height, width = (int(side) for side in random.integers(1, random.choice([9, 150]), 2))
        photo = random.integers(0, 256, (height, width, 3)).astype(np.uint8)
        photo = photo if random.random() < 0.3 else picture(height, width)
        sampling = "420" if random.random() < 0.5 else random.choice(list(SAMPLINGS))
        content = jpeg(photo, sampling, int(random.choice(QUALITIES)))
        top, left = int(random.integers(height)), int(random.integers(width))
        box = top, left, *(int(random.integers(1, s + 1)) for s in (height - top, width - left))
        goal = (int(random.integers(1, 90)), int(random.integers(1, 90)))
        for wanted in (goal, box[2:]):
            assert same(content, (height, width), box, wanted), (height, width, box, wanted)


@pytest.mark.parametrize("luma", [0, 60, 128, 200, 255])
def test_own_jpeg_colours_are_libjpegs(luma):
    blue, red = np.meshgrid(*2 * [np.repeat(np.arange(256), 2)])
    planes = np.stack([np.full_like(blue, luma), blue, red], 2).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(planes, "YCbCr").save(buffer, "JPEG", quality=100, subsampling=2)
    assert same(buffer.getvalue(), (512, 512), (0, 0, 512, 512), (512, 512))


def taps(length: int, resized: int, offset: int, count: int) -> Any:
    places = ((np.arange(count) + offset + 0.5) * (1.0 / (resized / length)) - 0.5).astype("f4")
    places = np.maximum(places, 0)
    at = places.astype(int)
    rest = np.where(at >= length - 1, 0, places - at.astype("f4")).astype("f4")
    weights = (np.rint(part * np.float32(2048)).astype(int) for part in (1 - rest, rest))
    return np.minimum(at, length - 1), np.minimum(at + 1, length - 1), *weights


def by_numpy(image: NDArray[np.uint8], crop: Crop, goal: tuple[int, int]) -> Any:
    """Pixels resized with the arithmetic that ``resize.h`` describes."""
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


@given(crops(120, 99), st.sampled_from([1, 3]), st.integers(0, 99))
@settings(max_examples=examples(600))
def test_raw_box_is_numpys(work, channels, seed):
    crop, goal = work
    noise = np.random.default_rng(seed).integers(0, 256, (*crop.image, channels), np.uint8)
    row = by_kernel(npy(noise), crop, *goal)
    np.testing.assert_array_equal(row, by_numpy(noise.repeat(4 - channels, 2)[..., :3], crop, goal))


def test_raw_of_other_headers_is_left():
    """In Fortran's order, of another header, or of another version of it."""
    image = picture(20, 30)
    turned = npy(np.asfortranarray(image))
    spaced = npy(image).replace(b"'descr': '|u1'", b"'descr':  'u1'")
    assert b"'fortran_order': True" in turned
    for content in (turned, spaced):
        assert by_kernel(content, whole(20, 30), 20, 30) is None
        np.testing.assert_array_equal(ImageDecoder((20, 30)).decode(content), image)


@pytest.mark.parametrize("channels", [1, 3])
def test_raw_at_odd_addresses(channels):
    content = npy(picture(40, 60, channels))
    row = ImageDecoder(24).decode(content)
    for shift in (1, 3, 8, 63):
        moved = memoryview(bytes(shift) + content)[shift:]
        np.testing.assert_array_equal(ImageDecoder(24).decode(moved), row)
