"""Batches of images and arrays in record files: each row is its sample, each error its record's."""

from __future__ import annotations

import gc
import gzip
import os
import pickle
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import cloudpickle
import numpy as np
import pytest

from adapters import ClosedError, Feature, ImageDecoder, RecordError, mix, open_records, pack
from adapters.batch.key import BatchKey
from adapters.images import kernel
from adapters.images import npy as npy_format
from adapters.records import example, irheader, mapping, recordio
from adapters.records.mapping import NoMapError, living
from adapters.records.storage import MappedFile
from adapters.sources import recordrows
from tests.batches import exact
from tests.fuzzing import examples
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, plan_of
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
LIMIT_SECONDS = 20


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
    "raw pictures in the middle": (pixels, ImageDecoder(16, crop="center", resize_short=18)),
    "raw pictures as floats": (pixels, FLOATS),
    "images in parts": (with_magic, ImageDecoder(8)),
    "arrays": (arrays, "image"),
    "arrays of floats": (lambda: arrays(dtype="<f4"), "image"),
    "arrays of one axis": (lambda: arrays((3,)), "image"),
    "arrays of four axes": (lambda: arrays((2, 2, 2, 2)), "image"),
    "arrays in parts": (lambda: [npy(np.frombuffer(MAGIC * 4, "u1"))] * SIZE, "image"),
}
LABELS: dict[str, list[Any]] = {
    "one": [n % 100 for n in range(SIZE)],
    "floats": [n / 4 for n in range(SIZE)],
    "several": [[n, n / 2] for n in range(SIZE)],
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
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize(("contents", "decode"), [(arrays, "image"), (jpegs, ImageDecoder(8))])
def test_labels_of_batches_are_those_of_samples(tmp_path, format, labels, contents, decode):
    path = write_images(tmp_path / "a", format, contents(), LABELS[labels])
    source = open_records(path, decode=decode)
    found = batch_of(plan_of(source, SIZE))[1]
    expected = np.array(LABELS[labels], found.dtype)
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    assert_batches_are_samples(source, 4)


@pytest.mark.parametrize("decode", ["image", ImageDecoder(8)])
def test_labels_of_text_may_be_of_any_length(tmp_path, decode):
    path = raw_file(tmp_path, "tfrecord", raw(3), ["cat", "horse", "cow"])
    batch = batch_of(plan_of(open_records(path, decode=decode), 3))
    assert list(batch[1]) == [b"cat", b"horse", b"cow"]


def test_arrays_are_what_pack_was_given(tmp_path):
    """Ids and labels of more than seven bits, too."""
    images = np.random.default_rng(0).integers(0, 256, (300, 5, 4), np.uint8)
    labels = [n * 7 for n in range(300)]
    pack((images, labels), tmp_path / "p.tfrecord", format="tfrecord", encoding="raw")
    source = open_records(tmp_path / "p.tfrecord", decode="image")
    found, numbers = batch_of(plan_of(source, 300))
    np.testing.assert_array_equal(found, images)
    assert numbers.tolist() == labels


@every_format
def test_images_have_the_crops_of_seed_and_epoch(tmp_path, format):
    """A sample by itself has that of epoch 0 under seed 0; both formats have the same."""
    source = open_records(jpeg_file(tmp_path, format), decode=RANDOM)
    other = open_records(jpeg_file(tmp_path, FORMATS[format == FORMATS[0]]), decode=RANDOM)
    first, *more = (
        batch_of(plan_of(source, SIZE, seed=seed), epoch)[0]
        for seed, epoch in [(0, 0), (0, 1), (1, 0)]
    )
    assert len({each.tobytes() for each in (first, *more)}) == 3
    np.testing.assert_array_equal(first, [source.sample(number)[0] for number in range(SIZE)])
    np.testing.assert_array_equal(first, batch_of(plan_of(other, SIZE))[0])


@every_format
def test_transform_may_change_a_raw_array(tmp_path, format):
    path = raw_file(tmp_path, format)
    before = path.read_bytes()

    def transform(sample: Any) -> Any:
        sample[0][:] = 1
        return sample

    batch = batch_of(plan_of(open_records(path, decode="image"), transform=transform))
    assert (batch[0].min(), path.read_bytes() == before) == (1, True)


# --- several files ---


@every_reader
def test_batches_of_many_files_are_their_samples(tmp_path, format):
    """An empty one among them, and a compressed one."""
    paths = shards(tmp_path, format)
    if format == "tfrecord":
        paths[3].write_bytes(gzip.compress(paths[3].read_bytes()))
    whole: Any = open_records(paths, format=format, decode=HEADERS)
    assert whole[:][7]["label"] == 7
    assert_batches_are_samples(whole)
    assert_batches_are_samples(whole.select(np.arange(len(whole))[::-3]))
    odd, even = whole.select(range(1, 45, 2)), whole.select(range(0, 45, 2))
    mixed: Any = mix([odd, even, whole])
    assert_batches_are_samples(mixed)


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
    assert_batches_are_samples(
        open_records(shards(tmp_path, "recordio"), format="recordio", decode=HEADERS)
    )


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
    """Of which a record holds no whole image."""
    spoilt = contents[record][:-9]
    if spoilt.startswith(npy_format.MAGIC):  # As long as the others.
        spoilt = bytes(9) + contents[record][9:]
    bad = [*contents[:record], spoilt, *contents[record + 1 :]]
    return write_images(folder / "bad", format, bad)


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
    source = open_records([good, bad], decode=decode)
    plan = plan_of(source, SIZE)
    for _ in range(2):
        batch_of(plan, 0, 0)
        with pytest.raises(RecordError, match=rf"{bad}, record 4, byte \d+: expected"):
            batch_of(plan, 0, 1)
    with pytest.raises(RecordError, match="bad, record 4,"):
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
        ((answer[0][:2, :2, 0], 0), r"a sample like the others, with \(4, 5, 3\) .* \(2, 2\)"),
        (answer[0], r"a sample like the others, \(array, label\), got 1"),
        ((np.full((4, 5, 3), 0.7), 0), r"a sample like the others, of uint8 .* got float64"),
    ]:
        with pytest.raises(ValueError, match=message):
            batch_of(plan_of(source, SIZE, on_error=lambda *_, wrong=wrong: wrong))


