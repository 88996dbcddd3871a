"""``open_records``: record files as a source of samples."""

from __future__ import annotations

import pickle
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, open_records
from adapters.batch.key import BatchKey
from adapters.errors import ClosedError
from adapters.records import example
from adapters.sources import RecordSource, as_source
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, notes_of, plan_of
from tests.sources.record_files import (
    FORMATS,
    SUFFIXES,
    damage,
    jpeg_file,
    raw_file,
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


def offset_of(source: RecordSource, number: int) -> int:
    shard, own = source._files.locate(number)
    return int(shard.offsets[own])


# --- access ---


def test_its_length_is_the_number_of_records(numbers):
    assert len(numbers) == 10


@pytest.mark.parametrize("index", [0, 9, -1, -10, np.int64(3), np.uint8(3), np.int32(-3)])
def test_an_index_gives_a_sample(numbers, index):
    assert numbers[index] == range(10)[index]


@pytest.mark.parametrize(
    "part", [slice(None), slice(2, 5), slice(-3, None), slice(None, None, -4), slice(7, 3)]
)
def test_a_slice_gives_a_list(numbers, part):
    assert numbers[part] == list(range(10))[part]


@pytest.mark.parametrize("index", [10, -11, 2**70])
def test_an_index_out_of_range_is_an_index_error(numbers, index):
    with pytest.raises(IndexError, match=rf"must be in range\(-10, 10\), got {index}"):
        numbers[index]


@pytest.mark.parametrize("index", ["1", 1.0, None, (1, 2)])
@pytest.mark.parametrize("ask", [RecordSource.__getitem__, RecordSource.read])
def test_an_index_of_another_type_is_a_type_error(numbers, ask, index):
    with pytest.raises(TypeError, match="record number must be an integer or a slice, got"):
        ask(numbers, index)


def test_iteration_gives_all_samples_again_and_again(numbers):
    assert [list(numbers), list(numbers)] == [list(range(10))] * 2


def test_several_samples_come_in_the_order_asked(numbers):
    assert numbers.__getitems__([5, 0, -1, 5]) == [5, 0, 9, 5]


@pytest.mark.parametrize("index", [3, -7, np.int64(3)])
def test_read_gives_the_raw_bytes(numbers, index):
    record = numbers.read(index)
    assert (type(record), record) == (bytes, b"3")


def test_read_refuses_what_is_out_of_range(numbers):
    with pytest.raises(IndexError, match=r"must be in range\(-10, 10\), got 10"):
        numbers.read(10)


@pytest.mark.parametrize(
    "ask", [lambda source: source[0], lambda source: source.read(0), list, lambda s: s[:]]
)
def test_what_is_asked_after_close_is_a_closed_error(numbers, ask):
    with numbers as source:
        assert source is numbers
    with pytest.raises(ClosedError, match="the record files have been closed; open them again"):
        ask(numbers)


@every_format
@pytest.mark.parametrize("decode", ["image", RANDOM])
def test_batches_after_close_are_a_closed_error(tmp_path, format, decode):
    """Those of raw arrays too, which are looked at as one."""
    contents = [npy(picture(16, 16))] * 4
    source = open_records(write_images(tmp_path / "a", format, contents), decode=decode)
    plan = plan_of(source)
    batch_of(plan)
    source.close()
    with pytest.raises(ClosedError, match="the record files have been closed"):
        batch_of(plan)


def test_close_may_be_called_again(numbers):
    numbers.close()
    numbers.close()


def test_what_was_read_stays_after_close(tmp_path):
    source = open_records(raw_file(tmp_path, "recordio"), decode="image")
    image = source[3][0]
    before = image.copy()
    source.close()
    np.testing.assert_array_equal(image, before)


def test_it_travels_to_another_process_without_the_records(tmp_path):
    path = write(tmp_path / "a", "recordio", [bytes(100_000)] * 20)
    source = open_records(path)
    assert source[7] == bytes(100_000)
    travelled = cloudpickle.dumps(source)
    assert len(travelled) < 5000
    assert pickle.loads(travelled)[7] == bytes(100_000)


def test_nothing_is_decoded_before_it_is_asked_for(tmp_path):
    asked: list[bytes] = []
    path = write(tmp_path / "a", "tfrecord", [b"0", b"1", b"2"])
    source = open_records(path, decode=lambda record: asked.append(record) or record)
    assert (len(source), source[1], asked) == (3, b"1", [b"1"])


# --- files ---


@every_format
@pytest.mark.parametrize("as_path", [str, Path])
def test_a_path_may_be_text_or_a_path(tmp_path, format, as_path):
    path = write(tmp_path / "a", format, [b"0"])
    assert open_records(as_path(path))[:] == [b"0"]


def test_files_of_both_formats_are_one_source_in_their_order(tmp_path):
    paths = [
        write(tmp_path / f"{n}", FORMATS[n % 2], [b"%d" % (3 * n + m) for m in range(3)])
        for n in range(4)
    ]
    source = open_records(paths, decode=int)
    assert (len(source), source[:], source[7]) == (12, list(range(12)), 7)


def test_a_glob_takes_its_files_by_name_and_no_index(tmp_path):
    for n in (2, 0, 1):
        write(tmp_path / f"train-{n}.tfrecord", "tfrecord", [b"%d" % n] * 2)
    assert open_records(str(tmp_path / "train-*"), decode=int)[:] == [0, 0, 1, 1, 2, 2]


def test_a_glob_takes_no_manifest(tmp_path):
    write(tmp_path / "train.tfrecord", "tfrecord", [b"1"])
    (tmp_path / "train.json").write_text("{}")
    assert open_records(str(tmp_path / "train*"), decode=int)[:] == [1]


@pytest.mark.parametrize("paths", [None, 3, b"a.rec", [b"a.rec"], [None]])
def test_what_is_no_path_is_named(paths):
    with pytest.raises(TypeError, match=r"^paths must be a path, a glob, or a sequence of these"):
        open_records(paths)


def test_files_without_records_are_passed_over(tmp_path):
    paths = [write(tmp_path / f"{n}", "recordio", [b"%d" % n] * (n % 2)) for n in range(4)]
    assert open_records(paths)[:] == [b"1", b"3"]


def test_an_unknown_format_and_a_word_for_a_truth_are_refused():
    with pytest.raises(TypeError, match=r"verify must be True or False, got 'no'"):
        open_records("a", verify="no")
    with pytest.raises(ValueError, match=r'format must be "auto", "recordio" or .* got'):
        open_records("a", format="rec")


def test_an_unknown_decode_is_refused_before_a_file_is_looked_for():
    with pytest.raises(ValueError, match=r"decode must be None, .* got 'jpeg'"):
        open_records("nowhere", decode="jpeg")


# --- what comes of a path ---


@every_format
def test_a_path_of_images_is_a_source_of_images(tmp_path, format):
    source = as_source(str(jpeg_file(tmp_path, format)))
    assert (source.sample(0)[0].shape, source.sample(3)[1]) == ((20, 50, 3), 3)


def test_a_path_of_other_examples_is_a_source_of_features(tmp_path):
    source = as_source(write(tmp_path / "a", "tfrecord", [example.encode({"a": [1, 2]})]))
    assert source.sample(0)["a"].tolist() == [1, 2]


@every_format
def test_a_path_of_anything_else_is_a_source_of_bytes(tmp_path, format):
    assert as_source(write(tmp_path / "a", format, [b"text"])).sample(0) == b"text"


@every_format
def test_a_path_without_records_is_refused(tmp_path, format):
    with pytest.raises(ValueError, match="source must hold at least one sample, got 0"):
        as_source(write(tmp_path / f"a{SUFFIXES[format]}", format, []))


def test_a_damaged_first_record_does_not_hide_what_the_others_are(tmp_path):
    path = jpeg_file(tmp_path, "tfrecord")
    damage(path, 100)
    assert as_source(path).holds_images


# --- errors ---


@every_format
@pytest.mark.parametrize("decode", ["image", ImageDecoder(8), RANDOM])
@pytest.mark.parametrize("content", [b"", b"text", encoded(picture(9, 9), "JPEG")[:-20]])
def test_a_record_without_a_whole_image_is_named(tmp_path, format, decode, content):
    good = encoded(picture(9, 9), "JPEG")
    files = [
        write_images(tmp_path / "a", format, [good] * 3),
        write_images(tmp_path / "b", format, [good, good, content, good]),
    ]
    source = open_records(files, decode=decode)
    with pytest.raises(RecordError) as caught:
        source[5]
    error = caught.value
    assert (error.file, error.record, error.offset) == (str(files[1]), 2, offset_of(source, 5))
    assert (error.expected, "bytes" in error.found or "damaged" in error.found) == (
        "a JPEG image" if len(content) > 9 else "an image",
        True,
    )


@every_format
@pytest.mark.parametrize("decode", ["image", ImageDecoder(8)])
def test_a_batch_with_a_damaged_image_names_record_and_sample(tmp_path, format, decode):
    contents = [encoded(picture(9, 9), "PNG")] * 5
    contents[3] = contents[3][:-5]
    path = write_images(tmp_path / "a", format, contents)
    with pytest.raises(RecordError, match=f"{path}, record 3, byte .* found one cut short") as info:
        batch_of(plan_of(open_records(path, decode=decode), 5))
    assert notes_of(info.value) == "in sample 3, batch 0 of epoch 0"


def test_of_several_damaged_records_the_first_of_the_batch_is_named(tmp_path):
    path = write_images(tmp_path / "a", "recordio", [b"text"] * 8)
    plan = plan_of(open_records(path, decode=ImageDecoder(8)), 8, shuffle=True)
    with pytest.raises(RecordError) as info:
        plan._filled(
            BatchKey(0, 0), plan.order.batch(0, 0), [np.empty((8, 8, 8, 3), np.uint8), np.empty(8)]
        )
    assert info.value.record == plan.order.batch(0, 0)[0]


def test_a_missing_feature_is_named_with_the_record(tmp_path):
    path = write(tmp_path / "a", "tfrecord", [example.encode({"jpeg": b"", "label": 1})])
    with pytest.raises(RecordError, match=r"record 0, .*'image/encoded'.*features jpeg, label$"):
        open_records(path, decode="image")[0]


def test_an_exception_of_the_users_decode_is_its_own(tmp_path):
    path = write(tmp_path / "a", "recordio", [b"1", b"x"])
    with pytest.raises(ValueError, match="invalid literal for int") as info:
        batch_of(plan_of(open_records(path, decode=int), 2))
    assert "in sample 1" in notes_of(info.value)
