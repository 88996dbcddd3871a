"""``RecordWriter``: a file appears whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import pytest

from adapters.errors import ClosedError
from adapters.records import RecordWriter, recordio
from tests.records.materials import FORMATS, PAYLOADS, SUFFIXES, encoded, forbid_scan, read, written

RECORDS = list(PAYLOADS.values())
formats = pytest.mark.parametrize("format", FORMATS)


def write(path, format, records, then=None):
    with RecordWriter(path, format=format) as writer:
        for record in records:
            writer.write(record)
        if then is not None:
            raise then


@formats
def test_what_is_written_is_read(format, tmp_path):
    write(tmp_path / "a", format, RECORDS)
    assert read(tmp_path / "a") == RECORDS


@formats
def test_write_returns_the_number_of_the_record(format, tmp_path):
    with RecordWriter(tmp_path / "a", format=format) as writer:
        assert [writer.write(b"x"), writer.write(b""), len(writer)] == [0, 1, 2]


@formats
def test_the_size_so_far_is_told(format, tmp_path):
    with RecordWriter(tmp_path / "a", format=format) as writer:
        writer.write(b"abc")
    assert writer.size_bytes == (tmp_path / "a").stat().st_size


@formats
def test_the_index_is_beside_the_file_and_is_used(format, tmp_path, monkeypatch):
    path = tmp_path / f"a{SUFFIXES[format]}"
    write(path, format, RECORDS)
    assert sorted(os.listdir(tmp_path)) == ["a.idx", path.name]
    forbid_scan(monkeypatch, format)
    assert read(path) == RECORDS


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_all_that_is_bytes_is_written(kind, tmp_path):
    write(tmp_path / "a", "recordio", [kind(b"abc")])
    assert read(tmp_path / "a") == [b"abc"]


@formats
def test_a_file_without_records_is_one(format, tmp_path):
    write(tmp_path / "a", format, [])
    assert read(tmp_path / "a") == []


@formats
def test_nothing_is_there_before_the_end(format, tmp_path):
    with RecordWriter(tmp_path / "a", format=format) as writer:
        writer.write(b"abc")
        assert not (tmp_path / "a").exists()


@formats
def test_after_an_exception_nothing_is_there(format, tmp_path):
    with pytest.raises(ZeroDivisionError):
        write(tmp_path / "a", format, [b"abc"], then=ZeroDivisionError())
    assert os.listdir(tmp_path) == []


@formats
def test_after_an_exception_the_old_file_is_there(format, tmp_path):
    write(tmp_path / "a", format, RECORDS)
    with pytest.raises(ZeroDivisionError):
        write(tmp_path / "a", format, [b"abc"], then=ZeroDivisionError())
    assert (read(tmp_path / "a"), len(os.listdir(tmp_path))) == (RECORDS, 2)


KILLED = """
import sys
from adapters.records import RecordWriter
writer = RecordWriter(sys.argv[1], format=sys.argv[2])
for number in range(1000):
    writer.write(bytes(1000))
print("written", flush=True)
sys.stdin.read()
"""


@formats
@pytest.mark.parametrize("old", [None, RECORDS])
def test_after_a_kill_the_old_file_is_there_or_none(old, format, tmp_path):
    path = tmp_path / "a.rec"
    if old is not None:
        write(path, format, old)
    command = [sys.executable, "-c", KILLED, str(path), format]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    assert (read(path) if path.exists() else None) == old


@formats
def test_a_file_is_replaced_with_its_index(format, tmp_path, monkeypatch):
    path = tmp_path / f"a{SUFFIXES[format]}"
    for records in (RECORDS, RECORDS[::-1] * 2):
        write(path, format, records)
    assert sorted(os.listdir(tmp_path)) == ["a.idx", path.name]
    forbid_scan(monkeypatch, format)
    assert read(path) == RECORDS[::-1] * 2


def test_the_index_of_another_file_is_left_alone(tmp_path):
    write(tmp_path / "a.rec", "recordio", RECORDS)
    before = (tmp_path / "a.idx").read_bytes()
    write(tmp_path / "a.tfrecord", "tfrecord", RECORDS)
    assert (tmp_path / "a.idx").read_bytes() == before
    assert read(tmp_path / "a.rec") == read(tmp_path / "a.tfrecord") == RECORDS


def test_the_index_of_another_file_is_left_alone_where_there_is_no_other_name(tmp_path):
    write(tmp_path / "a.rec", "recordio", RECORDS)
    before = (tmp_path / "a.idx").read_bytes()
    write(tmp_path / "a", "tfrecord", RECORDS)
    assert (tmp_path / "a.idx").read_bytes() == before


def test_an_old_index_is_gone_before_the_new_file_is_there(tmp_path, monkeypatch):
    """So that after a kill in between, none is there that doesn't fit."""
    path = tmp_path / "a.rec"
    write(path, "recordio", RECORDS)
    seen = []
    replace = os.replace

    def watched(source, target):
        seen.append(sorted(name for name in os.listdir(tmp_path) if not name.startswith(".")))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    write(path, "recordio", [b"new"])
    assert seen == [["a.rec"], ["a.rec"]]


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    with RecordWriter(tmp_path / "a", format="recordio") as first:
        first.write(b"first")
        write(tmp_path / "a", "recordio", [b"second"])
    assert read(tmp_path / "a") == [b"first"]


