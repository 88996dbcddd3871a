"""PNG and JPEG 2000: damage, what moves, and the library that reads them."""

from __future__ import annotations

import sys
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.images import decode, size_of
from tests.images.pictures import encoded, picture

PHOTO, TINY = picture(37, 53), picture(7, 9)
PNG = encoded(TINY, "PNG")


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


def test_png_of_no_width_is_refused():
    content = bytearray(PNG)
    content[16:20] = bytes(4)
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    with pytest.raises(ContentError, match="found one of 7 x 0 pixels"):
        size_of(content)


@pytest.mark.parametrize("default_image", [False, True])
@pytest.mark.parametrize("blend", [0, 1])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
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


IMAGE = picture(37, 53)
SIXTEEN = IMAGE[:, :, 0].astype(np.uint16) * 256 + 255
JPEG2000: dict[str, tuple[bytes, Any]] = {
    "RGB": (encoded(IMAGE, "JPEG2000"), IMAGE),
    "RGBA": (encoded(IMAGE, "JPEG2000", "RGBA"), IMAGE),
    "grey": (encoded(IMAGE[:, :, :1], "JPEG2000"), IMAGE[:, :, :1].repeat(3, 2)),
    "grey and alpha": (
        encoded(Image.fromarray(IMAGE[:, :, 0]), "JPEG2000", "LA"),
        IMAGE[:, :, :1].repeat(3, 2),
    ),
    "in tiles": (encoded(IMAGE, "JPEG2000", tile_size=(16, 16)), IMAGE),
    "a codestream by itself": (encoded(IMAGE, "JPEG2000", no_jp2=True), IMAGE),
}
PLAIN = JPEG2000["RGB"][0]


@pytest.mark.parametrize("name", JPEG2000)
def test_jpeg2000_becomes_8_bit_rgb(name):
    content, expected = JPEG2000[name]
    found = decode(memoryview(content))
    assert (found.dtype, size_of(content)) == (np.uint8, (37, 53))
    np.testing.assert_array_equal(found, expected)
    found[0, 0] = 1  # One's own memory.


def test_jpeg2000_16_bits():
    """Of colours, Pillow would give 8 of them."""
    found = ImageDecoder(channels=1, dtype="uint16").decode(encoded(SIXTEEN, "JPEG2000"))
    np.testing.assert_array_equal(found[:, :, 0], SIXTEEN)
    image = np.dstack([SIXTEEN] * 3)
    content = cv2.imencode(".jp2", image, [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000])[1]
    with pytest.raises(ContentError, match="found 16 bits of RGB"):
        ImageDecoder(dtype="uint16").decode(content.tobytes())


def test_jpeg2000_flipped_bit_is_an_error_or_an_image():
    """One file after the other, as what one leaves behind may end another's decoding."""
    errors = 0
    for bit in range(8 * (PLAIN.index(b"\xff\x90") + 12)):
        flipped = bytearray(PLAIN)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert decode(flipped).shape[2:] == (3,)
        except ContentError:
            errors += 1
    assert errors > 400


@pytest.mark.parametrize("size", [12, 60, 100, 200, len(PLAIN) // 2])
def test_jpeg2000_cut_short_is_an_error(size):
    with pytest.raises(ContentError, match="expected a JPEG 2000 image, found a damaged one: "):
        decode(PLAIN[:size])


@pytest.mark.parametrize("function", [decode, size_of])
def test_jpeg2000_that_is_huge_is_refused(function):
    content = bytearray(PLAIN)
    header = content.index(b"ihdr")
    content[header + 4 : header + 12] = (65_500).to_bytes(4, "big") * 2
    with pytest.raises(ContentError, match="1 to 268,435,456 pixels, found one of 65500 x 65500"):
        function(bytes(content))


def test_jpeg2000_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Jpeg2KImagePlugin", None)
    with pytest.raises(ImportError, match=r"^JPEG 2000 needs Pillow: pip install pillow$"):
        decode(PLAIN)
