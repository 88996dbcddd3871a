"""Files as one: their formats told from their content, compression, and records by number."""

from __future__ import annotations

import copy
import gzip
import os
import pickle
import zlib

import pytest

from adapters.errors import RecordError
from adapters.records import RecordFiles, storage, tfrecord
from adapters.records.shard import Shard
from tests.records.materials import FORMATS, PAYLOADS, encoded, index_written, read, written


@pytest.fixture
def folder(tmp_path):
    """Files of 2, 0, 1 and 3 records, of both formats."""
    written(tmp_path, "recordio", [b"a0", b"a1"], "a")
    written(tmp_path, "tfrecord", [], "b")
    written(tmp_path, "tfrecord", [b"c0"], "c")
    written(tmp_path, "recordio", [b"d0", b"d1", b"d2"], "d")
    return tmp_path


RECORDS = [b"a0", b"a1", b"c0", b"d0", b"d1", b"d2"]


def test_glob_numbers_records_through(folder):
    index_written(folder / "a.rec")
    assert "a.idx" in os.listdir(folder)
    assert read(str(folder / "*")) == RECORDS
    files = RecordFiles(str(folder / "*"))
    assert [files.locate(number)[0].format for number in (0, 2)] == list(FORMATS)


def test_files_are_in_the_order_given(folder):
    files = RecordFiles([folder / "d.rec", str(folder / "[ab].*")])
    found = [bytes(files.read(number)) for number in range(5)]
    assert found == [b"d0", b"d1", b"d2", b"a0", b"a1"]


def test_path_that_exists_is_no_glob(tmp_path):
    path = written(tmp_path, "recordio", [b"x"], "a[1]")
    assert read(path) == [b"x"]


def test_error_has_the_number_in_its_own_file(folder):
    (folder / "e.tfrecord").write_bytes(
        tfrecord.encode(b"fine") + tfrecord.encode(b"abc").replace(b"abc", b"abd")
    )
    files = RecordFiles(str(folder / "*"))
    with pytest.raises(RecordError) as caught:
        files.read(7)
    error = caught.value
    assert (error.file, error.record, error.offset) == (str(folder / "e.tfrecord"), 1, 20)


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_error_is_pickled_whole(copied):
    error = RecordError("a.rec", None, 5, "this", "that")
    assert (str(copied(error)), vars(copied(error))) == (str(error), vars(error))
    error = RecordError("a.rec", 3, 5, "this", "that")
    assert str(error) == "a.rec, record 3, byte 5: expected this, found that"


@pytest.mark.parametrize("name", ["none.rec", "none*"])
def test_missing_file_is_named(name, tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        RecordFiles(str(tmp_path / name))
    with pytest.raises(FileNotFoundError, match="at least one file, got none"):
        RecordFiles([])


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys])
def test_paths_without_an_order_are_refused(folder, kind):
    """That of a set is another in each process."""
    with pytest.raises(
        TypeError, match=r"whose order is that of the records, got .*: sorted makes"
    ):
        RecordFiles(kind([str(folder / "a.rec"), str(folder / "b.rec")]))


PAYLOAD_LIST = list(PAYLOADS.values())
CONTENT = encoded("tfrecord", PAYLOAD_LIST)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["a.rec", "a.tfrecord", "a", "a.idx.gz"])
def test_format_is_told_from_the_content(name, format, tmp_path):
    path = tmp_path / name
    path.write_bytes(encoded(format, PAYLOAD_LIST))
    assert (Shard(path, "auto", True).format, read(path)) == (format, PAYLOAD_LIST)


@pytest.mark.parametrize("size", [376, 35_615, 40_056, 55_928])
@pytest.mark.parametrize("format", ["auto", "tfrecord"])
def test_length_that_looks_like_compression(size, format, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord.encode(bytes(size)))
    assert path.read_bytes()[:2] in (b"\x78\x01", b"\x1f\x8b", b"\x78\x9c", b"\x78\xda")
    assert read(path, format) == [bytes(size)]