@pytest.mark.parametrize("payload", ["text", None, 5, [1, 2]])
def test_what_is_not_bytes_is_refused_and_the_file_goes_on(payload, tmp_path):
    with RecordWriter(tmp_path / "a", format="recordio") as writer:
        writer.write(b"before")
        with pytest.raises(TypeError, match="payload must be bytes, got"):
            writer.write(payload)
        writer.write(b"after")
    assert read(tmp_path / "a") == [b"before", b"after"]


def test_what_is_too_large_is_refused_and_the_file_goes_on(tmp_path):
    with RecordWriter(tmp_path / "a", format="recordio") as writer:
        with pytest.raises(ValueError, match="must be < 536870912 bytes, got 536870912"):
            writer.write(bytes(2**29))
        writer.write(b"after")
    assert read(tmp_path / "a") == [b"after"]


def test_the_largest_payload_of_recordio_is_that(monkeypatch):
    monkeypatch.setattr(recordio, "_LENGTH_MASK", 7)
    assert recordio.encode(bytes(7))
    with pytest.raises(ValueError, match="must be < 8 bytes, got 8"):
        recordio.encode(bytes(8))


def test_after_close_writing_is_an_error(tmp_path):
    writer = RecordWriter(tmp_path / "a", format="recordio")
    writer.close()
    with pytest.raises(ClosedError, match="has been closed"):
        writer.write(b"x")


def test_a_second_close_does_nothing(tmp_path):
    writer = RecordWriter(tmp_path / "a", format="recordio")
    writer.write(b"x")
    writer.close()
    written(tmp_path, "recordio", [b"other"])
    writer.close()
    assert read(tmp_path / "a") == [b"x"]


def test_a_writer_that_is_not_closed_warns_and_leaves_nothing(tmp_path):
    writers = [RecordWriter(tmp_path / "a", format="recordio")]
    writers[0].write(b"x")
    with pytest.warns(ResourceWarning, match="was not closed: its 1 records are lost"):
        writers.clear()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("records", [1, 1000])
def test_a_disk_that_is_full_leaves_nothing(records, tmp_path):
    """While a record is written, or at the end, when the last ones are."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(tmp_path / "a", "tfrecord", [bytes(1000)] * records)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert os.listdir(tmp_path) == []


def test_after_a_record_that_could_not_be_written_none_follows(tmp_path):
    """A part of it may be in the file."""
    writer = RecordWriter(tmp_path / "a", format="tfrecord")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            writer.write(bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    with pytest.raises(ClosedError):
        writer.write(b"next")
    writer.close()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        RecordWriter(tmp_path / "none" / "a", format="recordio")


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match='"recordio" or "tfrecord", got \'auto\''):
        RecordWriter(tmp_path / "a", format="auto")
    assert os.listdir(tmp_path) == []


@formats
def test_the_bytes_are_those_of_the_format(format, tmp_path):
    write(tmp_path / "a", format, RECORDS)
    assert (tmp_path / "a").read_bytes() == encoded(format, RECORDS)
