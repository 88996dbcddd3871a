"""Pictures as planes of Y, U and V: their bytes, what they cost in pixel values, and damage."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.images import decode, planes, size_of
from adapters.images.geometry import Crop, random_resized, whole
from tests.images.pictures import OPENCV_LEVELS, encoded, picture

# Of the pixels of a plane of Y, U and V, what RGB becomes; ITU-T T.871.
MATRIX = [
    [0.299, 0.587, 0.114],
    [-0.168735892, -0.331264108, 0.5],
    [0.5, -0.418687589, -0.081312411],
]


def header(height: int, width: int, magic: bytes = b"\x93YUV420", version: int = 1) -> bytes:
    return magic + struct.pack("<BII", version, height, width)


def planes_of(content: bytes) -> list[NDArray[np.uint8]]:
    """Y, U and V, read by hand."""
    height, width = struct.unpack("<II", content[8:16])
    half = -(-height // 2), -(-width // 2)
    found, at = [], 16
    for shape in ((height, width), half, half):
        count = shape[0] * shape[1]
        found.append(np.frombuffer(content, np.uint8, count, at).reshape(shape))
        at += count
    assert at == len(content)
    return found


def noise(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


# --- the format ---


def test_the_bytes_of_a_picture():
    """Red above blue, twice as wide."""
    pixels = np.array([[[255, 0, 0]] * 4, [[0, 0, 255]] * 4], np.uint8)
    expected = b"\x93YUV420" + b"\x01" + b"\x02\0\0\0" + b"\x04\0\0\0"
    expected += bytes([76] * 4 + [29] * 4) + bytes([170] * 2) + bytes([181] * 2)
    assert planes.encode(pixels) == expected


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (3, 5), (16, 16), (75, 103), (256, 341)])
def test_planes_are_bt_601_in_full_range_and_chroma_is_the_mean_of_four(size):
    """To the nearest, where floats say which that is."""
    pixels = noise(*size)
    even = np.pad(pixels, ((0, size[0] % 2), (0, size[1] % 2), (0, 0)), "edge").astype(float)
    fours = even.reshape(even.shape[0] // 2, 2, even.shape[1] // 2, 2, 3).mean((1, 3))
    expected = [pixels @ np.array(MATRIX[0]), *(fours @ np.array(row) + 128 for row in MATRIX[1:])]
    for plane, values in zip(planes_of(planes.encode(pixels)), expected):
        assert np.abs(plane - np.clip(values, 0, 255)).max() < 0.51


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1)])
def test_a_grey_picture_comes_back_in_three_channels_as_it_was(shape):
    grey = noise(5, 7)[:, :, 0].reshape(shape)
    rgb = decode(planes.encode(grey))
    np.testing.assert_array_equal(rgb, np.broadcast_to(grey.reshape(5, 7, 1), (5, 7, 3)))
    assert planes.encode(grey) == planes.encode(np.ascontiguousarray(rgb))


def test_the_documentations_reader_reads_them():
    text = (Path(__file__).parents[2] / "docs" / "encodings.md").read_text()
    names: dict[str, Any] = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    content = planes.encode(noise(5, 8))
    for found, expected in zip(names["planes"](content), planes_of(content), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_half_the_bytes_of_rgb():
    assert len(planes.encode(noise(256, 340))) == 16 + 256 * 340 * 3 // 2


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros(4, np.uint8),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_what_is_no_picture_is_refused(wrong):
    with pytest.raises(ContentError, match=r"YUV|a picture"):
        planes.encode(wrong)


# --- what it costs in pixel values ---


@pytest.mark.parametrize("size", [(2, 2), (5, 3), (64, 48)])
def test_one_colour_comes_back_within_one_level(size):
    for colour in [
        (0, 0, 0),
        (255, 255, 255),
        (255, 0, 0),
        (0, 255, 0),
        (0, 0, 255),
        (12, 200, 99),
    ]:
        pixels = np.broadcast_to(np.uint8(colour), (*size, 3))
        assert np.abs(decode(planes.encode(pixels)).astype(int) - pixels).max() <= 1


def test_smooth_colours_come_back_within_two_levels():
    pixels = picture(256, 341)
    difference = np.abs(decode(planes.encode(pixels)).astype(int) - pixels)
    assert difference.max() <= 5
    assert difference.mean() < 0.7


def photographs() -> list[NDArray[np.uint8]]:
    """256 pixels high or wide; of packages that ship them."""
    data = pytest.importorskip("sklearn.datasets")
    skimage = pytest.importorskip("skimage.data")
    found = [*data.load_sample_images().images, skimage.astronaut(), skimage.chelsea()]
    shrunk = []
    for image in found:
        scale = 256 / min(image.shape[:2])
        size = round(image.shape[1] * scale), round(image.shape[0] * scale)
        shrunk.append(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    return shrunk


def test_photographs_come_back_nearer_than_from_a_jpeg():
    """Of quality 95, which `pack` takes; the bounds that the documentation states."""
    import simplejpeg

    for pixels in photographs():
        difference = np.abs(decode(planes.encode(pixels)).astype(int) - pixels)
        jpeg = simplejpeg.decode_jpeg(simplejpeg.encode_jpeg(pixels, 95, "RGB", "420"))
        assert difference.mean() < 2
        assert difference.max() < 80
        assert difference.mean() < 0.8 * np.abs(jpeg.astype(int) - pixels).mean()


def test_planes_resized_are_nearly_the_rgb_picture_resized():
    """Of a photograph, 0.5 levels on average; more only where a colour beyond RGB is cut off."""
    rng, differences = np.random.default_rng(0), []
    for pixels in photographs():
        content = planes.encode(pixels)
        rgb = decode(content)
        for _ in range(10):
            crop = random_resized(*pixels.shape[:2], (0.08, 1.0), (3 / 4, 4 / 3), False, rng)
            row = np.empty((224, 224, 3), np.uint8)
            planes.decode_into(content, crop, row)
            part = rgb[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
            expected = cv2.resize(part, (224, 224), interpolation=cv2.INTER_LINEAR)
            differences.append(np.abs(row.astype(int) - expected))
    assert np.mean(differences) < 0.5
    assert np.quantile(differences, 0.99) <= 3
    assert np.max(differences) <= 30


def test_grey_levels_resized_are_those_of_rgb_within_one():
    grey = noise(60, 81)[:, :, :1]
    row = np.empty((50, 99, 3), np.uint8)
    planes.decode_into(planes.encode(grey), whole(60, 81), row)
    # Of one channel, OpenCV for Arm gets the first column wrong.
    expected = cv2.resize(grey.repeat(3, 2), (99, 50), interpolation=cv2.INTER_LINEAR)
    assert np.abs(row.astype(int) - expected).max() <= max(1, OPENCV_LEVELS)


def test_colours_lie_where_those_of_a_jpeg_do():
    """libjpeg interpolates between chroma in the middle of four pixels, as it stands there."""
    import simplejpeg

    pixels = picture(96, 130)
    jpeg = simplejpeg.decode_jpeg(simplejpeg.encode_jpeg(pixels, 100, "RGB", "420"))
    difference = np.abs(decode(planes.encode(pixels)).astype(int) - jpeg)
    assert difference.max() <= 4
    shifted = np.abs(decode(planes.encode(pixels)).astype(int)[:, 1:] - jpeg[:, :-1])
    assert difference.mean() < 0.3 * shifted.mean()


@pytest.mark.parametrize("flip", [False, True])
def test_a_box_is_part_of_the_whole_picture(flip):
    content = planes.encode(noise(33, 47))
    rgb = decode(content)
    for top, left, height, width in [
        (0, 0, 33, 47),
        (3, 5, 20, 21),
        (4, 4, 29, 43),
        (32, 46, 1, 1),
    ]:
        row = np.empty((height, width, 3), np.uint8)
        planes.decode_into(content, Crop((33, 47), None, top, left, height, width, flip), row)
        part = rgb[top : top + height, left : left + width]
        np.testing.assert_array_equal(row, part[:, ::-1] if flip else part)


# --- as any other encoding ---


def test_it_is_decoded_as_others_are():
    content = planes.encode(picture(40, 60))
    assert size_of(content) == (40, 60)
    assert ImageDecoder().decode(content).shape == (40, 60, 3)
    assert ImageDecoder(24).decode(memoryview(content)).shape == (24, 24, 3)


@pytest.mark.parametrize("options", [{"size": 30, "crop": "center", "resize_short": 20}])
def test_an_image_that_is_resized_twice_is_so_in_rgb(options):
    """What is to be cut out is larger than what it was resized to."""
    content = planes.encode(picture(40, 60))
    small = ImageDecoder(resize_short=20).decode(content)
    expected = cv2.resize(small[:, 5:25], (30, 30), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(ImageDecoder(**options).decode(content), expected)


# --- damage ---


def test_a_picture_cut_short_anywhere_is_refused():
    content = planes.encode(noise(3, 5))
    for length in range(len(content)):
        with pytest.raises(ContentError):
            ImageDecoder(4).decode(content[:length])
        with pytest.raises(ContentError):
            decode(content[:length])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(2, 2) + bytes(7), "22 bytes of 2 x 2 pixels, found 23"),
        (header(2, 2, version=2) + bytes(6), "version 1, found .* version 2"),
        (header(0, 2), "0 x 2 pixels"),
        (header(2, 0), "2 x 0 pixels"),
        (header(0, 0), "0 x 0 pixels"),
        (header(2**31, 2**31) + bytes(6), "2147483648 x 2147483648 pixels, found 22"),
        (header(2**32 - 1, 2**32 - 1), "4294967295 x 4294967295 pixels, found 16"),
        (header(2**32 - 1, 1) + bytes(9), "4294967295 x 1 pixels, found 25"),
        (header(1, 2)[:9], "16 bytes, found 9"),
    ],
)
def test_a_header_that_lies_is_refused(content, message):
    for look in (decode, size_of, ImageDecoder(8).decode):
        with pytest.raises(ContentError, match=message):
            look(content)


def test_an_image_of_too_many_pixels_is_refused_before_anything_is_made_of_it(monkeypatch):
    monkeypatch.setattr("adapters.images.pixels.MOST_PIXELS", 11)
    with pytest.raises(ContentError, match="1 to 11 pixels"):
        decode(planes.encode(noise(3, 4)))


def mutants(contents: list[bytes], count: int) -> Any:
    """Bytes changed, most of them in the header; cut short, or longer."""
    rng = np.random.default_rng(5)
    for number in range(count):
        content = bytearray(contents[number % len(contents)])
        for _ in range(rng.integers(0, 4)):
            at = int(rng.integers(0, min(len(content), 160 if rng.random() < 0.5 else 20)))
            content[at] = int(rng.choice([0, 1, 255, 128, rng.integers(256)]))
        if rng.random() < 0.2:
            del content[int(rng.integers(0, len(content))) :]
        if rng.random() < 0.1:
            content += bytes(int(rng.integers(1, 90)))
        yield bytes(content)


def test_mutants_give_pixels_or_a_content_error():
    """In batches of nine, with and without random boxes; with the kernel where it is built."""
    from adapters.generators import DECODE, generator
    from tests.images.pictures import npy

    contents = [planes.encode(noise(9, 12)), npy(noise(9, 12)), npy(noise(9, 12)[:, :, 0])]
    contents.append(encoded(noise(9, 12), "PNG"))
    batch: list[bytes] = []
    outcomes = {True: 0, False: 0}
    for content in mutants(contents, 4500):
        batch.append(content)
        if len(batch) < 9:
            continue
        for decoder in (ImageDecoder(8, crop="random_resized", flip=True), ImageDecoder(7)):
            out = np.zeros((9, *(decoder.shape or ())), np.uint8)
            failures = decoder.decode_rows(
                batch, lambda place: generator(0, 0, place, DECODE), range(9), out
            )
            assert all(isinstance(error, ContentError) for _, error in failures), failures
            outcomes[True] += 9 - len(failures)
            outcomes[False] += len(failures)
        batch.clear()
    assert min(outcomes.values()) > 1000