def test_length_that_looks_like_recordio(tmp_path):
    """Of 3 GB, which are a hole."""
    path, length = tmp_path / "a.tfrecord", 0xCED7230A
    head = length.to_bytes(8, "little")
    with path.open("wb") as file:
        file.write(head + tfrecord.masked_crc(head).to_bytes(4, "little"))
        file.truncate(length + 16)
    shard = Shard(path, "auto", True)
    assert (shard.format, len(shard)) == ("tfrecord", 1)
    shard.close()


def test_small_file_cannot_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_MOST_BYTES", 1 << 20)
    path, zeros = tmp_path / "a.tfrecord.gz", tfrecord.encode(bytes(40 << 20))
    path.write_bytes(gzip.compress(zeros))
    with pytest.raises(RecordError, match="at most 1 GiB, or 500 times"):
        Shard(path, "tfrecord", True)
    path.write_bytes(gzip.compress(zeros, 0))
    assert read(path) == [bytes(40 << 20)]


PIECES = [CONTENT[at : at + 9] for at in range(0, len(CONTENT), 9)]
MEMBERS = {
    "gzip": gzip.compress(CONTENT),
    "gzip of level 1": gzip.compress(CONTENT, 1),
    "gzip of several members": b"".join(map(gzip.compress, PIECES)),
    "gzip with an empty member": gzip.compress(b"") + gzip.compress(CONTENT) + gzip.compress(b""),
    "gzip padded with zeros": gzip.compress(CONTENT) + bytes(1000),
    "gzip padded in between": gzip.compress(CONTENT[:50]) + bytes(7) + gzip.compress(CONTENT[50:]),
    **{f"zlib of level {level}": zlib.compress(CONTENT, level) for level in range(10)},
}


@pytest.mark.parametrize("format", ["auto", "tfrecord"])
@pytest.mark.parametrize("content", list(MEMBERS.values()), ids=list(MEMBERS))
def test_compressed_file_is_read(content, format, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    assert read(path, format) == PAYLOAD_LIST
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("block", [1, 2, 17])
@pytest.mark.parametrize("name", ["gzip of several members", "gzip padded in between"])
def test_compressed_members_end_anywhere(name, block, tmp_path, monkeypatch):
    monkeypatch.setattr("adapters.records.storage._INFLATED_BYTES", block)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(MEMBERS[name])
    assert read(path) == PAYLOAD_LIST


DAMAGED = {
    "without its trailer": gzip.compress(CONTENT)[:-8],
    "without half its trailer": gzip.compress(CONTENT)[:-4],
    "without the checksum of zlib": zlib.compress(CONTENT)[:-4],
    "something after it": gzip.compress(CONTENT) + b"something",
    "a second member cut": gzip.compress(CONTENT) + gzip.compress(CONTENT)[:20],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_of_a_compressed_file_is_an_error(name, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(
        RecordError, match=r"a\.tfrecord(, record 15)?, byte \d+: expected"
    ) as raised:
        read(path)
    if name == "without its trailer":
        assert raised.value.record == len(PAYLOAD_LIST)


def test_compressed_file_of_other_content(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(gzip.compress(b""))
    assert read(path) == []
    path.write_bytes(gzip.compress(encoded("recordio", PAYLOAD_LIST)))
    with pytest.raises(RecordError, match="expected a compressed TFRecord, found 0a 23 d7 ce"):
        read(path)


@pytest.mark.parametrize("content", [b"P", b"PK\3\4 something else", bytes(100)])
def test_file_of_neither_format_is_an_error(content, tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="expected a RecordIO or TFRecord file, found") as caught:
        read(path)
    assert (caught.value.file, caught.value.record) == (str(path), None)


def test_file_of_the_other_format_is_an_error(tmp_path):
    one, other = (written(tmp_path, format, PAYLOAD_LIST) for format in FORMATS)
    for path, format in ((one, "tfrecord"), (other, "recordio")):
        with pytest.raises(RecordError):
            read(path, format)


@pytest.mark.parametrize("format", ["auto", *FORMATS])
def test_folder_or_empty_file(format, tmp_path):
    with pytest.raises(IsADirectoryError):
        Shard(tmp_path, format, True)
    path = tmp_path / "a.rec"
    path.touch()
    assert read(path, format) == []
