"""The compiled kernel's pixels against OpenCV's, libjpeg's and NumPy's."""

from __future__ import annotations

import io
import itertools
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from adapters import ImageDecoder
from adapters.errors import ContentError
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


@st.composite
def works(draw: Any) -> tuple[bytes, Crop, tuple[int, int]]:
    crop, goal = draw(crops(90, 70))
    seed, sampling = draw(st.integers(0, 99)), draw(st.sampled_from(sorted(SAMPLINGS)))
    # Noise is what shows every wrong neighbour.
    noise = np.random.default_rng(seed).integers(0, 256, (*crop.image, 3), np.uint8)
    return jpeg(noise, sampling, draw(st.integers(5, 100))), crop, goal


@given(works())
@settings(max_examples=examples(600))
def test_jpeg_box_differs_by_1_at_most(work):
    """Of 256: what OpenCV's resizing may round otherwise. Boxes at any border of MCUs."""
    content, crop, goal = work
    row = by_kernel(content, crop, *goal)
    assert row is not None
    assert np.abs(row.astype(int) - by_pixels(content, crop, *goal)).max() <= 1


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_jpeg_box_not_resized_is_exact(sampling):
    content = jpeg(PHOTO, sampling)
    image = pixels.decode(content)
    for top in range(0, 60, 7):
        for left in range(0, 80, 5):
            row = by_kernel(content, Crop((75, 103), None, top, left, 15, 23, False), 15, 23)
            np.testing.assert_array_equal(row, image[top : top + 15, left : left + 23])


def test_jpeg_grey_has_three_channels():
    content = encoded(picture(37, 53, 1), "JPEG")
    row = by_kernel(content, whole(37, 53, True), 37, 53)
    np.testing.assert_array_equal(row, pixels.decode(content)[:, ::-1])


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("width", [1, 31])
@pytest.mark.parametrize("mean", [0.0, -0.25])
def test_jpeg_floats_are_those_of_the_table(layout, width, mean):
    """Also where they are the numbers themselves, which are cast."""
    content, crop = jpeg(PHOTO), Crop((75, 103), None, 3, 0, 20, width, False)
    table = (np.arange(768, dtype=np.float32) % 256 - np.float32(mean)).reshape(3, 256)
    shape = (1, 20, width, 3) if layout == "NHWC" else (1, 3, 20, width)
    out = np.full(shape, np.nan, np.float32)
    target = Target(out, layout == "NCHW", table)
    assert kernel.decode_crop(content, crop, target)
    expected = by_kernel(content, crop, 20, width).astype(np.float32) - np.float32(mean)
    found = out[0] if layout == "NHWC" else out[0].transpose(1, 2, 0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "content", [BASELINE, npy(PHOTO), npy(PHOTO[:, :, :1])], ids=["JPEG", "RGB", "grey"]
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    "more", [{}, {"dtype": "float32"}, {"dtype": "float32", "mean": (1, 2, 3), "std": (4, 5, 6.5)}]
)
def test_layouts_and_dtypes(content, layout, more, monkeypatch):
    decoder = ImageDecoder(
        (20, 31), crop="center", resize_short=33, flip=True, layout=layout, **more
    )
    rows = [decoder.decode(content, generator(0, 0, i, DECODE)) for i in range(4)]
    monkeypatch.setattr(kernel, "load", lambda: None)
    for number, row in enumerate(rows):
        other = decoder.decode(content, generator(0, 0, number, DECODE))
        np.testing.assert_allclose(row, other, rtol=0, atol=OPENCV_LEVELS)


