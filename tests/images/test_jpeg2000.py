"""JPEG 2000, by Pillow: damaged files are errors, and never the end of the process."""

from __future__ import annotations

import sys
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.images import decode, size_of
from tests.images.pictures import encoded, picture

PHOTO = picture(37, 53)
SIXTEEN = PHOTO[:, :, 0].astype(np.uint16) * 256 + 255
KINDS: dict[str, tuple[bytes, Any]] = {
    "RGB": (encoded(PHOTO, "JPEG2000"), PHOTO),
    "RGBA": (encoded(PHOTO, "JPEG2000", "RGBA"), PHOTO),
    "grey": (encoded(PHOTO[:, :, :1], "JPEG2000"), PHOTO[:, :, :1].repeat(3, 2)),
    "grey and alpha": (
        encoded(Image.fromarray(PHOTO[:, :, 0]), "JPEG2000", "LA"),
        PHOTO[:, :, :1].repeat(3, 2),
    ),
    "in tiles": (encoded(PHOTO, "JPEG2000", tile_size=(16, 16)), PHOTO),
    "a codestream by itself": (encoded(PHOTO, "JPEG2000", no_jp2=True), PHOTO),
}
PLAIN = KINDS["RGB"][0]


@pytest.mark.parametrize("name", KINDS)
def test_it_becomes_8_bit_rgb(name):
    content, expected = KINDS[name]
    found = decode(memoryview(content))
    assert (found.dtype, size_of(content)) == (np.uint8, (37, 53))
    np.testing.assert_array_equal(found, expected)
    found[0, 0] = 1  # One's own memory.


def test_16_bits_are_kept():
    found = ImageDecoder(channels=1, dtype="uint16").decode(encoded(SIXTEEN, "JPEG2000"))
    np.testing.assert_array_equal(found[:, :, 0], SIXTEEN)


def test_16_bits_of_colours_are_refused():
    """Pillow would give 8 of them."""
    image = np.dstack([SIXTEEN] * 3)
    content = cv2.imencode(".jp2", image, [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000])[1]
    with pytest.raises(ContentError, match="found 16 bits of RGB"):
        ImageDecoder(dtype="uint16").decode(content.tobytes())


def test_a_flipped_bit_in_the_header_gives_an_error_or_an_image():
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
def test_one_cut_short_is_an_error(size):
    with pytest.raises(ContentError, match="expected a JPEG 2000 image, found a damaged one: "):
        decode(PLAIN[:size])


@pytest.mark.parametrize("function", [decode, size_of])
def test_one_that_claims_to_be_huge_is_refused(function):
    content = bytearray(PLAIN)
    header = content.index(b"ihdr")
    content[header + 4 : header + 12] = (65_500).to_bytes(4, "big") * 2
    with pytest.raises(ContentError, match="1 to 268,435,456 pixels, found one of 65500 x 65500"):
        function(bytes(content))


def test_without_pillow_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Jpeg2KImagePlugin", None)
    with pytest.raises(ImportError, match=r"^JPEG 2000 needs Pillow: pip install pillow$"):
        decode(PLAIN)
