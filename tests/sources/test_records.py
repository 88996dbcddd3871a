"""``open_records``: record files as a source of samples, and what a record becomes."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, open_records
from adapters.errors import ClosedError, ContentError
from adapters.records import example, irheader
from adapters.sources import as_source
from adapters.sources.decoders import content_of, guessed
from adapters.sources.records import RecordSource
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, notes_of, plan_of
from tests.sources.record_files import (
    FORMATS,
    SUFFIXES,
    damage,
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


def test_files_of_both_formats_are_one_source(tmp_path):
    paths = [
        write(tmp_path / f"{n}", FORMATS[n % 2], [b"%d" % (3 * n + m) for m in range(3)])
        for n in range(4)
    ]
    source = open_records(paths, decode=int)
    assert (len(source), source[:], source[7]) == (12, list(range(12)), 7)


def test_glob_takes_files_by_name_and_no_index(tmp_path):
    for n in (2, 3, 0, 1):
        write(tmp_path / f"train-{n}.tfrecord", "tfrecord", [b"%d" % n] * (2 if n < 3 else 0))
    (tmp_path / "train.json").write_text("{}")
    for glob in (str(tmp_path / "train*"), tmp_path / "train*"):
        assert open_records(glob, decode=int)[:] == [0, 0, 1, 1, 2, 2]
    assert open_records(tmp_path / "train-1.tfrecord")[:] == [b"1", b"1"]


@pytest.mark.parametrize("paths", [None, 3, b"a.rec", [b"a.rec"], [None]])
def test_what_is_no_path_is_named(paths):
    with pytest.raises(TypeError, match=r"^paths must be a path, a glob, or a sequence of these"):
        open_records(paths)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"verify": "no"}, TypeError, r"verify must be True or False, got 'no'"),
        ({"format": "rec"}, ValueError, r'format must be "auto", "recordio" or .* got'),
        ({"decode": "images"}, ValueError, "decode must be None, \"image\", .* got 'images'"),
        ({"decode": 5}, ValueError, "decode must be .* got 5"),
        ({"fields": {"a": "b"}}, ValueError, 'fields are for "image", "example" .* got None'),
        ({"decode": len, "fields": {"a": "b"}}, ValueError, "fields are for .* got <built-in"),
        ({"decode": "example", "fields": ["a"]}, TypeError, r"fields must map names .* \['a'\]"),
        ({"decode": "image", "fields": {"text": "b"}}, ValueError, "fields must rename .* 'text'"),
    ],
)
def test_wrong_arguments_are_refused_before_opening(arguments, error, message):
    with pytest.raises(error, match=message):
        open_records("nowhere", **arguments)


@every_format
def test_path_says_what_it_holds(tmp_path, format):
    source = as_source(str(jpeg_file(tmp_path, format)))
    assert (source.sample(0)[0].shape, source.sample(3)[1]) == ((20, 50, 3), 3)
    assert as_source(write(tmp_path / "a", format, [b"text"])).sample(0) == b"text"
    features = as_source(write(tmp_path / "b", "tfrecord", [example.encode({"a": [1, 2]})]))
    assert features.sample(0)["a"].tolist() == [1, 2]


@every_format
def test_path_without_records_is_refused(tmp_path, format):
    with pytest.raises(ValueError, match="source must hold at least one sample, got 0"):
        as_source(write(tmp_path / f"a{SUFFIXES[format]}", format, []))


def test_damaged_first_record_hides_not_what_others_are(tmp_path):
    path = jpeg_file(tmp_path, "tfrecord")
    damage(path, 100)
    assert as_source(path).holds_images


@every_format
@pytest.mark.parametrize("decode", ["image", RANDOM])
@pytest.mark.parametrize("content", [b"", b"text", encoded(picture(9, 9), "JPEG")[:-20]])
def test_record_without_a_whole_image_is_named(tmp_path, format, decode, content):
    good = encoded(picture(9, 9), "JPEG")
    files = [
        write_images(tmp_path / "a", format, [good] * 3),
        write_images(tmp_path / "b", format, [good, good, content, good]),
    ]
    with pytest.raises(RecordError) as caught:
        open_records(files, decode=decode)[5]
    error, offset = caught.value, write_images(tmp_path / "c", format, [good] * 2).stat().st_size
    assert (error.file, error.record, error.offset) == (str(files[1]), 2, offset)
    assert error.expected == ("a JPEG image" if len(content) > 9 else "an image")
    assert "bytes" in error.found or "damaged" in error.found


@every_format
@pytest.mark.parametrize("decode", ["image", ImageDecoder(8)])
def test_damaged_image_names_record_and_sample(tmp_path, format, decode):
    contents = [encoded(picture(9, 9), "PNG")] * 5
    contents[3] = contents[3][:-5]
    path = write_images(tmp_path / "a", format, contents)
    with pytest.raises(RecordError, match=f"{path}, record 3, byte .* found one cut short") as info:
        batch_of(plan_of(open_records(path, decode=decode), 5))
    assert notes_of(info.value) == "in sample 3, batch 0 of epoch 0"


def test_first_damaged_record_of_a_batch_is_named(tmp_path):
    contents = [encoded(picture(9, 9), "JPEG"), *[b"text"] * 7]
    path = write_images(tmp_path / "a", "recordio", contents)
    plan = plan_of(open_records(path, decode=ImageDecoder(8)), 8, shuffle=True)
    with pytest.raises(RecordError) as info:
        batch_of(plan)
    assert info.value.record == next(n for n in plan.order.batch(0, 0) if n)


def test_users_exception_is_its_own(tmp_path):
    path = write(tmp_path / "a", "recordio", [b"1", b"x"])
    with pytest.raises(ValueError, match="invalid literal for int") as info:
        batch_of(plan_of(open_records(path, decode=int), 2))
    assert "in sample 1" in notes_of(info.value)


PHOTO = picture(6, 7)
PNG = encoded(PHOTO, "PNG")


def sample_of(payload, format="tfrecord", decode="image", fields=None):
    return content_of(decode, fields).sample(memoryview(payload), format, None)


def test_decode_none_and_functions_get_bytes():
    sample = sample_of(b"abc", decode=None)
    assert (type(sample), sample) == (bytes, b"abc")
    assert sample_of(b"abc", decode=lambda record: (type(record), record)) == (bytes, b"abc")


@pytest.mark.parametrize(
    ("label", "expected"),
    [(3, 3), (-1, -1), (2**40, 2**40), (1.5, 1.5), (b"cat", b"cat"), ("cat", b"cat")],
)
def test_example_label_is_a_python_object(label, expected):
    payload = example.encode({"image/encoded": PNG, "image/class/label": label})
    found = sample_of(payload)[1]
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("label", "format", "dtype"),
    [
        ([1, 2], "tfrecord", "int64"),
        ([0.5, 2], "tfrecord", "float32"),
        ([3], "recordio", "float32"),
        ([3, 4.5], "recordio", "float32"),
        (3, "recordio", float),
    ],
)
def test_labels_are_arrays(label, format, dtype):
    found = sample_of(payload(format, PNG, label), format)[1]
    if dtype is float:
        assert (type(found), found) == (float, label)
    else:
        assert (found.dtype, found.tolist()) == (np.dtype(dtype), label)


@pytest.mark.parametrize("content", [PNG, npy(PHOTO)])
def test_image_may_be_written_into(content):
    """A raw one as well, which lies in the file."""
    image, _ = sample_of(irheader.pack(0, 0, content), "recordio")
    np.testing.assert_array_equal(image, PHOTO)
    assert image.flags.writeable
    image, label = sample_of(irheader.pack(4, 0, content), "recordio", ImageDecoder(3))
    assert (image.shape, label) == ((3, 3, 3), 4.0)


@pytest.mark.parametrize(
    "fields",
    [{"image": "jpeg", "label": "class"}, {"image/encoded": "jpeg", "image/class/label": "class"}],
)
@pytest.mark.parametrize("decode", ["image", ImageDecoder()])
def test_fields_name_image_and_label(fields, decode):
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
def test_example_gives_all_features(fields, expected):
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
def test_missing_feature_is_named(decode, fields, missing):
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
def test_no_labelled_image_is_an_error(payload, format, message, decode):
    with pytest.raises(ContentError, match=message):
        sample_of(payload, format, decode)


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
def test_record_suggests_how_to_decode_it(payload, format, decode):
    assert guessed(memoryview(payload), format) == decode
