"""Files as one: their formats told from their content, compression, and records by number."""

from __future__ import annotations

import copy
import errno
import gzip
import pickle
import zlib
from unittest.mock import Mock

import pytest

from adapters.errors import RecordError
from adapters.records import RecordFiles, storage, tfrecord
from adapters.records.shard import Shard
from tests.records.materials import FORMATS, PAYLOADS, encoded, read, written


@pytest.fixture
def folder(tmp_path):
    written(tmp_path, "recordio", [b"a0", b"a1"], "a")
    written(tmp_path, "tfrecord", [b"c0"], "c")
    written(tmp_path, "recordio", [b"d0", b"d1", b"d2"], "d")
    return tmp_path


def test_files_are_in_the_order_given(folder):
    files = RecordFiles([folder / "d.rec", str(folder / "[ac].*")])
    found = [bytes(files.read(number)) for number in range(len(files))]
    assert found == [b"d0", b"d1", b"d2", b"a0", b"a1", b"c0"]


@pytest.mark.parametrize("name", ["none.rec", "none*"])
def test_missing_file_is_named(name, tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        RecordFiles(str(tmp_path / name))
    with pytest.raises(FileNotFoundError, match="at least one file, got none"):
        RecordFiles([])


def test_glob_of_all_folders_below(folder):
    (folder / "b/c").mkdir(parents=True)
    written(folder / "b/c", "tfrecord", [b"x"], "e")
    assert len(RecordFiles(str(folder / "**" / "*.tfrecord"))) == 2


def test_path_that_exists_is_no_glob(tmp_path):
    path = written(tmp_path, "recordio", [b"x"], "a[1]")
    assert read(path) == [b"x"]


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("record", [None, 3])
def test_error_is_pickled_whole(record, copied):
    error = RecordError("a.rec", record, 5, "this", "that")
    assert (str(copied(error)), vars(copied(error))) == (str(error), vars(error))
    where = "a.rec, byte 5" if record is None else "a.rec, record 3, byte 5"
    assert str(error) == f"{where}: expected this, found that"


@pytest.mark.parametrize("kind", [set, dict.fromkeys])
def test_paths_without_an_order_are_refused(kind):
    """That of a set is another in each process."""
    with pytest.raises(TypeError, match=r"whose order is that of the records, .*: sorted makes"):
        RecordFiles(kind(["a.rec", "b.rec"]))


PAYLOAD_LIST = list(PAYLOADS.values())
CONTENT = encoded("tfrecord", PAYLOAD_LIST)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["a.rec", "a.tfrecord", "a.idx.gz"])
def test_format_is_told_from_the_content(name, format, tmp_path):
    path = tmp_path / name
    path.write_bytes(encoded(format, PAYLOAD_LIST))
    assert (Shard(path, "auto", True).format, read(path)) == (format, PAYLOAD_LIST)
    with pytest.raises(RecordError):
        read(path, FORMATS[1 - FORMATS.index(format)])


@pytest.mark.parametrize(
    ("size", "begin"),
    [(376, b"\x78\x01"), (35_615, b"\x1f\x8b"), (40_056, b"\x78\x9c"), (55_928, b"\x78\xda")],
)
def test_length_that_looks_like_compression(size, begin, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord.encode(bytes(size)))
    assert path.read_bytes()[:2] == begin
    for format in ("auto", "tfrecord"):
        assert read(path, format) == [bytes(size)]


def test_small_file_cannot_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_MOST_BYTES", 1 << 20)
    path, zeros = tmp_path / "a.tfrecord.gz", tfrecord.encode(bytes(4 << 20))
    path.write_bytes(gzip.compress(zeros))
    with pytest.raises(RecordError, match="at most 1 GiB, or 500 times"):
        Shard(path, "tfrecord", True)
    path.write_bytes(gzip.compress(zeros, 0))
    assert read(path) == [bytes(4 << 20)]
    monkeypatch.setattr(storage, "_inflate", Mock(side_effect=OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match=r"full in .*, where it is inflated; TMPDIR .*: '.*gz'"):
        read(path)


PIECES = [CONTENT[at : at + 9] for at in range(0, len(CONTENT), 9)]
MEMBERS = {
    "gzip": gzip.compress(CONTENT),
    "gzip of level 1": gzip.compress(CONTENT, 1),
    "gzip of several members": b"".join(map(gzip.compress, PIECES)),
    "gzip with an empty member": gzip.compress(b"") + gzip.compress(CONTENT) + gzip.compress(b""),
    "gzip padded with zeros": gzip.compress(CONTENT) + bytes(1000),
    "gzip padded in between": gzip.compress(CONTENT[:50]) + bytes(7) + gzip.compress(CONTENT[50:]),
    **{f"zlib of level {level}": zlib.compress(CONTENT, level) for level in (0, 3, 6, 9)},
}


@pytest.mark.parametrize("block", [1, 17, 1 << 20])
@pytest.mark.parametrize("content", list(MEMBERS.values()), ids=list(MEMBERS))
def test_compressed_file_is_read(content, block, tmp_path, monkeypatch):
    """However much of it is inflated at once."""
    monkeypatch.setattr(storage, "_INFLATED_BYTES", block)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    assert read(path) == PAYLOAD_LIST
    assert list(tmp_path.iterdir()) == [path]


DAMAGED = {
    "without its trailer": gzip.compress(CONTENT)[:-8],
    "something after it": gzip.compress(CONTENT) + b"something",
    "a second member cut": gzip.compress(CONTENT) + gzip.compress(CONTENT)[:20],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_of_a_compressed_file_is_an_error(name, tmp_path):
    path, said = tmp_path / "a.tfrecord", r"a\.tfrecord(, record 15)?, byte \d+: expected"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(RecordError, match=said) as raised:
        read(path)
    if name == "without its trailer":
        assert raised.value.record == len(PAYLOAD_LIST)


def test_compressed_file_of_other_content(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(gzip.compress(b""))
    assert read(path) == []
    path.write_bytes(gzip.compress(encoded("recordio", PAYLOAD_LIST)))
    with pytest.raises(RecordError, match="a compressed TFRecord, found a RecordIO"):
        read(path)


@pytest.mark.parametrize("format", ["auto", *FORMATS])
def test_folder_is_no_file(format, tmp_path):
    with pytest.raises(IsADirectoryError):
        Shard(tmp_path, format, True)
