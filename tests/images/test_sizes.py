"""What OpenCV decodes is as large as its header says, and nothing huge is decoded."""

from __future__ import annotations

import re
import struct

import cv2
import numpy as np
import pytest
from PIL import Image

from adapters.errors import ContentError
from adapters.images import decode, size_of
from tests.images.pictures import by_opencv, encoded, picture

PHOTO = picture(37, 53)
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
HDR = by_cv2(".hdr", PHOTO.astype(np.float32))
TOO_LARGE = {
    "TIFF": encoded(Image.new("1", (17_000, 17_000)), "TIFF", compression="group4"),
    "BMP": claiming(WHOLE["BMP"], 18, "<ii", HUGE, HUGE),
    "BMP, top down": claiming(WHOLE["BMP"], 18, "<ii", HUGE, -HUGE),
    "BMP of OS/2": claiming(WHOLE["BMP"], 14, "<IHH", 12, HUGE, HUGE),
    "WebP": claiming(WHOLE["WebP with a canvas"], 24, "<HBHB", HUGE - 1, 0, HUGE - 1, 0),
    "GIF": b"GIF89a" + struct.pack("<HH", HUGE, HUGE) + bytes(20),
    "Sun": claiming(WHOLE["Sun"], 4, ">II", HUGE, HUGE),
    "PPM": WHOLE["PPM"].replace(b"53 37", b"# 5 5\n 65500 #\n65500", 1),
    "PBM": b"P4\n# 1 1\n65500\n65500\n" + bytes(99),
    "HDR": re.sub(rb"-Y 37 \+X 53", rb"-Y 65500 +X 65500", HDR),
}


@pytest.mark.parametrize("name", WHOLE)
def test_images_of_every_kind_are_decoded_as_opencv_does(name):
    found = decode(WHOLE[name])
    assert (*found.shape, *size_of(WHOLE[name])) == (37, 53, 3, 37, 53)
    np.testing.assert_array_equal(found, by_opencv(WHOLE[name]))


@pytest.mark.parametrize("function", [decode, size_of])
@pytest.mark.parametrize("name", TOO_LARGE)
def test_an_image_that_claims_to_be_huge_is_not_decoded(name, function, monkeypatch):
    def asked(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(cv2, "imdecode", asked)
    match = r"1 to 268,435,456 pixels, found one of (65500 x 65500|17000 x 17000) pixels"
    with pytest.raises(ContentError, match=match):
        function(TOO_LARGE[name])


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_tiff_is_as_large_as_opencv_turns_it(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(PHOTO, "TIFF", exif=exif.tobytes())
    found = decode(content)
    assert size_of(content) == found.shape[:2]
    np.testing.assert_array_equal(found, by_opencv(content))


@pytest.mark.parametrize("is_big", [False, True])
@pytest.mark.parametrize("order", "<>")
def test_tiffs_of_every_order_say_how_large_they_are(order, is_big):
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
def test_a_header_that_says_no_size_is_refused(content):
    with pytest.raises(ContentError):
        decode(content)


def test_a_size_that_is_there_twice_is_the_larger_one():
    content = tiff("<", False)
    entry = struct.pack("<HHII", 258, 4, 1, 8)
    twice = content.replace(entry, struct.pack("<HHII", 256, 4, 1, 2_000_000_000))
    with pytest.raises(ContentError, match="found one of 3 x 2000000000 pixels"):
        decode(twice)
