"""``open_records``: record files as a source of samples, and what a record becomes."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, open_records
from adapters.errors import ClosedError
from adapters.records import example, irheader
from adapters.sources import as_source
from adapters.sources.records import RecordSource
from tests.batches import exact
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, plan_of
from tests.sources.record_files import (
    FORMATS,
    SUFFIXES,
    jpeg_file,
    payload,
    write,
    write_images,
)

every_format = pytest.mark.parametrize("format", FORMATS)
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)


@pytest.fixture(params=FORMATS)
def numbers(request, tmp_path) -> RecordSource:
    """Ten records, each its number, as a text."""
    path = write(tmp_path / "n", request.param, [str(n).encode() for n in range(10)])
    return open_records(path, decode=int)


def test_index_slice_and_iteration(numbers):
    assert len(numbers) == 10
    for index in (0, 9, -1, -10, np.int64(3), np.uint8(3), np.int32(-3)):
        assert numbers[index] == range(10)[index]
    for part in (slice(None), slice(2, 5), slice(-3, None), slice(None, None, -4), slice(7, 3)):
        assert numbers[part] == list(range(10))[part]
    assert [list(numbers), list(numbers)] == [list(range(10))] * 2
    assert numbers.__getitems__([5, 0, -1, 5]) == [5, 0, 9, 5]
    for index in (3, -7, np.int64(3)):
        record = numbers.read(index)
        assert (type(record), record) == (bytes, b"3")


@pytest.mark.parametrize("ask", [RecordSource.__getitem__, RecordSource.read])
def test_wrong_index_is_refused(numbers, ask):
    for index in (10, -11, 2**70):
        with pytest.raises(IndexError, match=rf"must be in range\(-10, 10\), got {index}"):
            ask(numbers, index)
    for index in ("1", 1.0, None, (1, 2)):
        with pytest.raises(TypeError, match="record number must be an integer or a slice, got"):
            ask(numbers, index)


def test_closed_source_says_so(numbers):
    with numbers as source:
        assert source is numbers
    numbers.close()
    for ask in (
        lambda: numbers[0],
        lambda: numbers.read(0),
        lambda: list(numbers),
        lambda: numbers[:],
    ):
        with pytest.raises(ClosedError, match="the record files have been closed; open them again"):
            ask()


def test_nothing_is_decoded_unasked(tmp_path):
    asked: list[bytes] = []
    path = write(tmp_path / "a", "tfrecord", [b"0", b"1", b"2"])
    source = open_records(path, decode=lambda record: asked.append(record) or record)
    assert (len(source), source[1], asked) == (3, b"1", [b"1"])


@pytest.mark.parametrize("paths", [None, 3, b"a.rec", [b"a.rec"], [None]])
def test_what_is_no_path_is_named(paths):
    with pytest.raises(TypeError, match=r"^paths must be a path, a glob, or a sequence of these"):
        open_records(paths)


@every_format
def test_path_says_what_it_holds(tmp_path, format):
    source = as_source(str(jpeg_file(tmp_path, format)))
    assert (source.sample(0)[0].shape, source.sample(3)[1]) == ((20, 50, 3), 3)
    for number, content in enumerate([b"text", b"", irheader.pack(1, 0, b"text")]):
        assert as_source(write(tmp_path / f"{number}", format, [content])).sample(0) == content
    for features in ({"a": [1, 2]}, {"image/encoded": PNG}):
        source = as_source(write(tmp_path / "b", "tfrecord", [example.encode(features)]))
        assert list(source.sample(0)) == list(features)


@every_format
def test_path_without_records_is_refused(tmp_path, format):
    with pytest.raises(ValueError, match="source must hold at least one sample, got 0"):
        as_source(write(tmp_path / f"a{SUFFIXES[format]}", format, []))


def test_first_damaged_record_of_a_batch_is_named(tmp_path):
    contents = [encoded(picture(9, 9), "JPEG"), *[b"text"] * 7]
    path = write_images(tmp_path / "a", "recordio", contents)
    plan = plan_of(open_records(path, decode=ImageDecoder(8)), 8, shuffle=True)
    with pytest.raises(RecordError) as info:
        batch_of(plan)
    assert info.value.record == next(n for n in plan.order.batch(0, 0) if n)


PHOTO = picture(6, 7)
PNG = encoded(PHOTO, "PNG")


@pytest.fixture
def sample_of(tmp_path):
    """Writes a file of one record, and reads it."""

    def read(payload, format="tfrecord", decode="image", fields=None):
        path = write(tmp_path / f"a{SUFFIXES[format]}", format, [payload])
        return open_records(path, decode=decode, fields=fields)[0]

    return read


def test_functions_get_bytes(sample_of):
    assert sample_of(b"abc", decode=lambda record: (type(record), record)) == (bytes, b"abc")


@pytest.mark.parametrize(
    ("format", "label", "expected"),
    [
        ("tfrecord", 2**40, 2**40),
        ("tfrecord", 1.5, 1.5),
        ("tfrecord", "cat", b"cat"),
        ("tfrecord", [1, 2], np.array([1, 2])),
        ("tfrecord", [0.5, 2], np.array([0.5, 2], "f4")),
        ("recordio", 3, 3.0),
        ("recordio", [3], np.array([3], "f4")),
    ],
)
def test_label_is_a_python_object_or_an_array(sample_of, format, label, expected):
    assert exact(sample_of(payload(format, PNG, label), format)[1]) == exact(expected)


@pytest.mark.parametrize("content", [PNG, npy(PHOTO)])
def test_image_may_be_written_into(sample_of, content):
    """A raw one as well, which lies in the file."""
    image, _ = sample_of(irheader.pack(0, 0, content), "recordio")
    np.testing.assert_array_equal(image, PHOTO)
    assert image.flags.writeable


@pytest.mark.parametrize(
    "fields",
    [{"image": "jpeg", "label": "class"}, {"image/encoded": "jpeg", "image/class/label": "class"}],
)
@pytest.mark.parametrize("decode", ["image", ImageDecoder()])
def test_fields_name_image_and_label(sample_of, fields, decode):
    image, label = sample_of(example.encode({"jpeg": PNG, "class": 9}), "tfrecord", decode, fields)
    np.testing.assert_array_equal(image, PHOTO)
    assert label == 9


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (None, {"a": [1, 2], "b": [0.5], "c": [b"x"]}),
        ({"x": "a", "c": "b"}, {"x": [1, 2], "c": [0.5]}),
        ({"x": "a", "y": "a"}, {"x": [1, 2], "y": [1, 2], "b": [0.5], "c": [b"x"]}),
    ],
)
def test_example_gives_all_features(sample_of, fields, expected):
    record = example.encode({"a": [1, 2], "b": 0.5, "c": "x"})
    sample = sample_of(record, decode="example", fields=fields)
    assert {name: list(value) for name, value in sample.items()} == expected


@pytest.mark.parametrize(
    ("decode", "fields", "missing"),
    [
        ("image", None, "image/encoded"),
        ("image", {"image": "b"}, "image/class/label"),
        ("example", {"x": "nothing"}, "nothing"),
    ],
)
def test_missing_feature_is_named(sample_of, decode, fields, missing):
    with pytest.raises(RecordError, match=f"feature '{missing}' .*found the features a, b"):
        sample_of(example.encode({"b": PNG, "a": 1}), "tfrecord", decode, fields)


@pytest.mark.parametrize(
    ("payload", "format", "message"),
    [
        (b"", "recordio", "expected an IRHeader of 24 bytes, found 0 bytes"),
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
def test_no_labelled_image_is_an_error(sample_of, payload, format, message, decode):
    with pytest.raises(RecordError, match=message):
        sample_of(payload, format, decode)
