"""Encoded images into rows, as large as their headers say."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.generators import DECODE, generator
from adapters.images import decode, pixels, size_of
from adapters.images.geometry import Crop, reduction, whole
from tests.images.pictures import by_opencv, by_pixels, encoded, npy, picture

PHOTO = picture(37, 53)


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


@pytest.mark.parametrize("name", PNGS)
def test_png_becomes_8_bit_rgb(name):
    content, expected = PNGS[name]
    np.testing.assert_array_equal(decode(content), expected)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("uint8", (5, 4, 3)), ("<f4", (5, 4)), (">f4", (5, 4, 3)), ("int16", (7,)), ("bool", ())]
    + [("complex64", (5, 4)), ("uint8", (0, 3))],
)
def test_npy_is_what_it_was(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    for stored, version in ((array, (1, 0)), (array, (3, 0)), (np.array(array, order="F"), (2, 0))):
        file = io.BytesIO()
        np.lib.format.write_array(file, stored, version)
        np.testing.assert_array_equal(decode(file.getvalue()), array, strict=True)


def test_npy_is_not_copied():
    content = npy(PHOTO)
    assert np.shares_memory(decode(content), np.frombuffer(content, np.uint8))


@pytest.mark.parametrize("shape", [(37, 53), (37, 53, 1)])
def test_npy_grey_gets_three_channels(shape):
    grey = PHOTO[:, :, 0]
    row = by_pixels(npy(grey.reshape(shape)), whole(37, 53), 37, 53)
    np.testing.assert_array_equal(row, grey[:, :, None].repeat(3, 2))


@pytest.mark.parametrize(
    "array",
    [np.zeros((4, 4, 3), "c8"), np.zeros(4, np.uint8), np.zeros((2, 4, 4, 3), np.uint8)],
)
def test_npy_that_is_no_image(array):
    with pytest.raises(ContentError, match=r"expected numbers as \(height, width\).*found .*\(.*4"):
        size_of(npy(array))
    for wrong in (np.array([None]), np.array(["text"]), np.zeros(2, "u1,f4"), np.zeros(2, "M8[s]")):
        with pytest.raises(ContentError, match="NPY"):
            decode(npy(wrong))
    with pytest.raises(ContentError, match=r"expected 189 bytes of uint8 .*found 190"):
        decode(DAMAGEABLE["NPY"] + b"\0")


@pytest.mark.parametrize("goal", [(20, 20), (80, 31), (1, 1), (1, 90), (74, 106)])
def test_resizing_is_opencvs_bilinear(goal):
    expected = cv2.resize(PHOTO, goal[::-1], interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(by_pixels(PNGS["RGB"][0], whole(37, 53), *goal), expected)
    line = npy(np.array([[0, 100]], np.uint8))
    assert by_pixels(line, whole(1, 2), 1, 4)[0, :, 0].tolist() == [0, 25, 75, 100]


@pytest.mark.parametrize("shape", [(1, 1 << 15), (1 << 15, 1)])
def test_nearest_of_a_side_that_is_too_long_is_refused(shape):
    """OpenCV would read outside of it."""
    decoder = ImageDecoder(20, channels=1, interpolation="nearest")
    with pytest.raises(ContentError, match='at most 32,767 pixels a side for "nearest", found one'):
        decoder.decode(npy(np.zeros(shape, np.uint8)))
    line = npy(np.arange((1 << 15) - 1).astype(np.uint8)[np.newaxis])
    assert decoder.decode(line).shape == (20, 20, 1)
    with pytest.raises(ContentError, match="found one of 1 x 32767, resized to 2 x 65534"):
        ImageDecoder(resize_short=2, channels=1, interpolation="nearest").decode(line)


@pytest.mark.parametrize("content", [PNGS["RGB"][0], npy(PHOTO), npy(np.asfortranarray(PHOTO))])
def test_box_is_cut_out(content):
    crop = Crop((37, 53), None, 5, 7, 20, 30, False)
    box = PHOTO[5:25, 7:37]
    np.testing.assert_array_equal(by_pixels(content, crop, 20, 30), box)
    np.testing.assert_array_equal(by_pixels(content, crop, 9, 50), cv2.resize(box, (50, 9)))
    resized = crop._replace(resized=(50, 70))
    expected = cv2.resize(PHOTO, (70, 50))[5:25, 7:37]
    np.testing.assert_array_equal(by_pixels(content, resized, 20, 30), expected)


@pytest.mark.parametrize("goal", [(37, 53), (20, 21), (1, 1)])
def test_flip_turns_left_to_right_at_the_end(goal):
    plain, flipped = (
        by_pixels(PNGS["RGB"][0], whole(37, 53, flip), *goal) for flip in (False, True)
    )
    np.testing.assert_array_equal(flipped, plain[:, ::-1])


def test_jpeg_is_reduced():
    """What simplejpeg makes of min_height and min_width is the size that we take it for."""
    for height in (1, 2, 7, 8, 9, 15, 16, 17, 63, 65, 375):
        for width in (1, 3, 8, 9, 64, 65, 500):
            content = encoded(np.zeros((height, width, 3), np.uint8), "JPEG")
            sizes = [pixels._jpeg(content, factor).shape[:2] for factor in (1, 2, 4, 8)]
            assert sizes == [(-(-height // each), -(-width // each)) for each in (1, 2, 4, 8)]
    for name in ("baseline", "progressive", "grey", "CMYK"):
        assert pixels._jpeg(JPEGS[name], 4).shape == (10, 14, 3)


@pytest.mark.parametrize(
    ("goal", "factor"),
    [((201, 100), 1), ((200, 151), 1), ((200, 150), 2), ((101, 75), 2), ((100, 75), 4)]
    + [((50, 37), 8), ((1, 1), 8)],
)
def test_jpeg_is_no_smaller_than_its_row(goal, factor):
    assert reduction(whole(400, 301), goal) == factor


@pytest.mark.parametrize("size", [(400, 600), (407, 601)])
@pytest.mark.parametrize("goal", [(200, 300), (130, 200), (50, 75), (33, 47)])
@pytest.mark.parametrize("corner", ["whole", "top left", "bottom right", "resized"])
def test_jpeg_reduced_differs_little(size, goal, corner):
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
    difference = np.abs(by_pixels(content, crop, *goal) - expected)
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
def test_jpeg_of_one_colour_has_flat_boxes(crop, height, width):
    """None is empty, and none goes beyond the image."""
    content = _flat(*crop.image)
    row = by_pixels(content, crop, height, width)
    np.testing.assert_array_equal(row, np.broadcast_to(decode(content)[0, 0], row.shape))


def _flat(height: int, width: int) -> bytes:
    return simplejpeg.encode_jpeg(np.full((height, width, 3), (200, 100, 50), np.uint8))


@every_tiny
def test_image_cut_anywhere_is_an_error(name):
    content = DAMAGEABLE[name]
    for size in range(len(content)):
        with pytest.raises(ContentError):
            decode(content[:size])
        with pytest.raises(ContentError):
            by_pixels(content[:size], whole(7, 9), 2, 2)


@every_tiny
def test_flipped_bit_gives_an_error_or_an_image(name):
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
def test_npy_header_bit_changes_no_pixel(bit):
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


HUGE = 65_500


def by_cv2(ending: str, image: np.ndarray = PHOTO) -> bytes:
    return cv2.imencode(ending, image)[1].tobytes()


def tiff(order: str, is_big: bool, kind: str = "I") -> bytes:
    """A grey one of 2 x 3 pixels, as small as can be."""
    kinds = {"b": 6, "H": 3, "I": 4, "Q": 16}
    where = 16 if is_big else 8
    size = 8 + 20 * 8 + 8 if is_big else 2 + 12 * 8 + 4
    tags = {256: 2, 257: 3, 258: 8, 259: 1, 262: 1, 273: where + size, 278: 3, 279: 6}
    head = {"<": b"II", ">": b"MM"}[order]
    head += struct.pack(
        f"{order}HHHQ" if is_big else f"{order}HI", *((43, 8, 0) if is_big else (42,)), where
    )
    entries = b""
    for tag, value in tags.items():
        own = kind if tag in (256, 257) else "I"
        stored = struct.pack(order + own, value).ljust(8 if is_big else 4, b"\0")
        entries += (
            struct.pack(f"{order}HHQ" if is_big else f"{order}HHI", tag, kinds[own], 1) + stored
        )
    count = struct.pack(order + ("Q" if is_big else "H"), len(tags))
    return head + count + entries + bytes(8 if is_big else 4) + bytes(range(6))


def claiming(content: bytes, at: int, form: str, *values: int) -> bytes:
    """The same with other numbers there."""
    changed = bytearray(content)
    struct.pack_into(form, changed, at, *values)
    return bytes(changed)


WHOLE = {
    "TIFF": encoded(PHOTO, "TIFF"),
    "TIFF, LZW": encoded(PHOTO, "TIFF", compression="tiff_lzw"),
    "BMP": encoded(PHOTO, "BMP"),
    "WebP": encoded(PHOTO, "WEBP"),
    "WebP with a canvas": encoded(PHOTO, "WEBP", exif=Image.Exif()),
    "Sun": by_cv2(".ras"),
    "PPM": encoded(PHOTO, "PPM"),
    "PGM": encoded(PHOTO[:, :, :1], "PPM"),
    "PBM": encoded(Image.fromarray(PHOTO[:, :, 0] > 99), "PPM"),
    "PAM": by_cv2(".pam"),
}
TOO_LARGE = {
    "TIFF": encoded(Image.new("1", (17_000, 17_000)), "TIFF", compression="group4"),
    "BMP": claiming(WHOLE["BMP"], 18, "<ii", HUGE, HUGE),
    "BMP, top down": claiming(WHOLE["BMP"], 18, "<ii", HUGE, -HUGE),
    "BMP of OS/2": claiming(WHOLE["BMP"], 14, "<IHH", 12, HUGE, HUGE),
    "WebP": claiming(WHOLE["WebP with a canvas"], 24, "<HBHB", HUGE - 1, 0, HUGE - 1, 0),
    "GIF": b"GIF89a" + struct.pack("<HH", HUGE, HUGE) + bytes(20),
    "PPM": WHOLE["PPM"].replace(b"53 37", b"# 5 5\n 65500 #\n65500", 1),
    "PBM": b"P4\n# 1 1\n65500\n65500\n" + bytes(99),
    "JPEG": bomb("JPEG"),
    "PNG": bomb("PNG"),
}
KINDS = {**JPEGS, **WHOLE}


@pytest.mark.parametrize("name", KINDS)
def test_image_is_opencvs_unturned_and_whole(name):
    content = KINDS[name]
    found = decode(content)
    assert (*found.shape, *size_of(content)) == (37, 53, 3, 37, 53)
    np.testing.assert_array_equal(found, by_opencv(content))
    np.testing.assert_array_equal(decode(memoryview(b"x" + content)[1:]), found)


@pytest.mark.parametrize("function", [decode, size_of])
@pytest.mark.parametrize("name", TOO_LARGE)
def test_huge_images_are_not_decoded(name, function, monkeypatch):
    def asked(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(cv2, "imdecode", asked)
    match = r"1 to 268,435,456 pixels, found one of (65500 x 65500|17000 x 17000) pixels"
    with pytest.raises(ContentError, match=match):
        function(TOO_LARGE[name])


@pytest.mark.parametrize("orientation", [3, 6])
def test_tiff_is_as_large_as_opencv_turns_it(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(PHOTO, "TIFF", exif=exif.tobytes())
    found = decode(content)
    assert size_of(content) == found.shape[:2]
    np.testing.assert_array_equal(found, by_opencv(content))


@pytest.mark.parametrize("is_big", [False, True])
@pytest.mark.parametrize("order", "<>")
def test_tiff_of_every_order_says_its_size(order, is_big):
    content = tiff(order, is_big)
    assert decode(content)[:, :, 0].tolist() == [[0, 1], [2, 3], [4, 5]]
    shorts = tiff(order, is_big, "H")
    np.testing.assert_array_equal(decode(shorts), decode(content))
    at = content.index(struct.pack(f"{order}HH", 256, 4)) + (12 if is_big else 8)
    with pytest.raises(ContentError, match="found one of 3 x 2000000000 pixels"):
        decode(claiming(content, at, f"{order}I", 2_000_000_000))


@pytest.mark.parametrize(
    "content",
    [tiff("<", False, "b"), tiff("<", False)[:30], tiff("<", True)[:12], WHOLE["BMP"][:20]],
)
def test_header_without_a_size_is_refused(content):
    with pytest.raises(ContentError):
        decode(content)


def test_tiff_size_that_is_there_twice():
    content = tiff("<", False)
    entry = struct.pack("<HHII", 258, 4, 1, 8)
    twice = content.replace(entry, struct.pack("<HHII", 256, 4, 1, 2_000_000_000))
    with pytest.raises(ContentError, match="found one of 3 x 2000000000 pixels"):
        decode(twice)


def noise(height: int, width: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def test_npy_header_that_is_too_long():
    """Python's parser would run out of memory for this one."""
    header = b"-" * 60_000
    content = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header
    with pytest.raises(ContentError, match="a header of at most 10,000 bytes"):
        decode(content)


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


def test_npy_mutants_give_pixels_or_an_error():
    """In batches of nine, with and without random boxes; with the kernel where it is built."""
    contents = [npy(noise(9, 12)), npy(noise(9, 12)[:, :, 0]), encoded(noise(9, 12), "PNG")]
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
