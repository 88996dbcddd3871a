"""From RecordIO to TFRecord and back, with images as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import RecordError, open_records, pack
from adapters.packing import convert, verify
from adapters.records import CODECS, example, irheader
from adapters.records.irheader import HEADER
from tests.packing.materials import SUFFIXES, files_in, jpeg
from tests.sources.record_files import write

OTHER = {"recordio": "tfrecord", "tfrecord": "recordio"}
LABELS = [3, -2, 0.5, [1, 2, 3], [0.25, -1], -0.0, float("inf"), 2**24, float(np.float32(1e30))]
SAMPLES = [(jpeg(number), label) for number, label in enumerate(LABELS)]
formats = pytest.mark.parametrize("format", OTHER)


def labelled(label: Any) -> bytes:
    return example.encode({"image/encoded": jpeg(0), "image/class/label": label})


# --- what comes out ---


@pytest.mark.parametrize("encoding", ["jpeg", "raw"])
def test_bytes_are_the_same_there_and_back(tmp_path, encoding):
    first, middle, last = tmp_path / "a.rec", tmp_path / "b.tfrecord", tmp_path / "c.rec"
    pack(SAMPLES, first, format="recordio", encoding=encoding)
    convert(first, middle, format="tfrecord")
    convert(middle, last, format="recordio")
    assert last.read_bytes() == first.read_bytes()
    assert last.with_suffix(".idx").read_bytes() == first.with_suffix(".idx").read_bytes()


@formats
def test_samples_are_the_same_and_right(tmp_path, format):
    source = tmp_path / f"a{SUFFIXES[format]}"
    target = tmp_path / f"b{SUFFIXES[OTHER[format]]}"
    pack(SAMPLES, source, format=format)
    seen: list[Any] = []
    progress = lambda *counts: seen.append(counts)  # noqa: E731
    assert convert(source, target, format=OTHER[format], progress=progress) == len(SAMPLES)
    assert seen == [(done, len(SAMPLES)) for done in range(1, len(SAMPLES) + 1)]
    assert verify(target) == (len(SAMPLES), [])
    for (pixels, label), (found, same) in zip(
        open_records(source, decode="image"), open_records(target, decode="image"), strict=True
    ):
        assert np.array_equal(pixels, found)
        assert np.array_equal(label, same)


@pytest.mark.parametrize("identity", [0, 2**63 - 1, 2**63, 2**64 - 1])
def test_ids_come_back(tmp_path, identity):
    source = write(tmp_path / "a.rec", "recordio", [irheader.pack(1, identity, jpeg(0))])
    convert(source, tmp_path / "b.tfrecord", format="tfrecord")
    convert(tmp_path / "b.tfrecord", tmp_path / "c.rec", format="recordio")
    assert (tmp_path / "c.rec").read_bytes() == source.read_bytes()


def test_id_of_an_example_without_one_is_0(tmp_path):
    source = write(tmp_path / "a.tfrecord", "tfrecord", [labelled(5)])
    convert(source, tmp_path / "b.rec", format="recordio")
    assert open_records(tmp_path / "b.rec")[:] == [irheader.pack(5, 0, jpeg(0))]


@pytest.mark.parametrize("target", OTHER)
@formats
def test_records_without_images_are_copied(tmp_path, format, target):
    """Or none, or such as have that format."""
    records = [b"", b"abc", bytes(100), jpeg(0), example.encode({"words": ["a", "b"]})]
    for some in (records, []):
        source = write(tmp_path / "source", format, some)
        assert convert(source, tmp_path / "target", format=target) == len(some)
        assert open_records(tmp_path / "target", format=target)[:] == some


@formats
def test_several_files_of_both_formats_become_one(tmp_path, format):
    pack(SAMPLES, tmp_path / "a", format="recordio", shard_bytes=2000)
    pack(SAMPLES[:2], tmp_path / "b.tfrecord", format="tfrecord")
    paths = [tmp_path / "a-*.rec", tmp_path / "b.tfrecord"]
    assert convert(paths, tmp_path / "all", format=format) == len(SAMPLES) + 2
    read = open_records(tmp_path / "all", decode="image")
    labels = [np.ravel(label).tolist() for _, label in read]
    assert labels == [np.ravel(label).tolist() for _, label in SAMPLES + SAMPLES[:2]]


@formats
@pytest.mark.parametrize("names", [["a.rec"], ["b.rec", "a.rec"]])
def test_target_may_be_the_source(tmp_path, format, names):
    for name in names:
        pack(SAMPLES, tmp_path / name, format=format)
    sources = [tmp_path / name for name in names]
    convert(sources, tmp_path / "converted", format=OTHER[format])
    convert(sources, tmp_path / "a.rec", format=OTHER[format])
    assert (tmp_path / "a.rec").read_bytes() == (tmp_path / "converted").read_bytes()


# --- what is refused ---


def damaged(path: Path) -> Path:
    pack(SAMPLES, path, format="tfrecord")
    (path,) = path.parent.glob("a-*.tfrecord")
    path.write_bytes(path.read_bytes()[:-9] + b"damage...")
    return path


def no_image(path: Path) -> Path:
    return write(path, "recordio", [irheader.pack(1, 0, jpeg(0)), b"short"])


def of_label(label: Any) -> Any:
    """A right record, and one with a label that RecordIO can't hold."""
    return lambda path: write(path, "tfrecord", [labelled(5), labelled(label)])


def behind_another(format: str) -> Any:
    """An image behind a record that is none must not be copied with its header."""
    image = CODECS[format].envelope.pack(jpeg(1), 1, 1)
    return lambda path: write(path, format, [b"", image])


NONE_BEFORE = r"record 1.*expected no image, as in the first record"


@pytest.mark.parametrize(
    ("make", "format", "message"),
    [
        (damaged, "recordio", "record 8, byte .* CRC of the data"),
        (no_image, "tfrecord", f"record 1, byte .* an IRHeader of {HEADER.size} bytes"),
        (of_label(2**24 + 1), "recordio", "record 1, byte .* label"),
        (of_label([1, 2**24 + 1]), "recordio", "record 1, byte .* label"),
        (of_label(2**63 - 1), "recordio", "record 1, byte .* label"),
        (of_label("ant"), "recordio", "record 1, byte .* label"),
        (behind_another("recordio"), "tfrecord", NONE_BEFORE),
        (behind_another("tfrecord"), "recordio", NONE_BEFORE),
    ],
)
def test_refusal_leaves_the_target_as_it_was(tmp_path, make, format, message):
    source = make(tmp_path / "a")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/b").write_bytes(b"before")
    with pytest.raises(RecordError, match=message):
        convert(source, tmp_path / "out/b", format=format)
    assert files_in(tmp_path / "out") == {"b": b"before"}


def test_wrong_format_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="format must be"):
        convert(tmp_path / "a", tmp_path / "out", format="zip")
    assert list(tmp_path.iterdir()) == []
