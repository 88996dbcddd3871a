"""Batches of images and arrays in record files: each row is its sample, each error its record's."""

from __future__ import annotations

import gc
import gzip
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ClosedError, Feature, ImageDecoder, RecordError, mix, open_records
from adapters.batch.plan import BatchKey
from adapters.images import kernel
from adapters.records import example, irheader, mapping, recordio
from adapters.records.mapping import NoMapError, living
from adapters.records.storage import MappedFile
from adapters.sources import recordrows
from tests.batches import exact
from tests.fuzzing import examples
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, plan_of
from tests.sources import example_files
from tests.sources.record_files import (
    FORMATS,
    HEADERS,
    SIZE,
    assert_batches_are_samples,
    damage,
    jpeg_file,
    raw,
    raw_file,
    shards,
    write,
    write_images,
)

every_format = pytest.mark.parametrize("format", FORMATS)
with_and_without_kernel = pytest.mark.usefixtures("gatherer")
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)
FLOATS = ImageDecoder(
    16, crop="random", dtype="float32", layout="NCHW", mean=100, std=50, resize_short=20
)
MAGIC = recordio.MAGIC.to_bytes(4, "little")


def every_reader(test: Any) -> Any:
    """Without the kernel, a batch is put together of samples, whatever the format."""
    readers = [("kernel", "recordio"), ("kernel", "tfrecord"), ("numpy", "tfrecord")]
    parametrized = pytest.mark.parametrize(("gatherer", "format"), readers, indirect=["gatherer"])
    return with_and_without_kernel(parametrized(test))


def jpegs() -> list[bytes]:
    return [encoded(picture(20 + n, 50 - n), "JPEG") for n in range(SIZE)]


def pixels() -> list[bytes]:
    return [npy(picture(20 + n, 50 - n)) for n in range(SIZE)]


def arrays(shape: tuple[int, ...] = (4, 5, 3), dtype: str = "u1") -> list[bytes]:
    return list(map(npy, raw(SIZE, shape, dtype)))


def with_magic() -> list[bytes]:
    """JPEGs that RecordIO has to cut: its magic number in a comment, at multiples of 4."""
    comment = b"x".join([MAGIC] * 5)
    segment = b"\xff\xfe" + (2 + len(comment)).to_bytes(2, "big") + comment
    return [content[:2] + segment + content[2:] for content in jpegs()]


CONTENTS: dict[str, tuple[Any, Any]] = {
    "images": (jpegs, ImageDecoder(8)),
    "random crops": (jpegs, RANDOM),
    "floats, channels first": (jpegs, FLOATS),
    "raw pictures": (pixels, RANDOM),
    "raw pictures as floats": (pixels, FLOATS),
    "images in parts": (with_magic, ImageDecoder(8)),
    "arrays": (arrays, "image"),
    "arrays of floats": (lambda: arrays((2, 2, 2, 2), "<f4"), "image"),
    "arrays in parts": (lambda: [npy(np.frombuffer(MAGIC * 4, "u1"))] * SIZE, "image"),
}
LABELS: dict[str, list[Any]] = {
    "one": [n % 100 for n in range(SIZE)],
    "floats": [n / 4 for n in range(SIZE)],
    "seventeen": [np.arange(17, dtype=np.float32) + n for n in range(SIZE)],
    "a list of one": [[n / 2] for n in range(SIZE)],
    "two bytes": [200 + n for n in range(SIZE)],
    "ten bytes": [-n - 1 for n in range(SIZE)],
}


@every_reader
@pytest.mark.parametrize("name", CONTENTS)
def test_batches_are_their_samples(tmp_path, format, name):
    contents, decode = CONTENTS[name]
    path = write_images(tmp_path / "a", format, contents())
    assert_batches_are_samples(open_records(path, decode=decode), 4)


@with_and_without_kernel
@every_format
@pytest.mark.parametrize(("contents", "decode"), [(arrays, "image"), (jpegs, ImageDecoder(8))])
def test_labels_of_batches_are_those_of_samples(tmp_path, format, contents, decode):
    for name, labels in LABELS.items():
        source = open_records(
            write_images(tmp_path / name, format, contents(), labels), decode=decode
        )
        found = batch_of(plan_of(source, SIZE))[1]
        expected = np.array(labels, found.dtype)
        np.testing.assert_array_equal(found, expected.reshape(found.shape))
        assert_batches_are_samples(source, 4)


