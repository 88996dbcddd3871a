"""Raw arrays of one size, gathered without a step in Python for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, open_records, pack
from adapters.batch.key import BatchKey
from adapters.records import example, irheader
from adapters.sources import RecordSource
from tests.batches import exact
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.record_files import (
    FORMATS,
    SIZE,
    damage,
    payload,
    raw,
    raw_file,
    write,
    write_images,
)

every_format = pytest.mark.parametrize("format", FORMATS)
LABELS: dict[str, Any] = {
    "one": [n % 100 for n in range(SIZE)],
    "floats": [n / 4 for n in range(SIZE)],
    "several": [[n, n / 2] for n in range(SIZE)],
    "a list of one": [[n / 2] for n in range(SIZE)],
    "two bytes": [200 + n for n in range(SIZE)],
    "ten bytes": [-n - 1 for n in range(SIZE)],
}


def gathered(source: RecordSource) -> list[bool]:
    """Which records are written into a batch."""
    numbers = np.arange(len(source))
    leaves = source.leaves
    assert leaves is not None
    rows = [np.empty((len(numbers), *shape), dtype) for shape, dtype in leaves]
    failed = {row for row, _ in source.fill(numbers, None, rows)}
    return [number not in failed for number in range(len(numbers))]


def batch_in(paths: Any, size: int, **arguments: Any) -> Any:
    """The first records of these files."""
    with open_records(paths, decode="image") as source:
        return batch_of(plan_of(source, size, **arguments))


def assert_as_one_by_one(source: RecordSource, batch_size: int = SIZE) -> None:
    batches = epoch_of(plan_of(source, batch_size, shuffle=True))
    numbers = plan_of(source, batch_size, shuffle=True).order
    for index, (arrays, labels) in enumerate(batches):
        samples = [source[n] for n in numbers.batch(0, index).tolist()]
        expected = np.stack([array for array, _ in samples]), np.array([n for _, n in samples])
        assert exact((arrays, labels)) == exact(expected)


@every_format
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("dtype", ["u1", "<f4"])
def test_a_batch_is_what_its_records_are_one_by_one(tmp_path, format, labels, dtype):
    with open_records(
        raw_file(tmp_path, format, raw(dtype=dtype), LABELS[labels]), decode="image"
    ) as source:
        assert gathered(source) == [True] * SIZE
        assert_as_one_by_one(source, 4)


@every_format
@pytest.mark.parametrize("shape", [(28, 28), (3,), (1, 1, 1), (2, 2, 2, 2)])
def test_arrays_may_have_any_shape(tmp_path, format, shape):
    with open_records(raw_file(tmp_path, format, raw(shape=shape)), decode="image") as source:
        assert gathered(source) == [True] * SIZE
        assert_as_one_by_one(source)


@every_format
def test_what_is_gathered_is_what_was_written(tmp_path, format):
    with open_records(raw_file(tmp_path, format), decode="image") as source:
        arrays, labels = batch_of(plan_of(source, SIZE))
    np.testing.assert_array_equal(arrays, np.stack(raw()))
    assert labels.tolist() == list(range(SIZE))


@every_format
def test_several_files_are_gathered_from_in_any_order(tmp_path, format):
    paths = [
        write_images(tmp_path / name, format, map(npy, raw(SIZE)[part]), range(SIZE)[part])
        for name, part in [("a", slice(4)), ("b", slice(4, 5)), ("c", slice(5, SIZE))]
    ]
    with open_records(paths, decode="image") as source:
        assert gathered(source) == [True] * SIZE
        assert_as_one_by_one(source, 4)


def test_both_formats_may_be_gathered_from_at_once(tmp_path):
    """The label of the first file says what all labels are: a float here."""
    paths = [raw_file(tmp_path, format) for format in FORMATS]
    with open_records(paths, decode="image") as source:
        assert gathered(source) == [True] * 2 * SIZE
        arrays, labels = batch_of(plan_of(source, 2 * SIZE))
    np.testing.assert_array_equal(arrays, np.stack(raw() + raw()))
    assert exact(labels) == exact(np.array([*range(SIZE), *range(SIZE)], np.float64))


def _unpacked_floats(labels: list[float]) -> bytes:
    """A FloatList as protobuf's older dialect has it: a tag before each value."""
    values = b"".join(b"\x0d" + np.float32(label).tobytes() for label in labels)
    feature = b"\x12" + bytes([len(values)]) + values
    entry = b"\x0a\x11image/class/label\x12" + bytes([len(feature)]) + feature
    return b"\x0a" + bytes([len(entry)]) + entry


