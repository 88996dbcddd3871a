"""Encoded images into rows, as large as their headers say."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.images import decode, size_of
from adapters.images.geometry import Crop, reduction, whole
from tests.images.pictures import by_opencv, by_pixels, encoded, npy, picture

PHOTO = picture(37, 53)


def turned(kind: str, orientation: int) -> bytes:
    """An image of which EXIF says that it is seen from another side."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(PHOTO, kind, exif=exif.tobytes())


JPEGS = {
    "baseline": encoded(PHOTO, "JPEG"),
    "without subsampling": encoded(PHOTO, "JPEG", subsampling=0),
    "progressive": encoded(PHOTO, "JPEG", progressive=True),
    "grey": encoded(picture(37, 53, 1), "JPEG"),
    "CMYK": encoded(PHOTO, "JPEG", "CMYK"),
    "subsampled CMYK": encoded(PHOTO, "JPEG", "CMYK", subsampling=2),
    "rotated by EXIF": turned("JPEG", 6),
}
GREY = PHOTO[:, :, :1].repeat(3, 2)
GREY_IMAGE = Image.fromarray(PHOTO[:, :, 0])
PALETTE = encoded(PHOTO, "PNG", "P")
LOSSLESS: dict[str, tuple[bytes, Any]] = {
    "RGB": (encoded(PHOTO, "PNG"), PHOTO),
    "grey": (encoded(PHOTO[:, :, :1], "PNG"), GREY),
    "RGBA": (encoded(PHOTO, "PNG", "RGBA"), PHOTO),
    "grey and alpha": (encoded(GREY_IMAGE, "PNG", "LA"), GREY),
    "palette": (PALETTE, np.array(Image.open(io.BytesIO(PALETTE)).convert("RGB"))),
    "one bit": (encoded(Image.fromarray(PHOTO[:, :, 0] > 99), "PNG"), (GREY > 99) * np.uint8(255)),
    "JPEG 2000": (encoded(PHOTO, "JPEG2000"), PHOTO),
    "RGBA as JPEG 2000": (encoded(PHOTO, "JPEG2000", "RGBA"), PHOTO),
    "grey as JPEG 2000": (encoded(PHOTO[:, :, :1], "JPEG2000"), GREY),
    "grey and alpha as JPEG 2000": (encoded(GREY_IMAGE, "JPEG2000", "LA"), GREY),
    "JPEG 2000 in tiles": (encoded(PHOTO, "JPEG2000", tile_size=(16, 16)), PHOTO),
    "a codestream of JPEG 2000": (encoded(PHOTO, "JPEG2000", no_jp2=True), PHOTO),
}
JPEG2000 = LOSSLESS["JPEG 2000"][0]
TINY = picture(7, 9)
DAMAGEABLE = {
    "JPEG": encoded(TINY, "JPEG"),
    "progressive JPEG": encoded(TINY, "JPEG", progressive=True),
    "CMYK JPEG": encoded(TINY, "JPEG", "CMYK"),
    "subsampled CMYK JPEG": encoded(TINY, "JPEG", "CMYK", subsampling=2),
    "PNG": encoded(TINY, "PNG"),
    "NPY": npy(TINY),
}
every_tiny = pytest.mark.parametrize("name", DAMAGEABLE)


@pytest.mark.parametrize("name", LOSSLESS)
def test_image_becomes_8_bit_rgb(name):
    content, expected = LOSSLESS[name]
    found = decode(memoryview(content))
    np.testing.assert_array_equal(found, expected, strict=True)
    assert size_of(content) == (37, 53)
    found[0, 0] = 1  # One's own memory.


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
    endless = b"\x93NUMPY\x02\x00" + (60_000).to_bytes(4, "little") + b"-" * 60_000
    with pytest.raises(ContentError, match="a header of at most 10,000 bytes"):
        decode(endless)  # Python's parser would run out of memory.


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


@pytest.mark.parametrize(
    ("goal", "factor"),
    [((201, 100), 1), ((200, 151), 1), ((200, 150), 2), ((101, 75), 2), ((100, 75), 4)]
    + [((50, 37), 8), ((1, 1), 8)],
)
def test_jpeg_is_no_smaller_than_its_row(goal, factor):
    assert reduction(whole(400, 301), goal) == factor