@pytest.mark.parametrize("decode", ["image", ImageDecoder(8)])
def test_labels_of_text_may_be_of_any_length(tmp_path, decode):
    path = raw_file(tmp_path, "tfrecord", raw(3), ["cat", "horse", "cow"])
    batch = batch_of(plan_of(open_records(path, decode=decode), 3))
    assert list(batch[1]) == [b"cat", b"horse", b"cow"]


# --- several files ---


@every_reader
def test_batches_of_many_files_are_their_samples(tmp_path, format):
    """An empty one among them, and a compressed one; parts of them, mixed."""
    paths = shards(tmp_path, format)
    if format == "tfrecord":
        paths[3].write_bytes(gzip.compress(paths[3].read_bytes()))
    whole: Any = open_records(paths, format=format, decode=HEADERS)
    assert whole[:][7]["label"] == 7
    odd, even = whole.select(range(1, 45, 2)), whole.select(range(0, 45, 2)[::-1])
    for source in (whole, mix([odd, even, whole])):
        assert_batches_are_samples(source)


@with_and_without_kernel
@pytest.mark.parametrize(("contents", "decode"), [(arrays, "image"), (jpegs, ImageDecoder(8))])
def test_batches_of_both_formats_are_their_samples(tmp_path, contents, decode):
    """The first file's label says what all labels are: a float here."""
    paths = [
        write_images(tmp_path / f"{n}", FORMATS[n % 2], contents()[n : n + 4], range(n, n + 4))
        for n in range(4)
    ]
    source: Any = open_records(paths, decode=decode)
    images, labels = batch_of(plan_of(source, 16))
    assert exact(labels) == exact(np.array([n + m for n in range(4) for m in range(4)], "f8"))
    np.testing.assert_array_equal(images, [image for image, _ in source])


@pytest.mark.parametrize("limit", ["maps", "room"])
def test_batches_of_more_files_than_can_be_mapped(tmp_path, monkeypatch, limit):
    def no_room(*_: Any, **__: Any) -> Any:
        raise NoMapError(12, "no room")

    if limit == "maps":
        monkeypatch.setattr(recordrows, "_MOST_FILES", 2)
    else:
        monkeypatch.setattr(MappedFile, "whole_view", no_room)
    paths = shards(tmp_path, "recordio")
    assert_batches_are_samples(open_records(paths, format="recordio", decode=HEADERS))