@pytest.mark.parametrize("count", [1, 2, 3])
def test_floats_that_are_not_packed_are_read_right(tmp_path, count):
    labels = [[n + m / 4 for m in range(count)] for n in range(SIZE)]
    payloads = []
    for array, own in zip(raw(), labels):
        image = example.encode({"image/encoded": npy(array)})
        # Features merge: a second one adds its entries to the first's.
        entries = _unpacked_floats(own)
        payloads.append(image + b"\x0a" + bytes([len(entries)]) + entries)
    path = write(tmp_path / "a.tfrecord", "tfrecord", payloads)
    with open_records(path, decode="image") as source:
        assert batch_of(plan_of(source, SIZE))[1].reshape(SIZE, count).tolist() == labels


@every_format
def test_arrays_of_several_sizes_are_read_one_by_one(tmp_path, format):
    arrays = [np.zeros((n + 1, 2), np.uint8) for n in range(3)]
    with open_records(raw_file(tmp_path, format, arrays), decode="image") as source:
        assert source.leaves is None
        assert [source[n][0].shape for n in range(3)] == [(1, 2), (2, 2), (3, 2)]


@every_format
@pytest.mark.parametrize(
    ("other", "found"), [(raw(1, (6, 4)), r"uint8 \(6, 4\)"), (raw(1, (4, 6), "i1"), "int8 ")]
)
def test_a_record_as_long_that_is_laid_out_otherwise_is_refused(tmp_path, format, other, found):
    path = raw_file(tmp_path, format, [*raw(3, (4, 6)), *other])
    with pytest.raises(RecordError, match=rf"record 3, .*uint8 \(4, 6\), found {found}"):
        batch_in(path, 4)


def test_a_record_as_long_with_its_features_in_another_order_is_read_right(tmp_path):
    array = raw(1)[0]
    entries = [
        example.encode({name: value})
        for name, value in [("image/encoded", npy(array)), ("image/class/label", 7)]
    ]
    payloads = [entries[0] + entries[1], entries[1] + entries[0]]
    path = write(tmp_path / "a.tfrecord", "tfrecord", payloads)
    with open_records(path, decode="image") as source:
        arrays, labels = batch_of(plan_of(source, 2))
    assert labels.tolist() == [7, 7]
    np.testing.assert_array_equal(arrays, [array, array])


def test_a_record_as_long_with_another_number_of_labels_is_refused(tmp_path):
    """A label more, four pixels fewer."""
    payloads = [
        irheader.pack([1.0], 0, npy(np.zeros(8, np.uint8))),
        irheader.pack([1.0, 2.0], 0, npy(np.zeros(4, np.uint8))),
    ]
    path = write(tmp_path / "a.rec", "recordio", payloads)
    with pytest.raises(RecordError, match=r"record 1, .* label of shape \(1,\), found shape"):
        batch_in(path, 2)


@every_format
def test_a_file_with_arrays_of_another_shape_is_refused_by_its_name(tmp_path, format):
    one = write_images(tmp_path / "one", format, map(npy, raw(3, (4, 6))))
    other = write_images(tmp_path / "other", format, map(npy, raw(3, (5, 5))))
    with pytest.raises(RecordError, match=r"other, record 0, .*\(4, 6\), found uint8 \(5, 5\)"):
        batch_in([one, other], 6)


@every_format
def test_a_file_of_other_encodings_beside_raw_ones_is_read_right(tmp_path, format):
    arrays = raw(6)
    one = write_images(tmp_path / "one", format, map(npy, arrays[:3]))
    other = write_images(tmp_path / "other", format, [encoded(a, "PNG") for a in arrays[3:]])
    with open_records([one, other], decode="image") as source:
        np.testing.assert_array_equal(batch_of(plan_of(source, 6))[0], np.stack(arrays))