@pytest.mark.parametrize(
    "crop",
    [
        whole(407, 601),
        Crop((407, 601), None, 0, 0, 399, 599, False),
        Crop((407, 601), None, 8, 2, 399, 599, False),
        None,
    ],
    ids=["whole", "top left", "bottom right", "resized"],
)
@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
def test_jpeg_reduced_differs_little(mode, crop):
    """A smooth picture, where no antialiasing is missed: 2 of 256 on average, 16 at most."""
    content = encoded(picture(407, 601), "JPEG", mode, quality=95, subsampling=2)
    for goal in ((200, 300), (130, 200), (50, 75), (33, 47)):
        cut = crop or Crop((407, 601), goal, 0, 0, *goal, False)
        box = decode(content)
        if crop is not None:
            box = box[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
        expected = cv2.resize(box, goal[::-1], interpolation=cv2.INTER_AREA).astype(int)
        difference = np.abs(by_pixels(content, cut, *goal) - expected)
        assert difference.mean() < 2
        assert difference.max() <= 16


def test_jpeg_of_a_subsampling_without_a_name():
    """4:1:1 turned by its header: as many blocks, in another order."""
    options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411]
    content = cv2.imencode(".jpg", picture(32, 32), options)[1].tobytes()
    turned = content.replace(b"\x01\x41\x00", b"\x01\x14\x00")
    assert size_of(turned) == (32, 32)
    np.testing.assert_array_equal(decode(turned), by_opencv(turned))


TINY_JPEG = DAMAGEABLE["JPEG"]
TABLES, SCAN = TINY_JPEG.index(b"\xff\xdb"), TINY_JPEG.index(b"\x00\x3f\x00")
ODD_JPEGS = {
    "JFIF 0.0": TINY_JPEG.replace(b"JFIF\0\1", b"JFIF\0\0"),
    "zeros between segments": TINY_JPEG[:TABLES] + bytes(3) + TINY_JPEG[TABLES:],
    "zeros at the end": TINY_JPEG[:-2] + bytes(30) + TINY_JPEG[-2:],
    "a scan's parameters": TINY_JPEG[:SCAN] + bytes(3) + TINY_JPEG[SCAN + 3 :],
}
ODD_JPEGS["all of these"] = (
    ODD_JPEGS["JFIF 0.0"][:TABLES] + bytes(9) + TINY_JPEG[TABLES:SCAN] + bytes(3)
    + TINY_JPEG[SCAN + 3 : -2] + bytes(30) + TINY_JPEG[-2:]
)  # fmt: skip


@pytest.mark.parametrize("name", ODD_JPEGS)
def test_whole_jpeg_of_which_libjpeg_warns(name):
    """Its damage is noticed as that of any other, so it never has other pixels than OpenCV's."""
    content = ODD_JPEGS[name]
    assert size_of(content) == (7, 9)
    np.testing.assert_array_equal(decode(content), decode(TINY_JPEG))
    np.testing.assert_array_equal(by_pixels(content, whole(7, 9), 7, 9), decode(TINY_JPEG))
    for size in range(len(content)):
        with pytest.raises(ContentError):
            decode(content[:size])
    flipped = bytearray(content)
    for place in range(len(content)):
        flipped[place] ^= 1 << place % 8
        with contextlib.suppress(ContentError):
            np.testing.assert_array_equal(decode(flipped), by_opencv(flipped))
        flipped[place] ^= 1 << place % 8


@pytest.mark.parametrize("rest", [b"\x5a" * 30, bytes(29) + b"\1"])
def test_jpeg_with_other_data_left_over_is_an_error(rest):
    with pytest.raises(ContentError, match="extraneous bytes before marker 0xd9"):
        decode(TINY_JPEG[:-2] + rest + TINY_JPEG[-2:])


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


def test_npy_header_bit_changes_no_pixel():
    for bit in range(8 * 128):
        flipped = bytearray(DAMAGEABLE["NPY"])
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            array = decode(flipped)
        except ContentError:
            continue
        assert array.tobytes("K") == TINY.tobytes()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "0 bytes that begin with nothing"),
        (b"a text", "6 bytes that begin with 61 20 74 65 78 74"),
        (b"\x89PNG\r\n", "6 bytes that begin with 89 50 4e 47 0d 0a"),
        (b"\0\0\0\x18ftypheic", "a HEIC: convert it .*"),
        (bytes(1000), "1000 bytes that begin with 00 00 00 00 00 00 00 00"),
    ],
)
def test_what_is_no_image_is_shown(content, found):
    for function in (decode, size_of):
        with pytest.raises(ContentError, match=f"^expected an image, found {found}$"):
            function(content)


