"""Packing keeps the bits, the channels and the right way up."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image

from adapters import (
    ImageDecoder,
    RecordError,
    SafeSequence,
    open_records,
    pack,
)
from tests.contract.image_files import (
    COLOURS,
    RGB16,
    RGBA16,
    SIXTEEN,
    TRANSPARENT,
    bands,
    by_opencv,
    encoded,
    tiff,
)

RNG = np.random.default_rng(8)

# --- packing ---

STORED = {
    "16-bit grey": (encoded(SIXTEEN), SIXTEEN[..., None]),
    "16-bit RGB": (by_opencv(RGB16), RGB16),
    "16-bit RGBA": (by_opencv(RGBA16), RGBA16),
    "RGBA": (encoded(TRANSPARENT), TRANSPARENT),
    "grey": (encoded(COLOURS[:, :, 0]), COLOURS[:, :, :1]),
    "13 bands": bands(13),
    "floats": (tiff(COLOURS / np.float32(7), photometric="rgb"), COLOURS / np.float32(7)),
}


@pytest.mark.parametrize("format", ["recordio", "tfrecord"])
@pytest.mark.parametrize("name", STORED)
def test_raw_records_hold_what_was_stored(name, format, tmp_path):
    content, expected = STORED[name]
    out = tmp_path / ("x" + {"recordio": ".rec", "tfrecord": ".tfrecord"}[format])
    pack([(content, 1)], out, format=format, encoding="raw")
    dtype = "float32" if expected.dtype == np.float32 else "uint16"
    decoder = ImageDecoder(dtype=dtype, channels=None)
    np.testing.assert_array_equal(open_records(out, decode=decoder)[0][0], expected)
    decoder = ImageDecoder((30, 40), dtype=dtype, channels=expected.shape[2])
    ((batch, _),) = list(SafeSequence(open_records(out, decode=decoder), 1, workers=0))
    np.testing.assert_array_equal(np.array(batch)[0], expected)


@pytest.mark.parametrize("name", [name for name in STORED if name != "13 bands"])
def test_resized_raw_records_have_the_same_bits_and_channels(name, tmp_path):
    content, expected = STORED[name]
    pack([(content, 1)], tmp_path / "x.rec", format="recordio", encoding="raw", resize=15)
    found, _ = open_records(tmp_path / "x.rec", decode="image")[0]
    wanted = cv2.resize(expected, (20, 15)).reshape(15, 20, -1)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", [name for name in STORED if name != "grey"])
def test_what_an_encoding_cannot_hold_is_an_error_with_the_remedy(name, tmp_path):
    with pytest.raises(RecordError, match='encoding="raw" takes any'):
        pack([(STORED[name][0], 1)], tmp_path / "x.rec", format="recordio", encoding="jpeg")


def rotated(orientation: int, kind: str = "JPEG") -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    shades = np.dstack([cv2.resize(COLOURS[:3, :4], (40, 32))[:, :, 0]] * 3)
    return encoded(shades, kind, exif=exif.tobytes())


@pytest.mark.parametrize("options", [{"encoding": "raw"}, {"quality": 95}, {"resize": 16}])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_turned_by_exif_is_packed_upright_when_it_is_encoded_again(
    orientation, options, tmp_path
):
    """As MXNet's im2rec has it, which reads images by ``cv2.imread``."""
    content = rotated(orientation)
    wanted = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]
    if "resize" in options:
        wanted = cv2.resize(wanted, (20, 16) if orientation < 5 else (16, 20))
    pack([(content, 1)], tmp_path / "x.rec", format="recordio", **options)
    found, _ = open_records(tmp_path / "x.rec", decode="image")[0]
    assert found.shape == wanted.shape
    assert np.abs(found.astype(int) - wanted).mean() < 6


def test_a_png_turned_by_exif_is_packed_upright(tmp_path):
    content = rotated(6, "PNG")
    pack([(content, 1)], tmp_path / "x.rec", format="recordio", encoding="raw")
    assert open_records(tmp_path / "x.rec", decode="image")[0][0].shape == (40, 32, 3)


def test_a_photo_that_is_not_encoded_again_is_kept_as_it_is(tmp_path):
    content = rotated(6)
    pack([(content, 1)], tmp_path / "x.rec", format="recordio")
    with open_records(tmp_path / "x.rec", decode=None) as records:
        assert records[0].endswith(content)
