"""Indexes: MXNet's and DALI's are used, missing ones built, those that don't fit noticed."""

from __future__ import annotations

import os
import struct
from itertools import accumulate
from pathlib import Path

import pytest

from adapters.errors import RecordError
from adapters.records import RecordFiles, index_paths, recordio, sidecar, tfrecord
from tests.records import materials
from tests.records.materials import FORMATS, MAGIC, encoded, read, rewritten, written

RECORDS = [bytes([65 + number]) * (5 * number) for number in range(6)]
formats = pytest.mark.parametrize("format", FORMATS)


def with_index(
    folder: Path, format: str, text: str, newer: bool = True, records: list[bytes] = RECORDS
) -> Path:
    path = written(folder, format, records)
    index_paths(path)[0].write_text(text)
    rewritten(path, path.read_bytes(), newer)
    return path


def index_text(format: str, records: list[bytes]) -> str:
    sizes = [len(encoded(format, [record])) for record in records]
    offsets = accumulate(sizes[:-1], initial=0)
    if format == "recordio":
        return "".join(f"{number}\t{offset}\n" for number, offset in enumerate(offsets))
    return "".join(f"{at} {len(record) + 16}\n" for at, record in zip(offsets, records))


def index_lines(format: str, records: list[bytes] = RECORDS) -> list[str]:
    return index_text(format, records).splitlines(keepends=True)


def right_or_damaged(path: Path) -> list[bytes] | int | None:
    try:
        return read(path)
    except RecordError as error:
        return error.record


@formats
def test_index_is_written_as_the_ecosystem_has_it(format, tmp_path):
    path = materials.index_written(written(tmp_path, format, RECORDS))
    assert path == tmp_path / "a.idx"
    assert path.read_text() == index_text(format, RECORDS)


@formats
def test_index_that_fits_is_used(format, tmp_path, monkeypatch):
    path = with_index(tmp_path, format, index_text(format, RECORDS))
    monkeypatch.setattr(sidecar, "searched", None)
    assert read(path) == RECORDS


def test_index_of_mxnet(tmp_path, mx_recordio, monkeypatch):
    path = written(tmp_path, "recordio", RECORDS, "ours")
    reader = mx_recordio.MXIndexedRecordIO(str(materials.index_written(path)), str(path), "r")
    assert [reader.read_idx(number) for number in reader.keys] == RECORDS
    reader.close()
    path = tmp_path / "a.rec"
    writer = mx_recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(path), "w")
    for number, payload in enumerate([*RECORDS, MAGIC * 2]):
        writer.write_idx(7 * number, payload)
    writer.close()
    monkeypatch.setattr(sidecar, "searched", None)
    assert read(path) == [*RECORDS, MAGIC * 2]


@pytest.mark.parametrize("keys", ["540123", ["cat", "dog", "a b", "-1", "é", "7"]])
def test_index_order_is_kept_whatever_the_keys(keys, tmp_path):
    offsets = [line.split("\t")[1] for line in index_lines("recordio")]
    text = "".join(f"{key}\t{offset}" for key, offset in [*zip(keys, offsets)][::-1])
    assert read(with_index(tmp_path, "recordio", text)) == RECORDS[::-1]


@formats
def test_index_of_a_choice_however_lines_end(format, tmp_path):
    lines = [line.rstrip("\n") for line in index_lines(format)]
    text = f"\n{lines[3]}\r\n{lines[1]}\n\n{lines[4]} \n"
    assert read(with_index(tmp_path, format, text)) == [RECORDS[3], RECORDS[1], RECORDS[4]]


def test_index_columns_behind_the_offset(tmp_path, mx_recordio):
    """As in MXNet, which reads the first two."""
    lines = [line.rstrip("\n") for line in index_lines("recordio")]
    text = f"{lines[3]}\t\n{lines[1]}\n{lines[4]}\tcat.jpg\n{lines[2]}\t1.5\tcat.jpg\n"
    path = with_index(tmp_path, "recordio", text)
    reader = mx_recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(path), "r")
    assert read(path) == [reader.read_idx(key) for key in reader.keys]
    reader.close()


