"""PNGs: damaged ones are told, and of one that moves the first picture is taken."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from adapters.errors import ContentError
from adapters.images import decode, size_of
from tests.images.pictures import encoded, picture

PHOTO, TINY = picture(37, 53), picture(7, 9)
PLAIN = encoded(TINY, "PNG")


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
def test_a_flipped_bit_in_a_png_is_an_error(moves):
    """In what says how it moves, too, of which OpenCV believes anything."""
    content = moving("RGB") if moves else PLAIN
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with pytest.raises(ContentError):
                decode(flipped)


def test_a_png_says_where_it_is_damaged():
    content = bytearray(PLAIN)
    content[50] ^= 1
    with pytest.raises(ContentError, match="found a wrong CRC in its b'IDAT', at its byte 33"):
        decode(content)


def test_a_png_without_its_end_is_told_from_a_whole_one():
    """Whatever OpenCV makes of it: all of its pixels are there."""
    with pytest.raises(ContentError, match="found one cut short"):
        decode(PLAIN[:-12])


def test_what_follows_a_png_is_left_alone():
    np.testing.assert_array_equal(decode(PLAIN + b"more"), TINY)


def test_a_png_of_no_width_is_refused():
    content = bytearray(PLAIN)
    content[16:20] = bytes(4)
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    with pytest.raises(ContentError, match="found one of 7 x 0 pixels"):
        size_of(content)


# --- PNGs that move ---


@pytest.mark.parametrize("default_image", [False, True])
@pytest.mark.parametrize("blend", [0, 1])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_of_a_png_that_moves_the_picture_is_the_one_that_does_not(mode, blend, default_image):
    content = moving(mode, PHOTO, blend=blend, default_image=default_image)
    assert {b"acTL", b"fcTL", b"fdAT"} < {kind for kind, *_ in chunks(content)}
    expected = decode(encoded(Image.fromarray(PHOTO), "PNG", mode))
    assert size_of(content) == (37, 53)
    np.testing.assert_array_equal(decode(content), expected)


def test_what_says_how_a_png_moves_is_not_believed():
    """Where its CRC is right, and the picture would lie outside of the whole."""
    content = moving("RGB")
    _, begin, end = next(each for each in chunks(content) if each[0] == b"fcTL")
    control = bytearray(content[begin + 8 : end - 4])
    control[12:16] = (1 << 30).to_bytes(4, "big")
    changed = content[:begin] + chunk(b"fcTL", bytes(control)) + content[end:]
    np.testing.assert_array_equal(decode(changed), TINY)


def test_a_flipped_bit_in_a_comment_is_an_error():
    content = PLAIN[:33] + chunk(b"tEXt", b"Title\0a picture") + PLAIN[33:]
    np.testing.assert_array_equal(decode(content), TINY)
    with pytest.raises(ContentError, match="found a wrong CRC in its b'tEXt', at its byte 33"):
        decode(content.replace(b"a picture", b"a Picture"))
