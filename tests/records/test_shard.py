"""One file: its format told from its content, compression, and its records by number."""

from __future__ import annotations

import gzip
import zlib

import pytest

from adapters.errors import RecordError
from adapters.records import inflation, tfrecord
from adapters.records.shard import Shard
from tests.records.materials import FORMATS, PAYLOADS, encoded, read, written

RECORDS = list(PAYLOADS.values())
CONTENT = encoded("tfrecord", RECORDS)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["a.rec", "a.tfrecord", "a", "a.idx.gz"])
def test_the_format_is_told_from_the_content_not_from_the_name(name, format, tmp_path):
    path = tmp_path / name
    path.write_bytes(encoded(format, RECORDS))
    assert (Shard(path, "auto", True).format, read(path)) == (format, RECORDS)


@pytest.mark.parametrize("size", [376, 35_615, 40_056, 55_928])
@pytest.mark.parametrize("format", ["auto", "tfrecord"])
def test_a_length_that_looks_like_compression_is_a_length(size, format, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord.encode(bytes(size)))
    assert path.read_bytes()[:2] in (b"\x78\x01", b"\x1f\x8b", b"\x78\x9c", b"\x78\xda")
    assert read(path, format) == [bytes(size)]


def test_a_length_that_looks_like_recordio_is_a_length(tmp_path):
    """Of 3 GB, which are a hole."""
    path, length = tmp_path / "a.tfrecord", 0xCED7230A
    head = length.to_bytes(8, "little")
    with path.open("wb") as file:
        file.write(head + tfrecord.masked_crc(head).to_bytes(4, "little"))
        file.truncate(length + 16)
    shard = Shard(path, "auto", True)
    assert (shard.format, len(shard)) == ("tfrecord", 1)
    shard.close()


def test_a_small_file_cannot_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(inflation, "_MOST_BYTES", 1 << 20)
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
def test_a_compressed_file_is_read(content, format, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    assert read(path, format) == RECORDS


@pytest.mark.parametrize("block", [1, 2, 17])
@pytest.mark.parametrize("name", ["gzip of several members", "gzip padded in between"])
def test_members_may_end_anywhere_in_a_block(name, block, tmp_path, monkeypatch):
    monkeypatch.setattr("adapters.records.inflation._INFLATED_BYTES", block)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(MEMBERS[name])
    assert read(path) == RECORDS


DAMAGED = {
    "without its trailer": gzip.compress(CONTENT)[:-8],
    "without half its trailer": gzip.compress(CONTENT)[:-4],
    "without the checksum of zlib": zlib.compress(CONTENT)[:-4],
    "something after it": gzip.compress(CONTENT) + b"something",
    "a second member cut": gzip.compress(CONTENT) + gzip.compress(CONTENT)[:20],
}


@pytest.mark.parametrize("content", list(DAMAGED.values()), ids=list(DAMAGED))
def test_damage_of_a_compressed_file_is_an_error(content, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"a\.tfrecord(, record 15)?, byte \d+: expected"):
        read(path)


def test_the_error_at_the_end_of_compressed_data_names_the_record_after_the_last(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(DAMAGED["without its trailer"])
    with pytest.raises(RecordError) as caught:
        read(path)
    assert caught.value.record == len(RECORDS)


def test_a_compressed_file_gets_no_index(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(CONTENT))
    read(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_compressed_file_without_records_has_none(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(b""))
    assert read(path) == []


def test_something_else_compressed_is_an_error(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(gzip.compress(encoded("recordio", RECORDS)))
    with pytest.raises(RecordError, match="expected a compressed TFRecord, found 0a 23 d7 ce"):
        read(path)


@pytest.mark.parametrize("content", [b"P", b"PK\3\4 something else", bytes(100)])
def test_a_file_of_neither_format_is_an_error(content, tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="expected a RecordIO or TFRecord file, found") as caught:
        read(path)
    assert (caught.value.file, caught.value.record) == (str(path), None)


def test_a_file_of_the_other_format_is_an_error(tmp_path):
    one, other = (written(tmp_path, format, RECORDS) for format in FORMATS)
    for path, format in ((one, "tfrecord"), (other, "recordio")):
        with pytest.raises(RecordError):
            read(path, format)


@pytest.mark.parametrize("format", ["auto", *FORMATS])
def test_an_empty_file_has_no_records(format, tmp_path):
    path = tmp_path / "a.rec"
    path.touch()
    assert read(path, format) == []


def test_a_folder_is_no_record_file(tmp_path):
    with pytest.raises(IsADirectoryError):
        Shard(tmp_path, "auto", True)


def test_a_crc_is_checked_the_first_time_only(tmp_path, monkeypatch):
    shard = Shard(written(tmp_path, "tfrecord", RECORDS), "auto", True)
    shard.read(3)
    monkeypatch.delattr(tfrecord, "masked_crc")
    assert bytes(shard.read(3)) == RECORDS[3]


def test_a_damaged_record_is_an_error_each_time(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord.encode(b"abc").replace(b"abc", b"abd"))
    shard = Shard(path, "auto", True)
    for _ in range(2):
        with pytest.raises(RecordError):
            shard.read(0)


def test_without_an_index_none_is_written(tmp_path):
    path = written(tmp_path, "tfrecord", RECORDS)
    assert len(Shard(path, "auto", True, index="search")) == len(RECORDS)
    assert list(tmp_path.iterdir()) == [path]