def by_cv2(ending: str) -> bytes:
    return cv2.imencode(ending, PHOTO)[1].tobytes()


def tiff(order: str, is_big: bool, kind: str = "I") -> bytes:
    """A grey one of 2 x 3 pixels, as small as can be."""
    kinds = {"b": 6, "H": 3, "I": 4}
    head = {"<": b"II", ">": b"MM"}[order]
    if is_big:
        head += struct.pack(f"{order}HHHQ", 43, 8, 0, 16)
        size, long, count = 8 + 20 * 8 + 8, 8, "Q"
    else:
        head += struct.pack(f"{order}HI", 42, 8)
        size, long, count = 2 + 12 * 8 + 4, 4, "H"
    tags = {256: 2, 257: 3, 258: 8, 259: 1, 262: 1, 273: len(head) + size, 278: 3, 279: 6}
    entries = b""
    for tag, value in tags.items():
        own = kind if tag in (256, 257) else "I"
        entries += struct.pack(f"{order}HH{'Q' if is_big else 'I'}", tag, kinds[own], 1)
        entries += struct.pack(order + own, value).ljust(long, b"\0")
    return head + struct.pack(order + count, len(tags)) + entries + bytes(long) + bytes(range(6))


def claiming(content: bytes, at: int, form: str, *values: int) -> bytes:
    """The same with other numbers there."""
    changed = bytearray(content)
    struct.pack_into(form, changed, at, *values)
    return bytes(changed)


def png_of(height: int, width: int) -> bytes:
    """A PNG whose header, with its CRC, says so."""
    content = claiming(DAMAGEABLE["PNG"], 16, ">II", width, height)
    return claiming(content, 29, ">I", zlib.crc32(content[12:29]))


WHOLE = {
    "TIFF": encoded(PHOTO, "TIFF"),
    "TIFF, LZW": encoded(PHOTO, "TIFF", compression="tiff_lzw"),
    "BMP": encoded(PHOTO, "BMP"),
    "BMP of OS/2": b"BM"
    + struct.pack("<8xII4H", 26, 12, 53, 37, 1, 24)
    + encoded(PHOTO, "BMP")[54:],
    "WebP": encoded(PHOTO, "WEBP"),
    "WebP with a canvas": encoded(PHOTO, "WEBP", exif=Image.Exif()),
    "Sun": by_cv2(".ras"),
    "PPM": encoded(PHOTO, "PPM"),
    "PGM": encoded(PHOTO[:, :, :1], "PPM"),
    "PBM": encoded(Image.fromarray(PHOTO[:, :, 0] > 99), "PPM"),
    "PAM": by_cv2(".pam"),
}
HUGE = 65_500
FRAME = DAMAGEABLE["JPEG"].index(b"\xff\xc0")
IMPOSSIBLE = {
    "TIFF": encoded(Image.new("1", (17_000, 17_000)), "TIFF", compression="group4"),
    "GIF": claiming(encoded(PHOTO, "GIF"), 6, "<HH", HUGE, HUGE),
    "JPEG": claiming(DAMAGEABLE["JPEG"], FRAME + 5, ">HH", HUGE, HUGE),
    "PNG": png_of(HUGE, HUGE),
    "PNG without width": png_of(7, 0),
    "TIFF of two widths": tiff("<", False).replace(
        struct.pack("<HHII", 258, 4, 1, 8), struct.pack("<HHII", 256, 4, 1, 2_000_000_000)
    ),
    "JPEG 2000": claiming(JPEG2000, JPEG2000.index(b"ihdr") + 4, ">II", HUGE, HUGE),
}
KINDS = {**JPEGS, **WHOLE}


