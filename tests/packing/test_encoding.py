"""Images and labels as records hold them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from adapters import RecordError, open_records, pack
from adapters.errors import ContentError
from adapters.images import ImageDecoder, decode
from tests.images.pictures import encoded, npy
from tests.packing.materials import FORMATS, image, jpeg, packed

# A float32, and too large for an int64.
HUGE = float(np.float32(1e30))


def one(tmp_path, content: Any, label: Any = 0, format: str = "recordio", **options: Any) -> Any:
    """Label and image of the record that this sample becomes."""
    manifest = pack([(content, label)], tmp_path / "out", format=format, **options)
    ((label, _, image),) = packed(tmp_path / "out", manifest)
    return label, image


# --- images ---


@pytest.mark.parametrize("format", FORMATS)
def test_a_jpeg_that_is_not_resized_is_kept_as_it_is(tmp_path, format):
    assert one(tmp_path, jpeg(1), format=format)[1] == jpeg(1)


def test_a_jpeg_whose_shorter_side_is_right_is_kept_as_it_is(tmp_path):
    assert one(tmp_path, jpeg(1, 20, 30), resize=20)[1] == jpeg(1, 20, 30)


def test_a_jpeg_with_a_quality_is_encoded_again(tmp_path):
    assert len(one(tmp_path, jpeg(1), quality=10)[1]) < len(jpeg(1))


def test_the_quality_is_that_of_the_jpeg(tmp_path):
    import simplejpeg

    expected = simplejpeg.encode_jpeg(image(1), 70, "RGB", "420")
    assert one(tmp_path, image(1), quality=70)[1] == expected


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP"])
def test_other_encodings_become_jpeg(tmp_path, kind):
    assert one(tmp_path, encoded(image(1), kind))[1].startswith(b"\xff\xd8\xff")


def test_a_png_as_jpeg_looks_the_same(tmp_path):
    stored = decode(one(tmp_path, encoded(image(1, 64, 64), "PNG"))[1])
    assert np.abs(stored.astype(int) - image(1, 64, 64)).mean() < 3


@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((20, 30), (16, 24)),
        ((30, 20), (24, 16)),
        ((25, 25), (16, 16)),
        ((8, 10), (16, 20)),
        ((100, 333), (16, 53)),
        ((1, 3), (16, 48)),
    ],
)
@pytest.mark.parametrize("encoding", ["jpeg", "raw"])
def test_the_shorter_side_is_resized(tmp_path, size, resized, encoding):
    stored = one(tmp_path, jpeg(1, *size), resize=16, encoding=encoding)[1]
    assert decode(stored).shape == (*resized, 3)


def test_resizing_is_that_of_the_decoder(tmp_path):
    stored = one(tmp_path, jpeg(1, 90, 70), resize=16, encoding="raw")[1]
    expected = ImageDecoder(resize_short=16).decode(jpeg(1, 90, 70))
    assert np.array_equal(decode(stored), expected)


def test_raw_is_an_array_in_npy_format(tmp_path):
    assert one(tmp_path, image(1), encoding="raw")[1] == npy(image(1))


def test_raw_of_an_encoded_image_is_its_pixels(tmp_path):
    assert one(tmp_path, jpeg(1), encoding="raw")[1] == npy(decode(jpeg(1)))


def test_yuv_is_no_encoding_any_more(tmp_path):
    with pytest.raises(ValueError, match=r'encoding must be one of "jpeg", "raw", got .yuv420'):
        one(tmp_path, image(1), encoding="yuv420")
    with pytest.raises(ContentError, match=r'YUV planes, .*encoding="raw" or "jpeg"'):
        decode(b"\x93YUV420\x01" + b"\x01\0\0\0" * 2 + b"\x80" * 3)


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1)])
def test_a_grey_array_becomes_a_grey_jpeg(tmp_path, shape):
    import simplejpeg

    stored = one(tmp_path, image(1, channels=1).reshape(shape))[1]
    assert simplejpeg.decode_jpeg_header(stored)[:3] == (20, 30, "Gray")


def test_a_grey_array_stays_as_it_is_raw(tmp_path):
    grey = image(1, channels=1)[:, :, 0]
    assert one(tmp_path, grey, encoding="raw")[1] == npy(grey)


def test_an_array_may_lie_in_memory_in_any_way(tmp_path):
    turned = image(1)[::-1].transpose(1, 0, 2)
    assert one(tmp_path, turned)[1] == one(tmp_path, turned.copy())[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex64", "bool"])
def test_raw_takes_numbers_of_any_type(tmp_path, dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    assert one(tmp_path, array, encoding="raw")[1] == npy(array)


def test_arrays_of_floats_are_read_back(tmp_path):
    arrays = np.random.default_rng(0).random((3, 4, 5), np.float32)
    pack((arrays, range(3)), tmp_path / "x.rec", format="recordio", encoding="raw")
    read = open_records(tmp_path / "x.rec", decode="image")
    assert np.array_equal([sample for sample, _ in read], arrays)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            np.zeros((4, 4, 3), np.float32),
            {},
            r'encoding="raw" takes any, found float32 \(4, 4, 3\)',
        ),
        (np.zeros((4, 4, 4), np.uint8), {}, r"1 or 3 channels.*uint8 \(4, 4, 4\)"),
        (np.zeros(4, np.uint8), {}, r"uint8 \(4,\)"),
        (np.zeros((0, 4, 3), np.uint8), {}, r"what JPEG can hold.*\(0, 4, 3\)"),
        (np.zeros((1, 65501, 3), np.uint8), {}, r"what JPEG can hold.*65500"),
        (
            np.zeros((4, 4), np.int32),
            {"resize": 2, "encoding": "raw"},
            "that OpenCV resizes.*int32",
        ),
        (np.array(["a"]), {"encoding": "raw"}, "expected numbers, found an array of <U1"),
        (np.array([None]), {"encoding": "raw"}, "expected numbers, found an array of object"),
        (np.zeros((2, 1000, 3), np.uint8), {"resize": 256}, "at most 65500 pixels a side"),
        (b"no image", {}, "an image"),
        (b"", {"resize": 16}, "0 bytes"),
    ],
)
def test_what_does_not_become_an_image_is_refused_by_number(tmp_path, content, options, message):
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
        (2**24, float(2**24), 2**24),
        (2**24 + 2, float(2**24 + 2), 2**24 + 2),
        (float(2**40), float(2**40), 2**40),
        (HUGE, HUGE, HUGE),
        (math.inf, math.inf, math.inf),
        (np.float16(0.25), 0.25, 0.25),
        (np.array(7), 7.0, 7),
        ([1, 2], [1.0, 2.0], [1, 2]),
        (np.array([0.5, -2]), [0.5, -2.0], [0.5, -2.0]),
        ([5], 5.0, 5),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_labels_are_stored(tmp_path, label, recordio, tfrecord, format):
    stored = one(tmp_path, jpeg(0), label, format)[0]
    expected = recordio if format == "recordio" else tfrecord
    assert (stored, type(stored)) == (expected, type(expected))


@pytest.mark.parametrize("format", FORMATS)
def test_a_label_that_is_not_a_number_of_its_own_is_stored(tmp_path, format):
    assert math.isnan(one(tmp_path, jpeg(0), math.nan, format)[0])


@pytest.mark.parametrize("label", [2**24 + 1, -(2**24) - 1, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_a_tfrecord_holds_any_int64(tmp_path, label):
    assert one(tmp_path, jpeg(0), label, "tfrecord")[0] == label


def test_a_larger_integer_than_a_tfrecord_holds_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"sample 0.*a label that int64 holds"):
        one(tmp_path, jpeg(0), np.uint64(2**63), "tfrecord")


@pytest.mark.parametrize(
    "label", [2**24 + 1, -(2**24) - 1, float(2**24 + 1), [1, 2**24 + 1], 1e300, 2**63 - 1]
)
def test_a_label_that_recordio_would_round_is_refused(tmp_path, label):
    with pytest.raises(RecordError, match=r"sample 0.*a label that float32 holds"):
        one(tmp_path, jpeg(0), label)


@pytest.mark.parametrize("label", [[0.5, 2.0**24 + 1], 1e300, [-1e300, 0.5]])
def test_a_float_that_a_tfrecord_would_round_to_another_number_is_refused(tmp_path, label):
    with pytest.raises(RecordError, match=r"sample 0.*a label that float32 holds"):
        one(tmp_path, jpeg(0), label, "tfrecord")


@pytest.mark.parametrize("label", ["ant", None, [], b"x", {"a": 1}, 2**70])
@pytest.mark.parametrize("format", FORMATS)
def test_what_is_no_number_is_refused_as_label(tmp_path, label, format):
    with pytest.raises(RecordError, match=r"sample 0.*a number as label"):
        one(tmp_path, jpeg(0), label, format)


def test_a_label_that_cannot_be_held_is_skipped_by_number(tmp_path):
    samples = [(jpeg(0), 1), (jpeg(1), 2**24 + 1), (jpeg(2), 2)]
    manifest = pack(samples, tmp_path / "out", format="recordio", on_error="skip")
    assert ([each.name for each in manifest.skipped], manifest.packed) == (["sample 1"], 2)
