"""From RecordIO to TFRecord and back, with images as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import RecordError, RecordWriter, open_records, pack
from adapters.packing import convert, verify
from adapters.records import CODECS, RecordFiles, example, irheader
from adapters.records.irheader import HEADER
from tests.packing.materials import SUFFIXES, image, jpeg

OTHER = {"recordio": "tfrecord", "tfrecord": "recordio"}
SAMPLES = [
    (jpeg(0), 3),
    (jpeg(1), -2),
    (jpeg(2), 0.5),
    (jpeg(3), [1, 2, 3]),
    (jpeg(4), [0.25, -1]),
    (jpeg(5), -0.0),
    (jpeg(6), float("inf")),
    (jpeg(7), 2**24),
    (jpeg(8), float(np.float32(1e30))),
]


def payloads(path: Path) -> list[bytes]:
    files = RecordFiles(path)
    return [bytes(files.read(number)) for number in range(len(files))]


def written(path: Path, format: str, records: list[bytes]) -> Path:
    with RecordWriter(path, format=format) as writer:
        for record in records:
            writer.write(record)
    return path


@pytest.mark.parametrize("encoding", ["jpeg", "raw"])
def test_recordio_to_tfrecord_and_back_gives_the_same_bytes(tmp_path, encoding):
    first, middle, last = tmp_path / "a.rec", tmp_path / "b.tfrecord", tmp_path / "c.rec"
    pack(SAMPLES, first, format="recordio", encoding=encoding)
    convert(first, middle, format="tfrecord")
    convert(middle, last, format="recordio")
    assert last.read_bytes() == first.read_bytes()
    assert last.with_suffix(".idx").read_bytes() == first.with_suffix(".idx").read_bytes()


@pytest.mark.parametrize("format", OTHER)
@pytest.mark.parametrize("encoding", ["jpeg", "raw"])
def test_images_and_labels_are_the_same(tmp_path, format, encoding):
    source = tmp_path / f"a{SUFFIXES[format]}"
    target = tmp_path / f"b{SUFFIXES[OTHER[format]]}"
    pack(SAMPLES, source, format=format, encoding=encoding)
    assert convert(source, target, format=OTHER[format]) == len(SAMPLES)
    for (pixels, label), (found, same) in zip(
        open_records(source, decode="image"), open_records(target, decode="image")
    ):
        assert np.array_equal(pixels, found)
        assert np.array_equal(label, same)


def test_images_are_not_encoded_again(tmp_path):
    pack([(jpeg(1), 2)], tmp_path / "a.rec", format="recordio")
    convert(tmp_path / "a.rec", tmp_path / "b.tfrecord", format="tfrecord")
    (record,) = payloads(tmp_path / "b.tfrecord")
    assert example.decode(record)["image/encoded"] == [jpeg(1)]


@pytest.mark.parametrize("identity", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_every_id_comes_back(tmp_path, identity):
    source = written(tmp_path / "a.rec", "recordio", [irheader.pack(1, identity, jpeg(0))])
    convert(source, tmp_path / "b.tfrecord", format="tfrecord")
    convert(tmp_path / "b.tfrecord", tmp_path / "c.rec", format="recordio")
    assert payloads(tmp_path / "c.rec") == payloads(source)


def test_an_example_without_an_id_gets_none(tmp_path):
    record = example.encode({"image/encoded": jpeg(0), "image/class/label": 5})
    source = written(tmp_path / "a.tfrecord", "tfrecord", [record])
    convert(source, tmp_path / "b.rec", format="recordio")
    assert payloads(tmp_path / "b.rec") == [irheader.pack(5, 0, jpeg(0))]


@pytest.mark.parametrize("label", [2**24 + 1, [1, 2**24 + 1], 2**63 - 1, "ant"])
def test_a_label_that_recordio_cannot_hold_is_refused(tmp_path, label):
    right = example.encode({"image/encoded": jpeg(0), "image/class/label": 5})
    wrong = example.encode({"image/encoded": jpeg(0), "image/class/label": label})
    source = written(tmp_path / "a.tfrecord", "tfrecord", [right, wrong])
    with pytest.raises(RecordError, match=r"a\.tfrecord, record 1, byte .* label"):
        convert(source, tmp_path / "b.rec", format="recordio")


@pytest.mark.parametrize("format", OTHER)
def test_records_that_are_no_images_are_copied(tmp_path, format):
    records = [b"", b"abc", bytes(100), jpeg(0), example.encode({"words": ["a", "b"]})]
    source = written(tmp_path / "source", format, records)
    convert(source, tmp_path / "target", format=OTHER[format])
    assert payloads(tmp_path / "target") == records


@pytest.mark.parametrize("format", OTHER)
def test_records_of_the_same_format_are_copied(tmp_path, format):
    pack(SAMPLES, tmp_path / "a.rec", format=format)
    assert convert(tmp_path / "a.rec", tmp_path / "b.rec", format=format) == len(SAMPLES)
    assert (tmp_path / "b.rec").read_bytes() == (tmp_path / "a.rec").read_bytes()


@pytest.mark.parametrize("format", OTHER)
def test_several_files_become_one(tmp_path, format):
    """Of both formats."""
    pack(SAMPLES, tmp_path / "a", format="recordio", shard_bytes=2000)
    pack(SAMPLES[:2], tmp_path / "b.tfrecord", format="tfrecord")
    paths = [tmp_path / "a-*.rec", tmp_path / "b.tfrecord"]
    assert convert(paths, tmp_path / "all", format=format) == len(SAMPLES) + 2
    read = open_records(tmp_path / "all", decode="image")
    labels = [np.ravel(label).tolist() for _, label in read]
    assert labels == [np.ravel(label).tolist() for _, label in SAMPLES + SAMPLES[:2]]


@pytest.mark.parametrize("format", OTHER)
def test_a_file_may_be_converted_where_it_is(tmp_path, format):
    pack(SAMPLES, tmp_path / "a.rec", format=format)
    convert(tmp_path / "a.rec", tmp_path / "converted", format=OTHER[format])
    convert(tmp_path / "a.rec", tmp_path / "a.rec", format=OTHER[format])
    assert (tmp_path / "a.rec").read_bytes() == (tmp_path / "converted").read_bytes()
    assert len(open_records(tmp_path / "a.rec", decode="image")[:]) == len(SAMPLES)


def test_a_file_may_be_one_of_those_that_it_is_made_of(tmp_path):
    pack(SAMPLES[:2], tmp_path / "a.rec", format="recordio")
    pack(SAMPLES[2:4], tmp_path / "b.rec", format="recordio")
    expected = payloads(tmp_path / "a.rec") + payloads(tmp_path / "b.rec")
    convert([tmp_path / "a.rec", tmp_path / "b.rec"], tmp_path / "a.rec", format="recordio")
    assert payloads(tmp_path / "a.rec") == expected


def test_a_file_without_records_becomes_one_without(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert convert(tmp_path / "empty", tmp_path / "b.tfrecord", format="tfrecord") == 0
    assert (tmp_path / "b.tfrecord").read_bytes() == b""


def damaged(path: Path) -> Path:
    path = path.with_suffix(".tfrecord")
    pack(SAMPLES, path, format="tfrecord")
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    return path


def no_image(path: Path) -> Path:
    return written(path, "recordio", [irheader.pack(1, 0, jpeg(0)), b"short"])


@pytest.mark.parametrize(
    ("make", "format", "message"),
    [
        (damaged, "recordio", "record 8, byte .* CRC of the data"),
        (no_image, "tfrecord", f"record 1, byte .* an IRHeader of {HEADER.size} bytes"),
    ],
)
def test_what_cannot_be_converted_leaves_the_target_as_it_was(tmp_path, make, format, message):
    source = make(tmp_path / "a")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/b").write_bytes(b"before")
    with pytest.raises(RecordError, match=message):
        convert(source, tmp_path / "out/b", format=format)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        "b": b"before"
    }


@pytest.mark.parametrize(
    ("paths", "format", "error"),
    [
        ("a", "zip", ValueError),
        ("missing", "recordio", FileNotFoundError),
        ("*.x", "recordio", OSError),
    ],
)
def test_wrong_arguments_leave_nothing(tmp_path, monkeypatch, paths, format, error):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        convert(paths, "out", format=format)
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_every_record_once(tmp_path):
    pack(SAMPLES, tmp_path / "a.rec", format="recordio")
    seen: list[Any] = []
    convert(
        tmp_path / "a.rec",
        tmp_path / "b",
        format="tfrecord",
        progress=lambda *counts: seen.append(counts),
    )
    assert seen == [(done, len(SAMPLES)) for done in range(1, len(SAMPLES) + 1)]


@pytest.mark.parametrize("format", OTHER)
def test_what_was_converted_is_right(tmp_path, format):
    pack((np.stack([image(n) for n in range(3)]), range(3)), tmp_path / "a", format=format)
    (source,) = tmp_path.glob(f"a-*{SUFFIXES[format]}")
    convert(source, tmp_path / "b", format=OTHER[format])
    assert verify(tmp_path / "b") == (3, [])


@pytest.mark.parametrize("format", ["recordio", "tfrecord"])
def test_images_behind_another_record_are_not_copied_with_their_headers(tmp_path, format):
    path, other = (
        tmp_path / "x.in",
        next(each for each in ("recordio", "tfrecord") if each != format),
    )
    with RecordWriter(path, format=other) as writer:
        writer.write(b"")
        writer.write(CODECS[other].envelope.pack(jpeg(1), 1, 1))
    with pytest.raises(RecordError, match=r"record 1.*expected no image, as in the first record"):
        convert(path, tmp_path / "x.out", format=format)
    assert not (tmp_path / "x.out").exists()