def test_damaged_header_of_the_first_record_says_not_what_labels_are(tmp_path):
    """It says that one label follows, which is the beginning of the image."""
    path = jpeg_file(tmp_path, "recordio")
    damage(path, 8, 1)
    source = open_records(path, decode=ImageDecoder(8))
    done = plan_of(source, 4, on_error="skip").batch(BatchKey(0, 0), np.empty)
    assert (done.batch[1].tolist(), done.skipped) == ([1.0, 1.0, 2.0, 3.0], 1)


def some_places(path: Path) -> range:
    """Places of bytes; every one of them with ``--full``."""
    size = path.stat().st_size
    return range(0, size, size // examples(size) | 1)


def outcome(path: Path) -> Any:
    """A batch of the whole file, or that it was refused."""
    try:
        with open_records(path, decode="image") as source:
            return batch_of(plan_of(source, 3))
    except RecordError:
        return None


def test_flipped_bit_of_recordio_is_noticed_or_changes_one_value(tmp_path):
    """There is no checksum: what is neither structure nor a value to us may change unseen."""
    path = raw_file(tmp_path, "recordio", raw(3))
    arrays, labels = outcome(path)
    stride = path.stat().st_size // 3
    begin, noticed = stride - arrays[0].size, 0
    for place in some_places(path):
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
    assert noticed > len(some_places(path)) * 0.45


def test_flipped_bit_of_tfrecord_is_noticed_unless_unverified(tmp_path):
    path = raw_file(tmp_path, "tfrecord", raw(3))
    for place in some_places(path):
        damage(path, place, 1 << place % 8)
        assert outcome(path) is None, place
        damage(path, place, 1 << place % 8)
    damage(path, path.stat().st_size - 1)
    with open_records(path, decode="image", verify=False) as source:
        np.testing.assert_array_equal(batch_of(plan_of(source, 3))[0], np.stack(raw(3)))


# --- records that are unlike the others ---


def unlike(name: str, folder: Path) -> list[Path]:
    """Files of which one record doesn't fit the first one's array or label."""
    images = {
        "another shape": [*raw(3, (4, 6)), *raw(1, (6, 4))],
        "another dtype": [*raw(3, (4, 6)), *raw(1, (4, 6), "i1")],
    }
    if name in images:
        return [raw_file(folder, "tfrecord", images[name])]
    if name == "another shape in another file":
        return [
            write_images(folder / str(n), "recordio", map(npy, raw(3 - 2 * n, shape)))
            for n, shape in enumerate([(4, 6), (5, 5)])
        ]
    if name == "a label more, four pixels fewer":
        sizes = [([1.0], 8)] * 3 + [([1.0, 2.0], 4)]
        records = [irheader.pack(label, 0, npy(np.zeros(n, "u1"))) for label, n in sizes]
        return [write(folder / "a.rec", "recordio", records)]
    labels = {"a float after integers": 1.5, "several labels": [1, 2]}
    first = raw_file(folder, "tfrecord", raw(3), [0, 1, 2])
    return [first, write_images(folder / "other", "recordio", [npy(raw()[0])], [labels[name]])]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("another shape", r"record 3, .*uint8 \(4, 6\), found uint8 \(6, 4\)"),
        ("another dtype", r"record 3, .*uint8 \(4, 6\), found int8 "),
        ("another shape in another file", r"1, record 0, .*\(4, 6\), found uint8 \(5, 5\)"),
        ("a label more, four pixels fewer", r"record 3, .* label of shape \(1,\), found shape"),
        ("a float after integers", "other, record 0, .*expected a label of int64, found 1.5"),
        ("several labels", "other, record 0, .*expected a label"),
    ],
)
def test_record_unlike_the_first_is_named(tmp_path, name, said):
    source = open_records(unlike(name, tmp_path), decode="image")
    batch_of(plan_of(source, 3))
    with pytest.raises(RecordError, match=said):
        batch_of(plan_of(source, 4))


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


