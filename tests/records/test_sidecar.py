"""Which file is a record file's index, for each of those who ask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.records import CODECS, index_paths, sidecar
from tests.records.materials import FORMATS, SUFFIXES, encoded, index_written, written

RECORDS = [b"one", b"three"]
OTHERS = [b"another", b"", b"file"]
formats = pytest.mark.parametrize("format", FORMATS)


def indexed(folder: Path, format: str, records: list[bytes], stem: str = "a") -> Path:
    """A file with its index beside it."""
    path = written(folder, format, records, stem)
    index_written(path)
    return path


@pytest.mark.parametrize(
    ("name", "shared", "own"),
    [
        ("t.rec", "t.idx", "t.rec.idx"),
        ("t.TFRecord", "t.idx", "t.TFRecord.idx"),
        ("train-00000-of-01024", "train-00000-of-01024.idx", "train-00000-of-01024.idx"),
        ("t.tfrecord-00000-of-00002",) + ("t.tfrecord-00000-of-00002.idx",) * 2,
        ("t.recordio", "t.idx", "t.recordio.idx"),
        ("t.rec.gz", "t.rec.gz.idx", "t.rec.gz.idx"),
        ("t.tfrecord.gz", "t.tfrecord.gz.idx", "t.tfrecord.gz.idx"),
    ],
)
def test_an_index_is_named_after_its_file(name, shared, own):
    assert [path.name for path in index_paths(name)] == [shared, own]


def test_names_of_one_file_are_looked_at_once(tmp_path):
    assert sidecar.candidates("t") == [Path("t.idx")]
    assert sidecar.candidates("t.rec") == [Path("t.idx"), Path("t.rec.idx")]


@pytest.mark.parametrize(
    ("manifests", "kept"), [(False, ["a.rec", "b"]), (True, ["a.rec", "a.json", "b"])]
)
def test_what_lies_beside_record_files_is_none(manifests, kept):
    names = ["a.rec", "a.idx", "a.rec.idx", "a.json", "b"]
    assert sidecar.record_files(names, manifests) == kept


@formats
def test_a_writer_takes_the_shared_name_where_it_is_free_or_its_own(format, tmp_path):
    path = tmp_path / f"a{SUFFIXES[format]}"
    assert sidecar.place_of_writer(path, CODECS[format]) == tmp_path / "a.idx"
    indexed(tmp_path, format, RECORDS)
    assert sidecar.place_of_writer(path, CODECS[format]) == tmp_path / "a.idx"


@formats
def test_a_writer_leaves_another_files_index(format, tmp_path):
    path = written(tmp_path, format, RECORDS)
    (tmp_path / "a.idx").write_text("another file's")
    assert sidecar.place_of_writer(path, CODECS[format]) == index_paths(path)[1]
    (tmp_path / "x").write_bytes(encoded(format, RECORDS))
    (tmp_path / "x.idx").write_text("another file's")
    assert sidecar.place_of_writer(tmp_path / "x", CODECS[format]) is None


def test_the_command_replaces_what_has_the_shared_name_but_beside_another_file(tmp_path):
    path = written(tmp_path, "recordio", RECORDS)
    (tmp_path / "a.idx").write_text("out of date")
    (tmp_path / "a.json").write_text("a manifest")
    (tmp_path / "a.txt").write_text("a text")
    assert sidecar.place_of_command(path) == tmp_path / "a.idx"
    written(tmp_path, "tfrecord", RECORDS)
    assert sidecar.place_of_command(path) == tmp_path / "a.rec.idx"


@formats
@pytest.mark.parametrize("taken", [False, True])
def test_an_index_follows_its_file(taken, format, tmp_path):
    path = indexed(tmp_path, format, RECORDS, "temporary")
    name = path.with_name(f"a{path.suffix}")
    shared, own = index_paths(name)
    if taken:
        shared.write_text("another file's")
    content = index_paths(path)[0].read_bytes()
    for _ in range(2):  # As after an interrupt.
        sidecar.follow(path, name)
        assert (own if taken else shared).read_bytes() == content
        assert not index_paths(path)[0].exists()


@formats
def test_only_a_files_own_indexes_are_removed_with_it(format, tmp_path):
    path = indexed(tmp_path, format, RECORDS)
    shared, own = index_paths(path)
    own.write_text("whatever it says")
    sidecar.remove(path)
    assert os.listdir(tmp_path) == [path.name]
    shared.write_bytes(index_paths(indexed(tmp_path, format, OTHERS, "b"))[0].read_bytes())
    sidecar.remove(path)
    assert shared.exists()
