"""``RecordWriter``: a file appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys

import pytest

from adapters.errors import ClosedError
from adapters.records import RecordWriter
from tests.forking import forks
from tests.records.materials import FORMATS, PAYLOADS, encoded, read

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
    with RecordWriter(tmp_path / "a", format=format) as writer:
        for number, record in enumerate(RECORDS):
            kind = (bytes, bytearray, memoryview)[number % 3]
            assert writer.write(kind(record)) == number
        assert len(writer) == len(RECORDS)
    assert read(tmp_path / "a") == RECORDS
    assert (tmp_path / "a").read_bytes() == encoded(format, RECORDS)
    assert writer.size_bytes == (tmp_path / "a").stat().st_size
    write(tmp_path / "none", format, [])
    assert read(tmp_path / "none") == []


@formats
def test_exception_leaves_the_old_file_or_none(format, tmp_path):
    for before in ([], RECORDS):
        if before:
            write(tmp_path / "a", format, before)
        names = os.listdir(tmp_path)
        with pytest.raises(ZeroDivisionError):
            write(tmp_path / "a", format, [b"abc"], then=ZeroDivisionError())
        assert os.listdir(tmp_path) == names
    assert read(tmp_path / "a") == RECORDS


@forks
@formats
def test_forked_process_leaves_the_file_alone(format, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with RecordWriter("a", format=format) as writer:
        os.chdir("/")  # The path stays that of the beginning.
        writer.write(b"one")
        child = os.fork()
        if not child:
            with contextlib.suppress(ClosedError):
                writer.write(b"two")
            writer.__exit__(None, None, None)
            os._exit(0 if writer._file.flush() is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        writer.write(b"three")
    assert read(tmp_path / "a") == [b"one", b"three"]


KILLED = """
import sys
from adapters.records import RecordWriter
writer = RecordWriter(sys.argv[1], format=sys.argv[2])
for number in range(1000):
    writer.write(bytes(1000))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("format", "old"), [("recordio", None), ("tfrecord", RECORDS)])
def test_kill_leaves_the_old_file_or_none(old, format, tmp_path):
    path = tmp_path / "a.rec"
    if old is not None:
        write(path, format, old)
    command = [sys.executable, "-c", KILLED, str(path), format]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    assert (read(path) if path.exists() else None) == old


def test_old_index_is_gone_before_the_new_file(tmp_path, monkeypatch):
    """So that after a kill in between, none is there that doesn't fit."""
    path, seen, replace = tmp_path / "a.rec", [], os.replace

    def watched(source, target):
        seen.append(sorted(name for name in os.listdir(tmp_path) if not name.startswith(".")))
        replace(source, target)

    write(path, "recordio", RECORDS)
    assert sorted(os.listdir(tmp_path)) == ["a.idx", "a.rec"]
    monkeypatch.setattr(os, "replace", watched)
    write(path, "recordio", [b"new"])
    assert seen == [["a.rec"], ["a.rec"]]


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    with RecordWriter(tmp_path / "a", format="recordio") as first:
        first.write(b"first")
        write(tmp_path / "a", "recordio", [b"second"])
    assert read(tmp_path / "a") == [b"first"]


def test_index_of_another_file_is_left_alone(tmp_path):
    write(tmp_path / "a.rec", "recordio", RECORDS)
    before = (tmp_path / "a.idx").read_bytes()
    write(tmp_path / "a.tfrecord", "tfrecord", RECORDS)
    assert (tmp_path / "a.idx").read_bytes() == before


@pytest.mark.parametrize("payload", ["text", None, 5, [1, 2], bytes(2**29)])
def test_wrong_payload_is_refused_and_the_file_goes_on(payload, tmp_path):
    said = "payload must be bytes, got|must be < 536870912 bytes, got 536870912; cut it"
    with RecordWriter(tmp_path / "a", format="recordio") as writer:
        writer.write(b"before")
        with pytest.raises((TypeError, ValueError), match=said):
            writer.write(payload)
        writer.write(b"after")
    assert read(tmp_path / "a") == [b"before", b"after"]


@pytest.mark.parametrize(
    ("path", "error"),
    [(5, TypeError), (".", IsADirectoryError), ("no/a", FileNotFoundError), ("a.gz", ValueError)],
)
def test_wrong_path_is_refused(path, error):
    with pytest.raises(error, match=f"path must be .*, got {path!r}"):
        RecordWriter(path, format="recordio")


def test_close_may_come_twice_and_ends_writing(tmp_path):
    writer = RecordWriter(tmp_path / "a", format="recordio")
    writer.write(b"x")
    writer.close()
    writer.close()
    assert read(tmp_path / "a") == [b"x"]
    with pytest.raises(ClosedError, match="has been closed"):
        writer.write(b"x")


def test_writer_that_is_not_closed_warns(tmp_path):
    writers = [RecordWriter(tmp_path / "a", format="recordio")]
    writers[0].write(b"x")
    with pytest.warns(ResourceWarning, match="was not closed: its 1 records are lost"):
        writers.clear()
    assert os.listdir(tmp_path) == []


@contextlib.contextmanager
def full_disk():
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


@pytest.mark.parametrize("records", [1, 1000])
def test_full_disk_leaves_nothing(records, tmp_path):
    """While a record is written, or at the end, when the last ones are."""
    with full_disk(), pytest.raises(OSError, match=r"File too large: '.*/a'"):
        write(tmp_path / "a", "tfrecord", [bytes(1000)] * records)
    assert os.listdir(tmp_path) == []


def test_full_disk_ends_writing(tmp_path):
    """A part of the record may be in the file."""
    writer = RecordWriter(tmp_path / "a", format="tfrecord")
    with full_disk(), pytest.raises(OSError, match=r"File too large: '.*/a'"):
        writer.write(bytes(1 << 20))
    with pytest.raises(ClosedError):
        writer.write(b"next")
    writer.close()
    assert os.listdir(tmp_path) == []


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match='"recordio" or "tfrecord", got \'auto\''):
        RecordWriter(tmp_path / "a", format="auto")
    assert os.listdir(tmp_path) == []