def test_records_in_parts_are_read_right(tmp_path):
    """A RecordIO payload with the magic number in it is cut there."""
    magic = np.frombuffer((0xCED7230A).to_bytes(4, "little"), np.uint8)
    arrays = [np.tile(magic, 4) for _ in range(3)]
    with open_records(raw_file(tmp_path, "recordio", arrays), decode="image") as source:
        arrays_read, labels = batch_of(plan_of(source, 3))
    np.testing.assert_array_equal(arrays_read, np.stack(arrays))
    assert labels.tolist() == [0, 1, 2]


def test_labels_of_text_may_be_of_any_length(tmp_path):
    path = raw_file(tmp_path, "tfrecord", raw(3), ["cat", "dog", "cow"])
    with open_records(path, decode="image") as source:
        assert list(batch_of(plan_of(source, 3))[1]) == [b"cat", b"dog", b"cow"]


# --- damage ---


def outcome(path: Path) -> Any:
    """A batch of the whole file, or that it was refused."""
    try:
        return batch_in(path, 3)
    except RecordError:
        return None


def test_a_flipped_bit_in_recordio_is_noticed_or_changes_one_value(tmp_path):
    """There is no checksum: what is neither structure nor a value to us may change unseen."""
    path = raw_file(tmp_path, "recordio", raw(3))
    arrays, labels = outcome(path)
    stride = path.stat().st_size // 3
    begin, noticed = stride - arrays[0].size, 0
    for place in range(path.stat().st_size):
        record, at = divmod(place, stride)
        mask = 1 << place % 8
        damage(path, place, mask)
        found = outcome(path)
        damage(path, place, mask)
        expected = arrays.copy(), labels.astype(np.float32)
        if at >= begin:
            expected[0].reshape(3, -1)[record, at - begin] ^= mask
        elif 12 <= at < 16:
            expected[1].view(np.uint8)[4 * record + at - 12] ^= mask
        elif found is None:
            noticed += 1
            continue
        assert exact(found) == exact((expected[0], expected[1].astype(np.float64))), place
    assert noticed > 3 * 100


def test_a_flipped_bit_in_tfrecord_is_noticed(tmp_path):
    path = raw_file(tmp_path, "tfrecord", raw(3))
    for place in range(path.stat().st_size):
        damage(path, place, 1 << place % 8)
        assert outcome(path) is None, place
        damage(path, place, 1 << place % 8)


def test_unverified_records_are_not_checked(tmp_path):
    path = raw_file(tmp_path, "tfrecord", raw(3))
    damage(path, path.stat().st_size - 1)
    with open_records(path, decode="image", verify=False) as source:
        np.testing.assert_array_equal(batch_of(plan_of(source, 3))[0], np.stack(raw(3)))


@pytest.mark.parametrize("record", [0, 1, 10])
@pytest.mark.parametrize("place", [40, 150, -1], ids=["header", "pixels", "CRC"])
def test_a_damaged_record_leaves_the_others_gathered(tmp_path, record, place):
    path = raw_file(tmp_path, "tfrecord")
    stride = path.stat().st_size // SIZE
    damage(path, record * stride + place % stride)
    with open_records(path, decode="image") as source:
        assert gathered(source) == [number != record for number in range(SIZE)]


