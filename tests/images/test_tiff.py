"""TIFFs: which library reads them, which pages count, and what damage does."""

from __future__ import annotations

import io
import struct
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.images import size_of
from tests.images.pictures import encoded, picture

tifffile = pytest.importorskip("tifffile", reason="it writes the files: the extra test")
PHOTO = picture(13, 9)
BANDS = np.dstack([PHOTO.astype(np.uint16) * 257, PHOTO])


def tiff(*pages: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for number, page in enumerate(pages):
            own = {name: value[number] for name, value in options.items()}
            writer.write(page, photometric="minisblack", planarconfig="contig", **own)
    return file.getvalue()


AS_STORED = ImageDecoder(dtype="uint16", channels=None)
DAMAGEABLE = {
    "bands": tiff(BANDS),
    "16 bits": tiff(BANDS[:, :, 0]),
    "palette": encoded(PHOTO, "TIFF", "P"),
    "GIF": encoded(PHOTO, "GIF", "P"),
    "BMP": encoded(PHOTO, "BMP", "P"),
    "WebP": encoded(Image.fromarray(PHOTO), "WEBP", save_all=True, exif=Image.Exif()),
}
NEAREST = ImageDecoder(dtype="uint16", channels=None, interpolation="nearest")


def test_tiff_smaller_version_is_no_page():
    content = tiff(BANDS, BANDS[::2, ::2], subfiletype=[0, 1])
    np.testing.assert_array_equal(AS_STORED.decode(content), BANDS)
    with pytest.raises(ContentError, match="found one of 3 pages or frames"):
        AS_STORED.decode(tiff(BANDS, BANDS, BANDS))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiff_is_turned_alike(orientation):
    extra = [[(274, "H", 1, orientation, True)]]
    six = AS_STORED.decode(tiff(BANDS, extratags=extra))
    one = AS_STORED.decode(tiff(BANDS[:, :, 0], extratags=extra))
    np.testing.assert_array_equal(six[:, :, :1], one)  # Which is OpenCV's.
    assert size_of(tiff(BANDS, extratags=extra)) == one.shape[:2]


def test_tiff_without_a_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(ImportError, match=r"6 bands of 16 bits needs tifffile: pip install tiff"):
        AS_STORED.decode(DAMAGEABLE["bands"])
    for name in ("Tiff", "Gif", "Bmp", "Jpeg2K"):
        monkeypatch.setitem(sys.modules, f"PIL.{name}ImagePlugin", None)
    contents = [DAMAGEABLE[kind] for kind in ("palette", "GIF", "BMP")]
    for content in (*contents, encoded(PHOTO, "JPEG2000")):
        with pytest.raises(ImportError, match=r"^(a|JPEG).* needs Pillow: pip install pillow$"):
            NEAREST.decode(content)


@pytest.mark.parametrize(
    ("bands", "dtype"), [(3, "uint8"), (4, "uint8"), (4, "uint16"), (5, "uint8"), (6, "uint16")]
)
@pytest.mark.parametrize("options", [{}, {"compression": "zlib", "tile": (32, 32)}])
def test_tiff_of_bands_apart_is_whole_or_an_error(bands, dtype, options):
    pixels = picture(40, 30, bands).astype(dtype)
    colours = {"photometric": "rgb" if bands == 3 else "separated", "planarconfig": "separate"}
    file = io.BytesIO()
    tifffile.imwrite(file, np.moveaxis(pixels, 2, 0), **colours, **options)
    if bands == 4:  # CMYK becomes RGB.
        most = np.iinfo(dtype).max
        light = most - pixels.astype(np.int64)
        pixels = light[:, :, :3] * light[:, :, 3:] // most
    np.testing.assert_array_equal(AS_STORED.decode(file.getvalue()), pixels)
    for size in (500, len(file.getvalue()) // 2, len(file.getvalue()) - 1):
        with pytest.raises(ContentError, match="expected a TIFF image"):
            AS_STORED.decode(file.getvalue()[:size])


def test_tiff_of_two_widths_is_an_error():
    content = tiff(BANDS)
    at = content.index(struct.pack("<HHI", 282, 5, 1))
    content = content[:at] + struct.pack("<HHII", 256, 4, 1, 10) + content[at + 12 :]
    with pytest.raises(ContentError, match=r"\(13, 10, 6\) .* its tags .* found one of \(13, 9, 6"):
        AS_STORED.decode(content)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow warns of what is damaged.
@pytest.mark.parametrize("name", DAMAGEABLE)
def test_tiff_damage_is_an_image_or_an_error(name):
    content = DAMAGEABLE[name]
    damaged = [content[:size] for size in range(0, len(content), 23)]
    for bit in range(0, 8 * min(len(content), 400), 11):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for each in damaged:
        try:
            assert NEAREST.decode(each).ndim == 3
        except ContentError:
            continue
