"""Images and labels as records hold them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from adapters import RecordError, pack
from adapters.images import ImageDecoder, decode
from tests.images.pictures import encoded, npy
from tests.packing.materials import FORMATS, image, jpeg, packed

# A float32, and too large for an int64.
HUGE = float(np.float32(1e30))
formats = pytest.mark.parametrize("format", FORMATS)


def one(tmp_path, content: Any, label: Any = 0, format: str = "recordio", **options: Any) -> Any:
    manifest = pack([(content, label)], tmp_path / "out", format=format, **options)
    ((label, _, image),) = packed(tmp_path / "out", manifest)
    return label, image


# --- images ---

GREY = image(1, channels=1)[:, :, 0]


@formats
def test_jpeg_is_kept_as_it_is(tmp_path, format):
    assert one(tmp_path, jpeg(1), format=format)[1] == jpeg(1)
    assert one(tmp_path, jpeg(1, 20, 30), format=format, resize=20)[1] == jpeg(1, 20, 30)


def test_jpeg_of_a_quality_is_encoded_by_it(tmp_path):
    import simplejpeg

    assert len(one(tmp_path, jpeg(1), quality=10)[1]) < len(jpeg(1))
    expected = simplejpeg.encode_jpeg(image(1), 70, "RGB", "420")
    assert one(tmp_path, image(1), quality=70)[1] == expected


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP"])
def test_jpeg_of_another_encoding_looks_the_same(tmp_path, kind):
    stored = one(tmp_path, encoded(image(1, 64, 64), kind))[1]
    assert stored.startswith(b"\xff\xd8\xff")
    assert np.abs(decode(stored).astype(int) - image(1, 64, 64)).mean() < 3


def test_jpeg_of_an_array(tmp_path):
    """Grey arrays are grey, and any order in memory is right."""
    import simplejpeg

    for shape in ((20, 30), (20, 30, 1)):
        stored = one(tmp_path, image(1, channels=1).reshape(shape))[1]
        assert simplejpeg.decode_jpeg_header(stored)[:3] == (20, 30, "Gray")
    turned = image(1)[::-1].transpose(1, 0, 2)
    assert one(tmp_path, turned)[1] == one(tmp_path, turned.copy())[1]


@pytest.mark.parametrize(
    ("size", "resized"),
    [((20, 30), (16, 24)), ((30, 20), (24, 16)), ((8, 10), (16, 20)), ((1, 3), (16, 48))],
)
def test_resize_is_of_the_shorter_side(tmp_path, size, resized):
    subsampled_cmyk = encoded(image(1, *size), "JPEG", "CMYK", subsampling=2)
    for content, encoding in itertools.product((jpeg(1, *size), subsampled_cmyk), ("jpeg", "raw")):
        stored = one(tmp_path, content, resize=16, encoding=encoding)[1]
        assert decode(stored).shape == (*resized, 3)
    expected = ImageDecoder(resize_short=16).decode(subsampled_cmyk)
    assert np.array_equal(decode(stored), expected)


ANY = [np.arange(24).reshape(2, 3, 4).astype(each) for each in ("f4", "f8", "i2", "c8", "?")]


@pytest.mark.parametrize(
    ("content", "stored"),
    [(image(1), image(1)), (jpeg(1), decode(jpeg(1))), (GREY, GREY), *zip(ANY, ANY)],
)
def test_raw_is_npy_of_any_numbers(tmp_path, content, stored):
    assert one(tmp_path, content, encoding="raw")[1] == npy(stored)


RAW = {"encoding": "raw"}


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (np.zeros((4, 4, 3), np.float32), {}, r'encoding="raw" takes any, found float32 \(4, 4'),
        (np.zeros((4, 4, 4), np.uint8), {}, r"1 or 3 channels.*uint8 \(4, 4, 4\)"),
        (np.zeros(4, np.uint8), {}, r"uint8 \(4,\)"),
        (np.zeros((0, 4, 3), np.uint8), {}, r"what JPEG can hold.*\(0, 4, 3\)"),
        (np.zeros((1, 65501, 3), np.uint8), {}, r"what JPEG can hold.*65500"),
        (np.zeros((4, 4), np.int32), {"resize": 2, **RAW}, "that OpenCV resizes.*int32"),
        (np.array(["a"]), RAW, "expected numbers, found an array of <U1"),
        (np.array([None]), RAW, "expected numbers, found an array of object"),
        (np.zeros((2, 1000, 3), np.uint8), {"resize": 256}, "dimension is 65500 pixels"),
        (b"no image", {}, "an image"),
        (b"", {"resize": 16}, "0 bytes"),
    ],
)
def test_image_that_is_none_is_refused_by_number(tmp_path, content, options, message):
    with pytest.raises(RecordError, match=f"sample 0, byte 0.*{message}"):
        one(tmp_path, content, **options)


# --- labels ---


@pytest.mark.parametrize(
    ("label", "recordio", "tfrecord"),
    [
        (3, 3.0, 3),
        (-3, -3.0, -3),
        (True, 1.0, 1),
        (0.5, 0.5, 0.5),
        (2.0, 2.0, 2),
        (0.1, float(np.float32(0.1)), float(np.float32(0.1))),
        (2**24 + 2, float(2**24 + 2), 2**24 + 2),
        (float(2**40), float(2**40), 2**40),
        (HUGE, HUGE, HUGE),
        (math.inf, math.inf, math.inf),
        (np.float16(0.25), 0.25, 0.25),
        (np.array(7), 7.0, 7),
        ([1, 2], [1.0, 2.0], [1, 2]),
        (np.array([0.5, -2]), [0.5, -2.0], [0.5, -2.0]),
        ([5], 5.0, 5),
        (2**53 + 1, None, 2**53 + 1),
        (2**63 - 1, None, 2**63 - 1),
        (-(2**63), -float(2**63), -(2**63)),
    ],
)
def test_label_is_stored(tmp_path, label, recordio, tfrecord):
    for format, expected in (("recordio", recordio), ("tfrecord", tfrecord)):
        if expected is not None:
            stored = one(tmp_path, jpeg(0), label, format)[0]
            assert (stored, type(stored)) == (expected, type(expected))


@formats
def test_label_that_is_no_number_of_any_size(tmp_path, format):
    assert math.isnan(one(tmp_path, jpeg(0), math.nan, format)[0])


FLOAT32, INT64, NUMBER = "label that float32 holds", "label that int64 holds", "number as label"


@pytest.mark.parametrize(
    ("format", "label", "expected"),
    [
        *(("recordio", label, FLOAT32) for label in (2**24 + 1, -(2**24) - 1, float(2**24 + 1))),
        *(("recordio", label, FLOAT32) for label in ([1, 2**24 + 1], 1e300, 2**63 - 1)),
        *(("tfrecord", label, FLOAT32) for label in ([0.5, 2.0**24 + 1], 1e300, [-1e300, 0.5])),
        ("tfrecord", np.uint64(2**63), INT64),
        *((each, "ant", NUMBER) for each in FORMATS),
        *((each, None, NUMBER) for each in FORMATS),
        *(("recordio", label, NUMBER) for label in ([], b"x", {"a": 1}, 2**70)),
    ],
)
def test_label_that_would_change_is_refused(tmp_path, format, label, expected):
    with pytest.raises(RecordError, match=rf"sample 0.*a {expected}"):
        one(tmp_path, jpeg(0), label, format)
