"""What a record becomes."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.records import example, irheader
from adapters.sources.decoders import content_of, guessed
from tests.images.pictures import encoded, npy, picture

PHOTO = picture(6, 7)
PNG = encoded(PHOTO, "PNG")


def sample_of(payload, format="tfrecord", decode="image", fields=None):
    return content_of(decode, fields).sample(memoryview(payload), format, None)


def test_none_gives_bytes():
    sample = sample_of(b"abc", decode=None)
    assert (type(sample), sample) == (bytes, b"abc")


def test_a_function_is_given_bytes():
    assert sample_of(b"abc", decode=lambda record: (type(record), record)) == (bytes, b"abc")


@pytest.mark.parametrize(
    ("label", "expected"),
    [(3, 3), (-1, -1), (2**40, 2**40), (1.5, 1.5), (b"cat", b"cat"), ("cat", b"cat")],
)
def test_one_label_of_an_example_is_a_python_object(label, expected):
    payload = example.encode({"image/encoded": PNG, "image/class/label": label})
    found = sample_of(payload)[1]
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(("label", "dtype"), [([1, 2], "int64"), ([0.5, 2], "float32")])
def test_several_labels_of_an_example_are_an_array(label, dtype):
    payload = example.encode({"image/encoded": PNG, "image/class/label": label})
    found = sample_of(payload)[1]
    assert (found.dtype, found.tolist()) == (np.dtype(dtype), label)


def test_one_label_of_a_recordio_image_is_a_float():
    found = sample_of(irheader.pack(3, 0, PNG), "recordio")[1]
    assert (type(found), found) == (float, 3.0)


@pytest.mark.parametrize("label", [[3], [3, 4.5]])
def test_labels_of_a_recordio_image_are_an_array(label):
    found = sample_of(irheader.pack(label, 0, PNG), "recordio")[1]
    assert (found.dtype, found.tolist()) == (np.float32, label)


@pytest.mark.parametrize("content", [PNG, npy(PHOTO)])
def test_an_image_is_an_array_that_may_be_written_into(content):
    """A raw one as well, which lies in the file."""
    image, _ = sample_of(irheader.pack(0, 0, content), "recordio")
    np.testing.assert_array_equal(image, PHOTO)
    assert image.flags.writeable


def test_an_image_decoder_makes_the_array():
    image, label = sample_of(irheader.pack(4, 0, PNG), "recordio", ImageDecoder(3))
    assert (image.shape, label) == ((3, 3, 3), 4.0)


@pytest.mark.parametrize(
    "fields",
    [{"image": "jpeg", "label": "class"}, {"image/encoded": "jpeg", "image/class/label": "class"}],
)
@pytest.mark.parametrize("decode", ["image", ImageDecoder()])
def test_fields_say_what_image_and_label_are_called(fields, decode):
    image, label = sample_of(example.encode({"jpeg": PNG, "class": 9}), "tfrecord", decode, fields)
    np.testing.assert_array_equal(image, PHOTO)
    assert label == 9


def test_example_gives_all_features():
    sample = sample_of(example.encode({"a": [1, 2], "b": 0.5, "c": "x"}), decode="example")
    assert {name: list(value) for name, value in sample.items()} == {
        "a": [1, 2],
        "b": [0.5],
        "c": [b"x"],
    }


def test_fields_rename_features_and_leave_the_others():
    payload = example.encode({"a": 1, "b": 2, "c": 3})
    sample = sample_of(payload, decode="example", fields={"x": "a", "c": "b"})
    assert {name: value.tolist() for name, value in sample.items()} == {"x": [1], "c": [2]}


def test_a_feature_may_have_two_names():
    sample = sample_of(example.encode({"a": 1}), decode="example", fields={"x": "a", "y": "a"})
    assert {name: value.tolist() for name, value in sample.items()} == {"x": [1], "y": [1]}


@pytest.mark.parametrize(
    ("decode", "fields", "missing"),
    [
        ("image", None, "image/encoded"),
        ("image", {"image": "b"}, "image/class/label"),
        ("example", {"x": "nothing"}, "nothing"),
    ],
)
def test_a_missing_feature_is_named_with_those_that_are_there(decode, fields, missing):
    with pytest.raises(ContentError, match=f"feature '{missing}' .*found the features a, b$"):
        sample_of(example.encode({"b": PNG, "a": 1}), "tfrecord", decode, fields)


@pytest.mark.parametrize(
    ("payload", "format", "message"),
    [
        (b"", "recordio", "expected an IRHeader of 24 bytes, found 0 bytes"),
        (b"x" * 23, "recordio", "expected an IRHeader of 24 bytes, found 23 bytes"),
        (irheader.pack([1, 2], 0, b"")[:-1], "recordio", "expected 2 labels in 32 bytes, found 31"),
        (irheader.pack(1, 0, b""), "recordio", "expected an image, found 0 bytes"),
        (irheader.pack(1, 0, b"text"), "recordio", "expected an image, found 4 bytes"),
        (b"", "tfrecord", "found the features none"),
        (b"\xff" * 20, "tfrecord", "expected a varint"),
        (
            example.encode({"image/encoded": [PNG, PNG], "image/class/label": 1}),
            "tfrecord",
            "expected one image as 'image/encoded', found 2",
        ),
        (
            example.encode({"image/encoded": 1, "image/class/label": 1}),
            "tfrecord",
            "expected one image as 'image/encoded', found 0",
        ),
    ],
)
@pytest.mark.parametrize("decode", ["image", ImageDecoder(3)])
def test_what_is_no_labelled_image_is_said_to_be_none(payload, format, message, decode):
    with pytest.raises(ContentError, match=message):
        sample_of(payload, format, decode)


@pytest.mark.parametrize(
    ("decode", "fields", "error", "message"),
    [
        ("images", None, ValueError, "decode must be None, \"image\", .* got 'images'"),
        (5, None, ValueError, "decode must be .* got 5"),
        (None, {"a": "b"}, ValueError, 'fields are for "image", "example" .* got None'),
        (len, {"a": "b"}, ValueError, 'fields are for "image", .* got <built-in function len>'),
        ("example", ["a"], TypeError, r"fields must map names .* got \['a'\]"),
        ("image", {"text": "b"}, ValueError, "fields must rename 'image/encoded' .* got 'text'"),
    ],
)
def test_a_wrong_argument_is_named_with_the_rule_and_the_value(decode, fields, error, message):
    with pytest.raises(error, match=message):
        content_of(decode, fields)


@pytest.mark.parametrize(
    ("payload", "format", "decode"),
    [
        (irheader.pack(1, 0, PNG), "recordio", "image"),
        (irheader.pack([1, 2], 0, npy(PHOTO)), "recordio", "image"),
        (irheader.pack(1, 0, b"text"), "recordio", None),
        (b"bytes", "recordio", None),
        (b"", "recordio", None),
        (example.encode({"image/encoded": PNG, "image/class/label": 1}), "tfrecord", "image"),
        (example.encode({"image/encoded": PNG}), "tfrecord", "example"),
        (example.encode({"a": 1}), "tfrecord", "example"),
        (b"bytes", "tfrecord", None),
        (b"", "tfrecord", None),
    ],
)
def test_a_record_suggests_how_to_decode_it(payload, format, decode):
    assert guessed(memoryview(payload), format) == decode