def test_features_in_another_order_are_read_right(tmp_path):
    parts = [
        example.encode({name: value})
        for name, value in [("image/encoded", npy(raw()[0])), ("image/class/label", 7)]
    ]
    path = write(tmp_path / "a.tfrecord", "tfrecord", [parts[0] + parts[1], parts[1] + parts[0]])
    arrays, labels = batch_of(plan_of(open_records(path, decode="image"), 2))
    assert labels.tolist() == [7, 7]
    np.testing.assert_array_equal(arrays, [raw()[0]] * 2)


@pytest.mark.parametrize("decode", ["image", ImageDecoder(3)])
@pytest.mark.parametrize("on_error", ["skip", lambda error, number: (np.zeros((3, 3, 3)), 0)])
def test_whole_record_with_other_labels_is_not_replaced(decode, on_error, tmp_path):
    """Nothing is wrong with it: half of a detection data set would be left out in silence."""
    image = encoded(picture(3, 3), "JPEG")
    records = [irheader.pack(label, 0, image) for label in ([1.0], [1.0, 2.0, 3.0], [1.0])]
    source = open_records(write(tmp_path / "a.rec", "recordio", records), decode=decode)
    with pytest.raises((RecordError, ValueError), match=r"collate|equal shapes"):
        batch_of(plan_of(source, 3, on_error=on_error))


# --- files that are closed, changed, sent, and read by several threads ---

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
    other.close()
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


@every_reader
@OPEN
def test_file_that_was_changed_is_named_and_the_others_are_read(tmp_path, format, contents, decode):
    paths = [write_images(tmp_path / f"{n}", format, contents()) for n in range(3)]
    source = open_records(paths, decode=decode)
    batch_of(plan_of(source, 3 * SIZE))
    sent = pickle.dumps(source)
    source.close()
    paths[1].write_bytes(paths[1].read_bytes()[:-4])
    copied = pickle.loads(sent)  # In which files are mapped anew.
    with pytest.raises(RecordError, match=r"/1, .*open it again"):
        batch_of(plan_of(copied, 3 * SIZE))
    own = plan_of(copied, SIZE)
    assert batch_of(own, 0, 0)[1].tolist() == batch_of(own, 0, 2)[1].tolist() == [*range(SIZE)]


@every_format
@OPEN
def test_copy_in_another_process_gives_the_same(tmp_path, format, contents, decode):
    """And is sent without the records."""
    path, count = write_images(tmp_path / "a", format, contents() * 200), 200 * SIZE
    plan = plan_of(open_records(path, decode=decode), SIZE, shuffle=True)
    expected = exact(batch_of(plan))
    sent = cloudpickle.dumps(plan)
    assert len(sent) < 5000 + 17 * count < path.stat().st_size / 5
    assert exact(batch_of(pickle.loads(sent))) == expected


@every_format
def test_threads_get_the_right_samples(format, tmp_path):
    path = jpeg_file(tmp_path, format)
    expected = exact(batch_of(plan_of(open_records(path, decode=RANDOM), SIZE)))
    for _ in range(5):
        plan = plan_of(open_records(path, decode=RANDOM), SIZE)
        start = Barrier(8, timeout=LIMIT_SECONDS)

        def work(_: int, plan: Any = plan, start: Barrier = start) -> Any:
            start.wait()
            return [exact(batch_of(plan)) for _ in range(3)]

        with ThreadPoolExecutor(8) as pool:
            for made in pool.map(work, range(8)):
                assert made == [expected] * 3