@pytest.mark.parametrize("name", KINDS)
def test_image_is_opencvs_unturned_and_whole(name):
    content = KINDS[name]
    found = decode(content)
    assert (*found.shape, *size_of(content)) == (37, 53, 3, 37, 53)
    np.testing.assert_array_equal(found, by_opencv(content))
    np.testing.assert_array_equal(decode(memoryview(b"x" + content)[1:]), found)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_images_of_impossible_sizes_are_not_decoded(name, monkeypatch):
    monkeypatch.setattr(cv2, "imdecode", None)
    sizes = "65500 x 65500|17000 x 17000|7 x 0|3 x 2000000000"
    match = rf"1 to 268,435,456 pixels, found one of ({sizes}) pixels"
    for function in (decode, size_of):
        with pytest.raises(ContentError, match=match):
            function(IMPOSSIBLE[name])


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_gif_is_pillows(mode):
    content = encoded(PHOTO, "GIF", mode)
    with Image.open(io.BytesIO(content)) as image:
        np.testing.assert_array_equal(decode(content), np.array(image.convert("RGB")))
    for size in range(13, len(content) - 30, 50):
        with pytest.raises(ContentError):
            decode(content[:size])


def test_bmp_whose_run_lengths_pass_the_edge():
    """As ImageMagick writes them: in rows of a multiple of 4 pixels."""
    pixels = picture(7, 5, 1)[:, :, 0]
    runs = b"".join(b"".join(b"\1%c" % each for each in row) + b"\3\0\0\0" for row in pixels[::-1])
    header = struct.pack("<10x2I2i2H6I", 1078, 40, 5, 7, 1, 8, 1, len(runs) + 2, 0, 0, 256, 256)
    for colour in (np.array([1, 1, 1]), np.array([1, 0, 1])):
        palette = np.arange(256)[:, None] * [*colour, 0]
        content = b"BM" + header[2:] + palette.astype(np.uint8).tobytes() + runs + b"\0\1"
        np.testing.assert_array_equal(decode(content), pixels[:, :, None] * colour)


@pytest.mark.parametrize("size", [40, 56, 124])
def test_bmp_of_16_bits_in_any_header(size):
    """Red, green and blue of 5, 6 and 5 bits."""
    masks = struct.pack("<3I", 0xF800, 0x7E0, 0x1F)
    header = struct.pack("<IiiHHIIiiII", size, 3, 1, 1, 16, 3, 8, 0, 0, 0, 0) + masks
    header = header if size == 40 else header.ljust(size, b"\0")
    pixels = struct.pack("<4H", 0xF800, 0x7E0, 0x1F, 0)
    content = b"BM" + struct.pack("<IHHI", 0, 0, 0, 14 + len(header)) + header + pixels
    assert (decode(content)[0] > 247).tolist() == np.eye(3, dtype=bool).tolist()


def test_area_is_averaged_if_another_side_grows():
    grey = picture(8, 6, 1)
    array = ImageDecoder((2, 12), channels=1, interpolation="area").decode(npy(grey))
    expected = grey.reshape(2, 4, 6).mean(axis=1).repeat(2, 1)
    np.testing.assert_allclose(array[:, :, 0], expected, atol=0.51)


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest", "area"])
def test_more_bands_than_opencv_has_are_resized(interpolation):
    many = picture(9, 11, 1).repeat(600, 2)
    one, all_of_them = (
        ImageDecoder(6, channels=bands, interpolation=interpolation).decode(npy(many[:, :, :bands]))
        for bands in (1, 600)
    )
    np.testing.assert_array_equal(all_of_them, one.repeat(600, 2))


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