@formats
def test_index_that_is_none_is_said_so(format, tmp_path, caplog):
    """But not that of a file beside it of the other format."""
    others = index_text(FORMATS[1 - FORMATS.index(format)], RECORDS)
    broken = "".join(index_lines(format)[:2]) + "broken\n"
    for text, said in [(others, False), (broken, True)]:
        path = with_index(tmp_path, format, text)
        assert read(path) == RECORDS
        assert (f"a.idx is not the index of {path}" in caplog.text) is said


@formats
def test_index_that_ends_before_its_file(format, tmp_path, caplog):
    """They may have been appended since; a choice in the middle is nobody's oversight."""
    lines = index_lines(format)
    assert read(with_index(tmp_path, format, "".join(lines[1::2]))) == RECORDS[1::2]
    assert caplog.text == ""
    path = with_index(tmp_path, format, "".join(lines[:4]))
    behind = len(encoded(format, RECORDS[4:]))
    assert read(path) == RECORDS[:4]
    assert f"lists 4 records of {path}, and {behind} bytes lie behind" in caplog.text
    assert "delete the index" in caplog.text


@formats
def test_older_index_that_leaves_out_or_repeats(format, tmp_path, caplog):
    lines = index_lines(format)
    for text in (lines[1::2], lines[:2] + lines[4:]):
        assert read(with_index(tmp_path, format, "".join(text), newer=False)) == RECORDS
    records = [b"%03d" % number for number in range(200)]
    lines = index_lines(format, records)
    # The size of what is there twice would be taken for none.
    text = "".join(lines[:101] + lines[100:])
    assert read(with_index(tmp_path, format, text, newer=False, records=records)) == records
    assert "it lists a record twice" in caplog.text


@formats
@pytest.mark.parametrize("gone", [1, 500, 998])
def test_older_index_is_never_silently_wrong(gone, format, tmp_path):
    """Not every record is looked at before an index is believed."""
    records = [b"%04d" % number for number in range(1000)]
    lines = index_lines(format, records)
    text = "".join(lines[:gone] + lines[gone + 1 :])
    path = with_index(tmp_path, format, text, newer=False, records=records)
    assert right_or_damaged(path) in (records, gone - 1)


OTHERS = {
    "other sizes": [b"x" * (3 * number + 1) for number in range(6)],
    "more records": [*RECORDS, b"appended"],
    "fewer records": RECORDS[:4],
    "no records": [],
    "one record": [b"".join(RECORDS)],
    "half as large records": [b"ab"] * 30,
}
# An index that was written after the file may leave out records.
SEEN_THOUGH_NEWER = [name for name in OTHERS if name != "more records"]


@formats
@pytest.mark.parametrize(
    ("name", "newer"),
    [(name, False) for name in OTHERS] + [(name, True) for name in SEEN_THOUGH_NEWER],
)
def test_file_written_anew_beside_an_old_index(name, newer, format, tmp_path, caplog):
    path = with_index(tmp_path, format, index_text(format, RECORDS))
    rewritten(path, encoded(format, OTHERS[name]), newer)
    assert read(path, format) == OTHERS[name]
    assert "a.idx is not used, as it doesn't fit" in caplog.text


BROKEN = {
    "2^64 - 1": ("0\t{0}\n1\t18446744073709551615\n", "0 21\n18446744073709551615 21\n"),
    "beyond 2^64": ("0\t0\n1\t1{0:030}\n", "0 21\n1{0:030} 21\n"),
    "negative": ("0\t0\n1\t-4\n", "0 16\n-4 21\n"),
    "negative, other keys": ("a\t0\nb\t-4\n", "0 16\n16 -4\n"),
    "beyond 2^64, other keys": ("a\t0\nb\t1{0:030}\n", "0 16\n16 1{0:030}\n"),
    "in the middle of a record": ("0\t0\n1\t4\n", "0 16\n1 21\n"),
    "at an odd place": ("0\t0\n1\t9\n", "0 16\n17 21\n"),
    "beyond the file": ("0\t0\n1\t100000\n", "0 16\n100000 21\n"),
    "at its end": ("0\t0\n1\t136\n", "0 16\n171 21\n"),
    "another size": ("0\t0\n1\t8\n2\t17\n", "0 16\n16 22\n"),
    "no numbers": ("a\tb\n", "a b\n"),
    "three columns": ("0\t0\t0\n", "0 16 0\n"),
    "binary": ("\0\1\2\3", "\0\1\2\3"),
    "blank": (" \n\n", " \n\n"),
    "empty": ("", ""),
}


