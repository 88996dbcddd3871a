"""Encoded images into rows."""

from __future__ import annotations

import io
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from adapters.errors import ContentError
from adapters.images import decode, pixels, size_of
from adapters.images.geometry import Crop, reduction, whole
from tests.images.pictures import by_opencv, decode_into, encoded, npy, picture

PHOTO = picture(37, 53)


def row_of(content: bytes, crop: Crop, height: int, width: int) -> Any:
    row = np.full((height, width, 3), 77, np.uint8)
    decode_into(content, crop, row)
    return row


def rotated() -> bytes:
    """A JPEG of whose top EXIF says that it is on the right."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(PHOTO, "JPEG", exif=exif.tobytes())


JPEGS = {
    "baseline": encoded(PHOTO, "JPEG"),
    "without subsampling": encoded(PHOTO, "JPEG", subsampling=0),
    "progressive": encoded(PHOTO, "JPEG", progressive=True),
    "grey": encoded(picture(37, 53, 1), "JPEG"),
    "CMYK": encoded(PHOTO, "JPEG", "CMYK"),
    "rotated by EXIF": rotated(),
}
PNGS = {
    "RGB": (encoded(PHOTO, "PNG"), PHOTO),
    "grey": (encoded(PHOTO[:, :, :1], "PNG"), PHOTO[:, :, :1].repeat(3, 2)),
    "RGBA": (encoded(PHOTO, "PNG", "RGBA"), PHOTO),
    "grey and alpha": (
        encoded(Image.fromarray(PHOTO[:, :, 0]), "PNG", "LA"),
        PHOTO[:, :, :1].repeat(3, 2),
    ),
    "palette": (
        encoded(PHOTO, "PNG", "P"),
        np.array(Image.open(io.BytesIO(encoded(PHOTO, "PNG", "P"))).convert("RGB")),
    ),
    "one bit": (
        encoded(Image.fromarray(PHOTO[:, :, 0] > 99), "PNG"),
        ((PHOTO[:, :, :1] > 99) * np.uint8(255)).repeat(3, 2),
    ),
}
TINY = picture(7, 9)
DAMAGEABLE = {
    "JPEG": encoded(TINY, "JPEG"),
    "progressive JPEG": encoded(TINY, "JPEG", progressive=True),
    "CMYK JPEG": encoded(TINY, "JPEG", "CMYK"),
    "PNG": encoded(TINY, "PNG"),
    "NPY": npy(TINY),
}
every_tiny = pytest.mark.parametrize("name", DAMAGEABLE)


@pytest.mark.parametrize("name", JPEGS)
def test_a_jpeg_is_decoded_as_opencv_does(name):
    np.testing.assert_array_equal(decode(JPEGS[name]), by_opencv(JPEGS[name]))


@pytest.mark.parametrize("name", JPEGS)
def test_a_jpeg_is_decoded_upright_and_whole(name):
    """The oracle before has the size that Pillow says, too."""
    assert (*decode(JPEGS[name]).shape, *size_of(JPEGS[name])) == (37, 53, 3, 37, 53)


@pytest.mark.parametrize("name", PNGS)
def test_a_png_becomes_8_bit_rgb(name):
    content, expected = PNGS[name]
    np.testing.assert_array_equal(decode(content), expected)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP", "TIFF"])
def test_the_size_is_that_of_the_image(kind):
    assert size_of(encoded(PHOTO, kind)) == (37, 53)


@pytest.mark.parametrize("content", [JPEGS["baseline"], PNGS["RGB"][0], npy(PHOTO)])
def test_a_memoryview_is_as_good_as_bytes(content):
    np.testing.assert_array_equal(decode(memoryview(b"x" + content)[1:]), decode(content))


# --- raw arrays ---


@pytest.mark.parametrize("dtype", ["uint8", "<f4", ">f4", "int16", "bool", "complex64", "<f8"])
@pytest.mark.parametrize("shape", [(5, 4, 3), (5, 4, 1), (5, 4), (7,), (), (0, 3)])
def test_an_array_in_npys_format_is_what_it_was(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    read = decode(npy(array))
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


def test_an_array_in_fortran_order_is_what_it_was():
    np.testing.assert_array_equal(decode(npy(np.asfortranarray(PHOTO))), PHOTO)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_npy_is_read(version):
    file = io.BytesIO()
    np.lib.format.write_array(file, PHOTO, version)
    np.testing.assert_array_equal(decode(file.getvalue()), PHOTO)


def test_a_raw_array_is_not_copied():
    content = npy(PHOTO)
    assert np.shares_memory(decode(content), np.frombuffer(content, np.uint8))


@pytest.mark.parametrize("shape", [(37, 53), (37, 53, 1)])
def test_a_raw_grey_image_gets_three_channels_in_a_row(shape):
    grey = PHOTO[:, :, 0]
    row = row_of(npy(grey.reshape(shape)), whole(37, 53), 37, 53)
    np.testing.assert_array_equal(row, grey[:, :, None].repeat(3, 2))


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 4, 3), "c8"), np.zeros(4, np.uint8), np.zeros((2, 4, 4, 3), np.uint8)],
)
def test_a_raw_array_that_is_no_image_is_said_to_be_none(array):
    with pytest.raises(ContentError, match=r"expected numbers as \(height, width\).*found .*\(.*4"):
        size_of(npy(array))


@pytest.mark.parametrize(
    "array",
    [np.array([None]), np.array(["text"]), np.zeros(2, "u1,f4"), np.zeros(2, "M8[s]")],
)
def test_a_raw_array_of_no_numbers_is_refused(array):
    with pytest.raises(ContentError, match="NPY"):
        decode(npy(array))


def test_a_raw_array_with_bytes_too_many_is_refused():
    with pytest.raises(ContentError, match=r"expected 189 bytes of uint8 .*found 190"):
        decode(DAMAGEABLE["NPY"] + b"\0")


# --- what is wanted of it ---


@pytest.mark.parametrize("goal", [(37, 53), (20, 20), (80, 31), (1, 1), (1, 90), (74, 106)])
def test_resizing_is_opencvs_bilinear(goal):
    expected = cv2.resize(PHOTO, goal[::-1], interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(row_of(PNGS["RGB"][0], whole(37, 53), *goal), expected)


def test_resizing_has_half_pixel_centres():
    line = npy(np.array([[0, 100]], np.uint8))
    assert row_of(line, whole(1, 2), 1, 4)[0, :, 0].tolist() == [0, 25, 75, 100]


@pytest.mark.parametrize("content", [PNGS["RGB"][0], npy(PHOTO), npy(np.asfortranarray(PHOTO))])
def test_a_box_is_cut_out(content):
    row = row_of(content, Crop((37, 53), None, 5, 7, 20, 30, False), 20, 30)
    np.testing.assert_array_equal(row, PHOTO[5:25, 7:37])


def test_a_box_is_cut_out_and_resized():
    row = row_of(PNGS["RGB"][0], Crop((37, 53), None, 5, 7, 20, 30, False), 9, 50)
    np.testing.assert_array_equal(row, cv2.resize(PHOTO[5:25, 7:37], (50, 9)))


def test_a_box_is_cut_out_of_the_image_that_was_resized():
    row = row_of(PNGS["RGB"][0], Crop((37, 53), (50, 70), 5, 7, 20, 30, False), 20, 30)
    np.testing.assert_array_equal(row, cv2.resize(PHOTO, (70, 50))[5:25, 7:37])


@pytest.mark.parametrize("goal", [(37, 53), (20, 21), (1, 1)])
def test_a_flip_turns_left_to_right_at_the_end(goal):
    plain, flipped = (row_of(PNGS["RGB"][0], whole(37, 53, flip), *goal) for flip in (False, True))
    np.testing.assert_array_equal(flipped, plain[:, ::-1])


# --- a JPEG, decoded smaller ---


@pytest.mark.parametrize("height", [1, 2, 7, 8, 9, 15, 16, 17, 63, 65, 375])
@pytest.mark.parametrize("width", [1, 3, 8, 9, 64, 65, 500])
def test_a_jpeg_is_reduced_to_a_half_a_quarter_or_an_eighth(height, width):
    """What simplejpeg makes of min_height and min_width is the size that we take it for."""
    content = encoded(np.zeros((height, width, 3), np.uint8), "JPEG")
    sizes = [pixels._jpeg(content, factor).shape[:2] for factor in (1, 2, 4, 8)]
    assert sizes == [(-(-height // factor), -(-width // factor)) for factor in (1, 2, 4, 8)]


@pytest.mark.parametrize(
    ("goal", "size"),
    [
        ((201, 100), (400, 301)),
        ((200, 151), (400, 301)),
        ((200, 150), (200, 151)),
        ((101, 75), (200, 151)),
        ((100, 75), (100, 76)),
        ((50, 37), (50, 38)),
        ((1, 1), (50, 38)),
    ],
)
def test_a_jpeg_is_decoded_no_smaller_than_its_row_and_at_least_an_eighth(goal, size):
    content = encoded(np.zeros((400, 301, 3), np.uint8), "JPEG")
    factor = reduction(whole(400, 301), goal)
    assert pixels._jpeg(content, factor).shape[:2] == size


@pytest.mark.parametrize("name", ["baseline", "progressive", "grey", "CMYK"])
def test_a_cmyk_jpeg_is_reduced_as_the_others_are(name):
    assert pixels._jpeg(JPEGS[name], 4).shape == (10, 14, 3)


@pytest.mark.parametrize("size", [(401, 603), (400, 600), (407, 601)])
@pytest.mark.parametrize("goal", [(200, 300), (130, 200), (100, 150), (50, 75), (33, 47)])
@pytest.mark.parametrize("corner", ["whole", "top left", "bottom right", "resized"])
def test_a_reduced_jpeg_differs_little_from_all_of_it_resized(size, goal, corner):
    """A smooth picture, where no antialiasing is missed: 2 of 256 on average, 16 at most."""
    height, width = size
    crop = {
        "whole": whole(height, width),
        "top left": Crop(size, None, 0, 0, 399, 599, False),
        "bottom right": Crop(size, None, height - 399, width - 599, 399, 599, False),
        "resized": Crop(size, goal, 0, 0, *goal, False),
    }[corner]
    content = encoded(picture(*size), "JPEG", quality=95)
    box = decode(content)[crop.top :, crop.left :]
    if corner != "resized":
        box = box[: crop.height, : crop.width]
    expected = cv2.resize(box, goal[::-1], interpolation=cv2.INTER_AREA).astype(int)
    difference = np.abs(row_of(content, crop, *goal) - expected)
    assert difference.mean() < 2
    assert difference.max() <= 16


@st.composite
def crops(draw: Any) -> Crop:
    height, width = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    box = draw(st.integers(1, height - top)), draw(st.integers(1, width - left))
    return Crop((height, width), None, top, left, *box, draw(st.booleans()))


@given(crops(), st.integers(1, 9), st.integers(1, 9))
@example(Crop((32, 32), None, 12, 12, 8, 8, False), 1, 1)
@example(Crop((33, 33), None, 32, 32, 1, 1, False), 1, 1)
def test_any_box_of_a_flat_jpeg_is_flat(crop, height, width):
    """None is empty, and none goes beyond the image."""
    content = _flat(*crop.image)
    row = row_of(content, crop, height, width)
    np.testing.assert_array_equal(row, np.broadcast_to(decode(content)[0, 0], row.shape))


def _flat(height: int, width: int) -> bytes:
    return simplejpeg.encode_jpeg(np.full((height, width, 3), (200, 100, 50), np.uint8))


# --- damage ---


@every_tiny
def test_an_image_cut_anywhere_is_an_error(name):
    content = DAMAGEABLE[name]
    for size in range(len(content)):
        with pytest.raises(ContentError):
            decode(content[:size])
        with pytest.raises(ContentError):
            row_of(content[:size], whole(7, 9), 2, 2)


@every_tiny
def test_a_flipped_bit_gives_an_error_or_an_image(name):
    """And no other exception: JPEG and NPY have no checksum that could tell."""
    content = bytearray(DAMAGEABLE[name])
    errors = 0
    for place in range(len(content)):
        content[place] ^= 1 << place % 8
        try:
            height, width = size_of(content)
            assert min(height, width, decode(content).ndim) > 0
        except ContentError:
            errors += 1
        content[place] ^= 1 << place % 8
    assert errors > 20


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_an_npys_header_changes_no_pixel(bit):
    content = DAMAGEABLE["NPY"]
    for place in range(128):
        flipped = bytearray(content)
        flipped[place] ^= 1 << bit
        try:
            array = decode(flipped)
        except ContentError:
            continue
        assert array.tobytes("K") == TINY.tobytes()


def bomb(kind: str) -> bytes:
    """A small file that says that it has 4 gigapixels."""
    if kind == "JPEG":
        content = bytearray(DAMAGEABLE["JPEG"])
        frame = content.index(b"\xff\xc0")
        content[frame + 5 : frame + 9] = b"\xff\xdc\xff\xdc"
    else:
        content = bytearray(DAMAGEABLE["PNG"])
        content[16:24] = (65_500).to_bytes(4, "big") * 2
        content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize("function", [decode, size_of])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_an_image_that_claims_to_be_huge_is_refused(function, kind):
    with pytest.raises(ContentError, match="1 to 268,435,456 pixels, found one of 65500 x 65500"):
        function(bomb(kind))


@pytest.mark.parametrize("function", [decode, size_of])
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "0 bytes that begin with nothing"),
        (b"a text", "6 bytes that begin with 61 20 74 65 78 74"),
        (bytes(1000), "1000 bytes that begin with 00 00 00 00 00 00 00 00"),
    ],
)
def test_what_is_no_image_is_shown(function, content, found):
    with pytest.raises(ContentError, match=f"^expected an image, found {found}$"):
        function(content)