@pytest.mark.parametrize(
    "content",
    [
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


def test_what_is_left_is_decoded():
    contents = [BASELINE, encoded(PHOTO, "PNG"), b"no image", encoded(PHOTO, "JPEG", "CMYK")]
    out = np.zeros((5, 20, 30, 3), np.uint8)
    decoder = ImageDecoder((20, 30))
    failures = decoder.decode_rows(contents, lambda place: None, [4, 1, 2, 0], out)
    assert [place for place, _ in failures] == [2]
    for content, row in zip(contents[:2] + contents[3:], (4, 1, 0)):
        np.testing.assert_array_equal(out[row], decoder.decode(content))
    assert not out[2:4].any()


def test_row_that_is_not_contiguous():
    out = np.zeros((40, 30, 3), np.uint8)
    ImageDecoder((20, 30)).decode(BASELINE, out=out[::2])
    np.testing.assert_allclose(
        out[::2], ImageDecoder((20, 30)).decode(BASELINE), rtol=0, atol=OPENCV_LEVELS
    )
    assert not out[1::2].any()


def test_jpeg_without_tables():
    content = BASELINE
    at = content.index(b"\xff\xdb")
    length = int.from_bytes(content[at + 2 : at + 4], "big")
    bare = content[:at] + content[at + 2 + length :]
    assert left_by_kernel(content, bare) == [1]


def test_jpeg_byte_changed_is_left_or_right():
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
def test_jpeg_unusual_subsampling(sampling):
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
def test_buffer_with_gaps_is_an_error_of_its_own(content):
    spread = np.zeros(2 * len(content), np.uint8)
    spread[::2] = np.frombuffer(content, np.uint8)
    out = np.zeros((2, 9, 9, 3), np.uint8)
    failures = ImageDecoder(9).decode_rows([memoryview(spread)[::2], BASELINE], None, [0, 1], out)
    assert [place for place, _ in failures] == [0]
    np.testing.assert_array_equal(out[1], ImageDecoder(9).decode(BASELINE))


@pytest.mark.parametrize("dtype", [">f4", "int32", "float64"])
def test_array_of_another_dtype(dtype):
    decoder = ImageDecoder((20, 30), dtype="float32", mean=10)
    out = np.zeros((20, 30, 3), dtype)
    decoder.decode(BASELINE, out=out)
    np.testing.assert_allclose(out, decoder.decode(BASELINE), atol=1)


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


def with_steps(content: bytes, step: int) -> bytes:
    """With each number of its quantization tables another one."""
    changed = bytearray(content)
    at = changed.find(b"\xff\xdb")
    while at >= 0:
        size = int.from_bytes(changed[at + 2 : at + 4], "big")
        for table in range(at + 4, at + 2 + size, 65):
            changed[table + 1 : table + 65] = bytes([step]) * 64
        at = changed.find(b"\xff\xdb", at + size)
    return bytes(changed)


@pytest.mark.parametrize("quality", QUALITIES)
def test_own_jpeg_of_any_size_is_libjpegs(quality):
    for height, width in [(1, 1), (2, 5), (5, 4), (7, 6), (16, 16), (17, 33), (31, 64), (95, 130)]:
        content = encoded(picture(height, width), "JPEG", quality=quality)
        box, size = (0, 0, height, width), (height, width)
        assert same(content, size, box, size), size


def test_own_jpeg_box_is_libjpegs():
    random = np.random.default_rng(7)
    for _ in range(400):
        height, width = (int(side) for side in random.integers(1, 150, 2))
        photo = random.integers(0, 256, (height, width, 3)).astype(np.uint8)
        photo = photo if random.random() < 0.3 else picture(height, width)
        content = encoded(photo, "JPEG", quality=int(random.choice(QUALITIES)))
        top, left = int(random.integers(height)), int(random.integers(width))
        box = top, left, *(int(random.integers(1, s + 1)) for s in (height - top, width - left))
        goal = (int(random.integers(1, 90)), int(random.integers(1, 90)))
        for wanted in (goal, box[2:]):
            assert same(content, (height, width), box, wanted), (height, width, box, wanted)


@pytest.mark.parametrize("step", [40, 255])
def test_own_jpeg_wraps_and_saturates_as_libjpeg(step):
    random = np.random.default_rng(3)
    for quality in QUALITIES:
        photo = (random.integers(0, 2, (70, 90, 3)) * 255).astype(np.uint8)
        for image in (photo, np.repeat(np.repeat(photo[::16, ::16], 16, 0), 16, 1)):
            content = with_steps(encoded(image, "JPEG", quality=quality), step)
            size = image.shape[:2]
            assert same(content, size, (0, 0, *size), size)


@pytest.mark.parametrize("luma", [0, 60, 128, 200, 255])
def test_own_jpeg_colours_are_libjpegs(luma):
    blue, red = np.meshgrid(*2 * [np.repeat(np.arange(256), 2)])
    planes = np.stack([np.full_like(blue, luma), blue, red], 2).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(planes, "YCbCr").save(buffer, "JPEG", quality=100, subsampling=2)
    assert same(buffer.getvalue(), (512, 512), (0, 0, 512, 512), (512, 512))


def test_own_jpeg_end_may_be_filled():
    content, size = encoded(picture(60, 80), "JPEG"), (60, 80)
    assert same(content[:-2] + b"\xff" * 5 + content[-2:], size, (0, 0, *size), size)
    if kernel.load().HUFFMAN_IS_OWN:
        for more in (b"\x00", b"\x12\x34", b"\xff\xc4\x00\x02", b"\xff\xd0"):
            assert by_kernel(content[:-2] + more + content[-2:], whole(*size), *size) is None


KINDS = ("RGB", "grey")


def content_of(kind: str, image: NDArray[np.uint8]) -> bytes:
    return npy(image if kind == "RGB" else image[:, :, :1])


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
def raw_works(draw: Any) -> tuple[str, NDArray[np.uint8], Crop, tuple[int, int]]:
    crop, goal = draw(crops(120, 99))
    # Noise is what shows every wrong neighbour.
    noise = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, (*crop.image, 3))
    return draw(st.sampled_from(KINDS)), noise.astype(np.uint8), crop, goal


@given(raw_works())
@settings(max_examples=examples(600))
def test_raw_box_is_numpys(work):
    kind, image, crop, goal = work
    row = by_kernel(content_of(kind, image), crop, *goal)
    np.testing.assert_array_equal(row, expected(kind, image, crop, goal))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("goal", [(224, 224), (31, 500), (500, 31), (9, 9)])
def test_raw_wide_box_is_numpys(kind, goal):
    """Wide enough for every processor's own code, enlarged and shrunk by far."""
    image = np.random.default_rng(0).integers(0, 256, (256, 341, 3), np.uint8)
    boxes = [(0, 0, 256, 341), (1, 3, 255, 338), (40, 60, 90, 81), (0, 0, 200, 20)]
    for box, flip in itertools.product(boxes, (False, True)):
        crop = Crop((256, 341), None, *box, flip)
        row = by_kernel(content_of(kind, image), crop, *goal)
        np.testing.assert_array_equal(row, expected(kind, image, crop, goal))


@pytest.mark.parametrize("kind", KINDS)
def test_raw_is_not_reduced_first(kind):
    """As JPEGs are: an eighth of the size is a pixel of eight, not their mean."""
    stripes = np.zeros((160, 160, 3), np.uint8)
    stripes[:, ::2] = 255
    row = ImageDecoder(20).decode(content_of(kind, stripes))
    reference = cv2.resize(stripes, (20, 20), interpolation=cv2.INTER_LINEAR)
    assert np.abs(row.astype(int) - reference).max() <= 1
    rows = np.zeros((2, 20, 20, 3), np.uint8)
    assert ImageDecoder(20).decode_rows([content_of(kind, stripes)] * 2, None, [0, 1], rows) == []
    np.testing.assert_array_equal(rows, [row, row])


def test_raw_of_other_headers_is_left():
    """In Fortran's order, of another header, or of another version of it."""
    image = picture(20, 30)
    turned = npy(np.asfortranarray(image))
    spaced = npy(image).replace(b"'descr': '|u1'", b"'descr':  'u1'")
    assert b"'fortran_order': True" in turned
    for content in (turned, spaced):
        assert by_kernel(content, whole(20, 30), 20, 30) is None
        np.testing.assert_array_equal(ImageDecoder((20, 30)).decode(content), image)


@pytest.mark.parametrize("kind", KINDS)
def test_raw_at_odd_addresses(kind):
    content = content_of(kind, picture(40, 60))
    row = ImageDecoder(24).decode(content)
    for shift in (1, 3, 8, 63):
        moved = memoryview(bytes(shift) + content)[shift:]
        np.testing.assert_array_equal(ImageDecoder(24).decode(moved), row)