@every_format
@pytest.mark.parametrize("record", [0, 1, 10])
def test_skip_takes_the_next_record_in_the_place_of_a_damaged_one(tmp_path, format, record):
    path = raw_file(tmp_path, format)
    damage(path, record * (path.stat().st_size // SIZE) + 70, 255)
    with open_records(path, decode="image") as source:
        plan = plan_of(source, SIZE, on_error="skip")
        done = plan.batch(BatchKey(0, 0), lambda shape, dtype: np.empty(shape, dtype))
    expected = [(record + 1) % SIZE if n == record else n for n in range(SIZE)]
    np.testing.assert_array_equal(done.batch[0], np.stack(raw())[expected])
    assert (done.batch[1].tolist(), done.skipped) == (expected, 1)


@every_format
def test_skip_passes_over_records_of_another_shape(tmp_path, format):
    arrays = [*raw(2, (4, 6)), *raw(2, (6, 4)), *raw(1, (4, 6))]
    with open_records(raw_file(tmp_path, format, arrays), decode="image") as source:
        done = plan_of(source, 5, on_error="skip").batch(BatchKey(0, 0), np.empty)
    assert (done.batch[1].tolist(), done.skipped) == ([0, 1, 4, 4, 4], 2)


@every_format
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            (np.zeros((2, 2), np.uint8), 0),
            r"a sample like the others, with \(4, 5, 3\) .* \(2, 2\)",
        ),
        (np.zeros((4, 5, 3), np.uint8), r"a sample like the others, \(array, label\), got 1"),
        ((np.full((4, 5, 3), 0.7), 0), r"a sample like the others, of uint8 .* got float64"),
    ],
)
def test_an_answer_that_fits_no_row_is_refused(tmp_path, format, answer, message):
    path = raw_file(tmp_path, format)
    damage(path, 70)
    with pytest.raises(ValueError, match=message):
        batch_in(path, SIZE, on_error=lambda *_: answer)


@every_format
def test_a_function_answers_for_a_damaged_record(tmp_path, format):
    path = raw_file(tmp_path, format)
    damage(path, 70)
    answer = np.full((4, 5, 3), 9, np.uint8), -5
    with open_records(path, decode="image") as source:
        arrays, labels = batch_of(plan_of(source, SIZE, on_error=lambda *_: answer))
    np.testing.assert_array_equal(arrays, np.stack([answer[0], *raw()[1:]]))
    assert labels.tolist() == [-5, *range(1, SIZE)]


@every_format
def test_a_record_of_any_payload_is_refused_if_it_holds_no_image(tmp_path, format):
    path = write(tmp_path / "a", format, [payload(format, b"", 1)])
    with pytest.raises(RecordError, match="record 0, byte 0: expected an image, found 0 bytes"):
        batch_in(path, 1)


def test_labels_of_another_kind_are_not_taken_for_the_first_files(tmp_path):
    """Float labels of the second file, or several of a record, are no integers."""
    first = raw_file(tmp_path, "tfrecord", labels=range(SIZE))
    for name, labels in {"floats": [n + 0.75 for n in range(SIZE)], "two": [[1, 2]] * SIZE}.items():
        (tmp_path / name).mkdir()
        second = raw_file(tmp_path / name, "recordio", labels=labels)
        with open_records([first, second], decode="image") as source:
            assert gathered(source) == [True] * SIZE + [False] * SIZE
            with pytest.raises(RecordError, match=r"raw\.rec, record 0, .*expected a label"):
                batch_of(plan_of(source, 1), 0, SIZE)


@pytest.mark.parametrize("count", [3, 300])
def test_what_pack_writes_raw_is_gathered(tmp_path, count):
    """Ids and labels of more than seven bits, too."""
    images = np.random.default_rng(0).integers(0, 256, (count, 5, 4), np.uint8)
    labels = [n * 7 for n in range(count)]
    pack((images, labels), tmp_path / "p.tfrecord", format="tfrecord", encoding="raw")
    with open_records(tmp_path / "p.tfrecord", decode="image") as source:
        assert gathered(source) == [True] * count
        found, numbers = batch_of(plan_of(source, count))
    np.testing.assert_array_equal(found, images)
    assert numbers.tolist() == labels


@pytest.mark.parametrize("decode", ["image", ImageDecoder(3)])
@pytest.mark.parametrize("on_error", ["skip", lambda error, number: (np.zeros((3, 3, 3)), 0)])
def test_a_whole_record_with_other_labels_is_not_replaced(decode, on_error, tmp_path):
    """Nothing is wrong with it: half of a detection data set would be left out in silence."""
    payloads = [
        irheader.pack(label, 0, encoded(picture(3, 3), "JPEG"))
        for label in ([1.0], [1.0, 2.0, 3.0], [1.0])
    ]
    path = write(tmp_path / "a.rec", "recordio", payloads)
    with (
        open_records(path, decode=decode) as source,
        pytest.raises((RecordError, ValueError), match=r"collate|equal shapes"),
    ):
        batch_of(plan_of(source, 3, on_error=on_error))