@pytest.mark.parametrize("bits", [2, 4])
def test_tiff_of_grey_with_few_bits(bits):
    content, most = tiff("<", False), (1 << bits) - 1
    for tag, old, new in ((256, 2, 16 // bits), (258, 8, bits)):
        entries = (struct.pack("<HHII", tag, 4, 1, value) for value in (old, new))
        content = content.replace(*entries)
    levels = np.arange(6)[:, None] >> np.arange(8 - bits, -1, -bits) & most
    expected = levels.reshape(3, -1) * (255 // most)
    np.testing.assert_array_equal(decode(content)[:, :, 0], expected)


@pytest.mark.parametrize(
    "content",
    [tiff("<", False, "b"), tiff("<", False)[:30], tiff("<", True)[:12], WHOLE["BMP"][:20]],
)
def test_header_without_a_size_is_refused(content):
    with pytest.raises(ContentError):
        decode(content)


# --- PNG and JPEG 2000 ---


PNG = DAMAGEABLE["PNG"]


def moving(mode: str, picture: Any = TINY, **options: Any) -> bytes:
    """A PNG of three pictures."""
    first = Image.fromarray(picture).convert(mode)
    more = [Image.new(mode, first.size, colour) for colour in (0, 1)]
    return encoded(first, "PNG", save_all=True, append_images=more, **options)


def chunks(content: bytes) -> list[tuple[bytes, int, int]]:
    """Their kinds, where they begin, and where they end."""
    found, at = [], 8
    while at < len(content):
        end = at + 12 + int.from_bytes(content[at : at + 4], "big")
        found.append((content[at + 4 : at + 8], at, end))
        at = end
    return found


def chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(kind + data).to_bytes(4, "big")
    return len(data).to_bytes(4, "big") + kind + data + crc


@pytest.mark.parametrize("moves", [False, True])
def test_png_flipped_bit_is_an_error(moves):
    """In what says how it moves, too, of which OpenCV believes anything."""
    content = moving("RGB") if moves else PNG
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with pytest.raises(ContentError):
                decode(flipped)


def test_png_says_where_it_is_damaged():
    content = bytearray(PNG)
    content[50] ^= 1
    with pytest.raises(ContentError, match="found a wrong CRC in its b'IDAT', at its byte 33"):
        decode(content)
    comment = PNG[:33] + chunk(b"tEXt", b"Title\0a picture") + PNG[33:]
    np.testing.assert_array_equal(decode(comment), TINY)
    with pytest.raises(ContentError, match="found a wrong CRC in its b'tEXt', at its byte 33"):
        decode(comment.replace(b"a picture", b"a Picture"))
    with pytest.raises(ContentError, match="found one cut short"):
        decode(PNG[:-12])  # Whatever OpenCV makes of it: all of its pixels are there.
    np.testing.assert_array_equal(decode(PNG + b"more"), TINY)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
@pytest.mark.parametrize(("blend", "default_image"), [(0, False), (1, True)])
def test_png_that_moves_is_its_still_image(mode, blend, default_image):
    content = moving(mode, PHOTO, blend=blend, default_image=default_image)
    assert {b"acTL", b"fcTL", b"fdAT"} < {kind for kind, *_ in chunks(content)}
    expected = decode(encoded(Image.fromarray(PHOTO), "PNG", mode))
    assert size_of(content) == (37, 53)
    np.testing.assert_array_equal(decode(content), expected)


def test_png_control_of_frames_is_not_believed():
    """Where its CRC is right, and the picture would lie outside of the whole."""
    content = moving("RGB")
    _, begin, end = next(each for each in chunks(content) if each[0] == b"fcTL")
    control = bytearray(content[begin + 8 : end - 4])
    control[12:16] = (1 << 30).to_bytes(4, "big")
    changed = content[:begin] + chunk(b"fcTL", bytes(control)) + content[end:]
    np.testing.assert_array_equal(decode(changed), TINY)


def test_jpeg2000_16_bits():
    """Of colours, Pillow would give 8 of them."""
    sixteen = PHOTO[:, :, 0].astype(np.uint16) * 256 + 255
    found = ImageDecoder(channels=1, dtype="uint16").decode(encoded(sixteen, "JPEG2000"))
    np.testing.assert_array_equal(found[:, :, 0], sixteen)
    image = np.dstack([sixteen] * 3)
    content = cv2.imencode(".jp2", image, [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000])[1]
    with pytest.raises(ContentError, match="found 16 bits of RGB"):
        ImageDecoder(dtype="uint16").decode(content.tobytes())


def test_jpeg2000_flipped_bit_is_an_error_or_an_image():
    """One file after the other, as what one leaves behind may end another's decoding."""
    errors = 0
    for bit in range(0, 8 * (JPEG2000.index(b"\xff\x90") + 12), 3):
        flipped = bytearray(JPEG2000)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert decode(flipped).shape[2:] == (3,)
        except ContentError:
            errors += 1
    assert errors > 130


@pytest.mark.parametrize("size", [12, 60, 100, 200, len(JPEG2000) // 2])
def test_jpeg2000_cut_short_is_an_error(size):
    with pytest.raises(ContentError, match="expected a JPEG 2000 image, found a damaged one: "):
        decode(JPEG2000[:size])