@with_and_without_kernel
def test_record_does_not_reach_into_the_next_file(tmp_path):
    paths, longer = shards(tmp_path, "recordio"), 24 + 4096
    spec = {"image": Feature("uint8", (longer,), stored="raw"), "label": Feature("float32")}
    source = open_records(paths[:2], decode=spec)
    # Once it is open, the first file's last record says that it has the gap and the next file, too.
    content, status = bytearray(paths[0].read_bytes()), paths[0].stat()
    last = len(content) // 5 * 4
    content[last + 4 : last + 8] = struct.pack("<I", irheader.HEADER.size + longer)
    paths[0].write_bytes(content)
    os.utime(paths[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(RecordError, match=r"0\.recordio, record 4"):
        batch_of(plan_of(source, 1), 0, 4)


# --- damage ---


def damaged_file(folder: Path, format: str, contents: list[bytes], record: int) -> Path:
    """Of which a record holds no whole image, but as many bytes."""
    contents[record] = bytes(9) + contents[record][9:]
    return write_images(folder / "bad", format, contents)


SPOILT = pytest.mark.parametrize(
    ("contents", "decode"),
    [(jpegs, ImageDecoder(8)), (jpegs, RANDOM), (pixels, RANDOM), (arrays, "image")],
    ids=["images", "random crops", "raw pictures", "arrays"],
)


@every_reader
@SPOILT
def test_damaged_record_is_named_each_time(tmp_path, format, contents, decode):
    good = write_images(tmp_path / "good", format, contents())
    bad = damaged_file(tmp_path, format, contents(), 4)
    begin = write_images(tmp_path / "begin", format, contents()[:4]).stat().st_size
    source = open_records([good, bad], decode=decode)
    plan = plan_of(source, SIZE)
    for _ in range(2):
        batch_of(plan, 0, 0)
        with pytest.raises(RecordError, match=rf"{bad}, record 4, byte {begin}: expected"):
            batch_of(plan, 0, 1)
    with pytest.raises(RecordError, match=f"bad, record 4, byte {begin}: expected"):
        source.sample(SIZE + 4)
    assert source.sample(SIZE + 5)[1] == 5


@every_format
@SPOILT
@pytest.mark.parametrize("record", [0, 4, SIZE - 1])
def test_skip_takes_the_next_record_in_its_place(tmp_path, format, contents, decode, record):
    good = write_images(tmp_path / "good", format, contents())
    bad = damaged_file(tmp_path, format, contents(), record)
    whole, skipping = (
        plan_of(open_records(each, decode=decode), SIZE, on_error="skip") for each in (good, bad)
    )
    expected = np.where(np.arange(SIZE) == record, (record + 1) % SIZE, np.arange(SIZE))
    done = skipping.batch(BatchKey(2, 0), np.empty)
    assert exact(done.batch) == exact(tuple(a[expected] for a in batch_of(whole, 2)))
    assert done.skipped == 1


@every_format
def test_on_error_answers_for_a_damaged_record(tmp_path, format):
    source = open_records(damaged_file(tmp_path, format, arrays(), 1), decode="image")
    answer = np.full((4, 5, 3), 9, np.uint8), -5
    found, labels = batch_of(plan_of(source, SIZE, on_error=lambda *_: answer))
    np.testing.assert_array_equal(found, np.stack([raw()[0], answer[0], *raw()[2:]]))
    assert labels.tolist() == [0, -5, *range(2, SIZE)]
    for wrong, message in [
        ((answer[0][:2, :2, 0], 0), r"\(uint8\(4, 5, 3\), .*, got \(uint8\(2, 2\), "),
        (answer[0], r".*, got uint8\(4, 5, 3\)"),
        ((np.full((4, 5, 3), 0.7), 0), r".*, got \(float64\(4, 5, 3\), "),
    ]:
        with pytest.raises(ValueError, match=f"a sample like the others, {message}"):
            batch_of(plan_of(source, SIZE, on_error=lambda *_, wrong=wrong: wrong))


def test_damaged_header_of_the_first_record_says_not_what_labels_are(tmp_path):
    """It says that one label follows, which is the beginning of the image."""
    path = jpeg_file(tmp_path, "recordio")
    damage(path, 8, 1)
    source = open_records(path, decode=ImageDecoder(8))
    done = plan_of(source, 4, on_error="skip").batch(BatchKey(0, 0), np.empty)
    assert (done.batch[1].tolist(), done.skipped) == ([1.0, 1.0, 2.0, 3.0], 1)


def test_flipped_bit_of_tfrecord_is_noticed_unless_unverified(tmp_path):
    """Each of the places with ``--full``."""
    path = raw_file(tmp_path, "tfrecord", raw(3))
    size = path.stat().st_size
    for place in range(0, size, size // examples(size) | 1):
        damage(path, place, 1 << place % 8)
        with pytest.raises(RecordError), open_records(path, decode="image") as source:
            batch_of(plan_of(source, 3))
        damage(path, place, 1 << place % 8)
    damage(path, size - 1)
    with open_records(path, decode="image", verify=False) as source:
        np.testing.assert_array_equal(batch_of(plan_of(source, 3))[0], np.stack(raw(3)))


# --- records that are unlike the others ---


USUAL = ("tfrecord", raw(3, (4, 6)), [0, 1, 2])
# As long as the others: a label more, and four pixels fewer.
LABEL_MORE = [np.zeros(8, "u1")] * 3 + [np.zeros(4, "u1")], [[1.0]] * 3 + [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([USUAL, ("tfrecord", raw(1, (6, 4)), [3])], r"\(4, 6\), found uint8 \(6, 4\)"),
        ([USUAL, ("tfrecord", raw(1, (4, 6), "i1"), [3])], r"uint8 \(4, 6\), found int8 "),
        ([USUAL, ("recordio", raw(1, (5, 5)), [3])], r"\(4, 6\), found uint8 \(5, 5\)"),
        ([("recordio", *LABEL_MORE)], r"record 3, .* label of shape \(1,\), found shape"),
        ([USUAL, ("tfrecord", raw(297, (4, 6)), [1.5] + [0] * 296)], r"Feature\(.*, found 1\.5"),
        ([USUAL, ("recordio", raw(1, (4, 6)), [[1, 2]])], "1, record 0, .*expected a label"),
    ],
    ids=["shape", "dtype", "shape in the other format", "label more", "float", "labels"],
)
def test_record_unlike_the_first_is_named(tmp_path, files, said):
    paths = [
        write_images(tmp_path / str(n), format, map(npy, images), labels)
        for n, (format, images, labels) in enumerate(files)
    ]
    source = open_records(paths, decode="image")
    batch_of(plan_of(source, 3))
    with pytest.raises(RecordError, match=said):
        batch_of(plan_of(source, 4))


def test_text_among_labels_of_numbers_is_named(tmp_path):
    records = [
        example.encode({"image/encoded": npy(image), "image/class/label": label})
        for image, label in zip(raw(2, (4, 6)), [0, b"7"])
    ]
    source = open_records(write(tmp_path / "a.tfrecord", "tfrecord", records), decode="image")
    with pytest.raises(RecordError, match=r"record 1, .*expected a label of int64"):
        batch_of(plan_of(source, 2))


def test_labels_are_floats_if_one_is_a_fraction(tmp_path):
    """As in files of an earlier pack, which stored whole ones as integers."""
    paths = [
        write_images(tmp_path / str(n), "tfrecord", map(npy, raw(3, (4, 6))), labels)
        for n, labels in enumerate([[0, 1, 2], [1.5, 3, 4]])
    ]
    for decode in ("image", ImageDecoder(4), {"image/class/label": Feature("float64")}):
        with open_records(paths, decode=decode) as source:
            for index, expected in enumerate([[0, 1, 2], [1.5, 3, 4]]):
                batch = batch_of(plan_of(source, 3), 0, index)
                found = batch["image/class/label"] if isinstance(batch, dict) else batch[1]
                np.testing.assert_array_equal(found, np.array(expected, "f8"), strict=True)


@every_format
def test_arrays_of_several_sizes_are_samples(tmp_path, format):
    path = raw_file(tmp_path, format, [np.zeros((n + 1, 2), np.uint8) for n in range(3)])
    with open_records(path, decode="image") as source:
        assert [source[n][0].shape for n in range(3)] == [(1, 2), (2, 2), (3, 2)]
    arrays = [*raw(2, (4, 6)), *raw(2, (6, 4)), *raw(1, (4, 6))]
    with open_records(raw_file(tmp_path, format, arrays), decode="image") as source:
        done = plan_of(source, 5, on_error="skip").batch(BatchKey(0, 0), np.empty)
    assert (done.batch[1].tolist(), done.skipped) == ([0, 1, 4, 4, 4], 2)


@every_format
def test_encodings_may_stand_side_by_side(tmp_path, format):
    one = write_images(tmp_path / "one", format, map(npy, raw(6)[:3]))
    other = write_images(tmp_path / "other", format, [encoded(a, "PNG") for a in raw(6)[3:]])
    for decode in ("image", ImageDecoder((4, 5))):
        source = open_records([one, other], decode=decode)
        np.testing.assert_array_equal(batch_of(plan_of(source, 6))[0], np.stack(raw(6)))


@pytest.mark.parametrize("decode", ["image", ImageDecoder(3)])
@pytest.mark.parametrize("on_error", ["skip", lambda error, number: (np.zeros((3, 3, 3)), 0)])
def test_whole_record_with_other_labels_is_not_replaced(decode, on_error, tmp_path):
    """Nothing is wrong with it: half of a detection data set would be left out in silence."""
    image = encoded(picture(3, 3), "JPEG")
    records = [irheader.pack(label, 0, image) for label in ([1.0], [1.0, 2.0, 3.0], [1.0])]
    source = open_records(write(tmp_path / "a.rec", "recordio", records), decode=decode)
    with pytest.raises((RecordError, ValueError), match=r"collate|equal shapes"):
        batch_of(plan_of(source, 3, on_error=on_error))


# --- files that are closed ---

OPEN = pytest.mark.parametrize(
    ("contents", "decode"), [(jpegs, RANDOM), (arrays, "image")], ids=["images", "arrays"]
)


@every_reader
@OPEN
def test_source_that_is_closed_lets_go_of_its_files(tmp_path, format, contents, decode):
    gc.collect()
    before = living()
    paths = [write_images(tmp_path / f"{n}", format, contents()) for n in range(3)]
    source, other = open_records(paths[:2], decode=decode), open_records(paths[2], decode=decode)
    whole = mix([source, other])
    plans = [plan_of(each, 20, shuffle=True) for each in (source, whole)]
    for plan in plans:
        batch_of(plan)
    assert living() > before
    source.close()
    with pytest.raises(ClosedError):
        batch_of(plans[1])  # A part of it is closed.
    other.close()
    del plans[1], whole, plan
    assert living() == before
    for plan in plans:
        with pytest.raises(ClosedError):
            batch_of(plan)
    assert living() == before


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built, or switched off")
@every_format
def test_file_closed_while_images_are_decoded_stays_mapped(format, tmp_path, monkeypatch):
    source = open_records(jpeg_file(tmp_path, format), decode=ImageDecoder(8))
    plan, seen = plan_of(source, SIZE), []
    first, decode = batch_of(plan), kernel.load().decode
    gc.collect()  # What other tests have left.
    before = mapping.living()

    def closing(buffers: Any, *rest: Any) -> bytes:
        source.close()
        gc.collect()
        seen.append(mapping.living())
        return decode(buffers, *rest)

    monkeypatch.setattr(kernel.load(), "decode", closing)
    assert exact(batch_of(plan)) == exact(first)
    gc.collect()
    assert (seen, mapping.living()) == ([before], before - 1)


# --- files that somebody truncates, replaces or removes while they are read ---

DECODERS: dict[str, Any] = {
    "numbers": {"x": Feature("float32", (2,)), "n": Feature("int64")},
    "images": {"image": ImageDecoder(16), "n": Feature("int64")},
    "bytes": None,
}
MESSAGE = r"a\.tfrecord.*changed since, of 4096 bytes"


def opened(folder: Path, decode: str) -> Any:
    """A source of 200 records of noise, 4 KB each, with two numbers."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    features = {"image": [encoded(noise, "JPEG")], "x": [0.5, 1.0]}
    payloads = [example_files.encoded({**features, "n": [n]}) for n in range(200)]
    return open_records(example_files.file_of(folder, payloads), decode=DECODERS[decode])


def read(source: Any, index: int) -> Any:
    """Read a batch of four, and its first sample by itself."""
    if isinstance(source[0], bytes):
        return [source[number] for number in range(4 * index, 4 * index + 4)]
    batch = batch_of(plan_of(source), index=index)
    first = source[4 * index]
    for name, values in batch.items():
        np.testing.assert_array_equal(values[0], first[name])
    return batch


@pytest.mark.parametrize("decode", DECODERS)
def test_truncated_file_is_an_error(decode, tmp_path):
    """It isn't the end of the process, which a map of the file would be."""
    with opened(tmp_path, decode) as source:
        read(source, 0)
        os.truncate(tmp_path / "a.tfrecord", 4096)
        for take in (lambda: read(source, 40), lambda: source[190]):
            with pytest.raises(RecordError, match=MESSAGE):
                take()


@pytest.mark.parametrize("decode", DECODERS)
def test_file_with_another_name_is_read_on(decode, tmp_path):
    """Another file under its name isn't read."""
    with opened(tmp_path, decode) as source:
        before = read(source, 40)
        os.unlink(tmp_path / "a.tfrecord")
        np.testing.assert_equal(read(source, 40), before)
        (tmp_path / "a.tfrecord").write_bytes(b"short")
        np.testing.assert_equal(read(source, 40), before)


def test_batch_whose_images_are_truncated_meanwhile(tmp_path, monkeypatch):
    """Images aren't decoded from a map of the file."""
    with opened(tmp_path, "images") as source:
        expected = read(source, 40)
        decode = ImageDecoder.decode_rows

        def truncating(*arguments: Any, **options: Any) -> Any:
            os.truncate(tmp_path / "a.tfrecord", 4096)
            return decode(*arguments, **options)

        monkeypatch.setattr(ImageDecoder, "decode_rows", truncating)
        if kernel.load() is None:  # All records of the batch were read before.
            np.testing.assert_equal(batch_of(plan_of(source), index=40), expected)
            return
        with pytest.raises(RecordError, match=MESSAGE):
            batch_of(plan_of(source), index=40)