@formats
@pytest.mark.parametrize("texts", list(BROKEN.values()), ids=list(BROKEN))
def test_broken_index_is_neither_used_nor_overwritten(texts, format, tmp_path):
    text = texts[FORMATS.index(format)].format(0)
    for newer in (False, True):
        path = with_index(tmp_path, format, text, newer)
        assert read(path) == RECORDS
        assert (tmp_path / "a.idx").read_text() == text


@formats
def test_folder_in_the_place_of_an_index(format, tmp_path):
    path = written(tmp_path, format, RECORDS)
    index_paths(path)[0].mkdir()
    assert read(path) == RECORDS


def test_offset_in_a_payload_gives_no_sample(tmp_path):
    """Where the 64 that are looked at leave it out, it is found out by reading."""
    inner = b"a" + recordio.encode(b"inner")
    records = [inner] * 1000
    lines = index_lines("recordio", records)
    lines[1] = f"1\t{int(lines[1].split()[1]) + 9}\n"
    path = with_index(tmp_path, "recordio", "".join(lines), records=records)
    assert right_or_damaged(path) in (records, 0, 1)


def test_records_beyond_4_gib_by_an_index(tmp_path):
    path, at = tmp_path / "a.rec", 2**32 + 8
    with path.open("wb") as file:  # A hole, but for its ends.
        file.write(recordio.encode(b"not listed"))
        file.seek(at)
        file.write(recordio.encode(b"second") + recordio.encode(MAGIC))
    (tmp_path / "a.idx").write_text(f"1\t{at}\n2\t{at + 16}\n")
    os.utime(path, (1, 1))
    assert read(path) == [b"second", MAGIC]


def test_records_beyond_4_gib_by_scanning(tmp_path):
    """The data's CRC of 4 GiB of zeros is not looked at."""
    path, length = tmp_path / "a.tfrecord", 2**32 + 5
    head = struct.pack("<Q", length)
    with path.open("wb") as file:
        file.write(head + struct.pack("<I", tfrecord.masked_crc(head)))
        file.seek(length + 16)
        file.write(tfrecord.encode(b"second"))
    files = RecordFiles(path)
    assert (len(files), bytes(files.read(1))) == (2, b"second")
    files.close()


@pytest.mark.parametrize(
    ("name", "shared", "own"),
    [
        ("t.rec", "t.idx", "t.rec.idx"),
        ("t.TFRecord", "t.idx", "t.TFRecord.idx"),
        ("t.tfrecord-00000-of-00002",) + ("t.tfrecord-00000-of-00002.idx",) * 2,
        ("t.recordio", "t.idx", "t.recordio.idx"),
        ("t.rec.gz", "t.rec.gz.idx", "t.rec.gz.idx"),
    ],
)
def test_index_is_named_after_its_file(name, shared, own):
    assert [path.name for path in index_paths(name)] == [shared, own]


def test_index_cache_of_others_is_not_used(tmp_path, monkeypatch):
    folder = tmp_path / "cache" / "loader-adapters" / "indexes"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert read(written(tmp_path, "recordio", [b"one", b"two"])) == [b"one", b"two"]
    assert list(folder.iterdir()) == []


def test_stored_index_of_a_local_file_of_the_same_size_and_time_is_not_used(tmp_path):
    for place in (400, 401):  # Between the headers that are compared with an index.
        records = [b"1" * (16 if number == place else 8) for number in range(1000)]
        path = written(tmp_path, "tfrecord", records)
        os.utime(path, (0, 0))
        assert read(path) == records
