"""Indexes: MXNet's and DALI's are used, missing ones built, those that don't fit noticed."""

from __future__ import annotations

import logging
import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from adapters.errors import RecordError
from adapters.records import CODECS, RecordFiles, index, index_paths, recordio, tfrecord
from adapters.records.index import parse
from tests.records.materials import (
    FORMATS,
    MAGIC,
    SUFFIXES,
    encoded,
    forbid_scan,
    index_written,
    read,
    rewritten,
    written,
)

RECORDS = [bytes([65 + number]) * (5 * number) for number in range(6)]
formats = pytest.mark.parametrize("format", FORMATS)
ages = pytest.mark.parametrize("newer", [False, True], ids=["older", "newer"])


def with_index(folder: Path, format: str, text: str, newer: bool = True) -> Path:
    """A file of RECORDS with that index."""
    path = written(folder, format, RECORDS)
    index_paths(path)[0].write_text(text)
    rewritten(path, path.read_bytes(), newer)
    return path


def right_or_damaged(path: Path) -> list[bytes] | int | None:
    """The records, or the number of the one that is an error."""
    try:
        return read(path)
    except RecordError as error:
        return error.record


def offsets_of(format: str, records: list[bytes]) -> list[int]:
    return [len(encoded(format, records[:count])) for count in range(len(records))]


def index_text(format: str, records: list[bytes]) -> str:
    """What MXNet or DALI would write."""
    offsets = offsets_of(format, records)
    if format == "recordio":
        return "".join(f"{number}\t{offset}\n" for number, offset in enumerate(offsets))
    return "".join(f"{at} {len(record) + 16}\n" for at, record in zip(offsets, records))


@formats
def test_an_index_is_written_as_the_ecosystem_has_it(format, tmp_path):
    path = index_written(written(tmp_path, format, RECORDS))
    assert path == tmp_path / "a.idx"
    assert path.read_text() == index_text(format, RECORDS)


@formats
def test_an_index_that_fits_is_used(format, tmp_path, monkeypatch):
    path = with_index(tmp_path, format, index_text(format, RECORDS))
    forbid_scan(monkeypatch, format)
    assert read(path) == RECORDS


def test_mxnets_own_index_is_used(tmp_path, mx_recordio, monkeypatch):
    path = tmp_path / "a.rec"
    writer = mx_recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(path), "w")
    for number, payload in enumerate([*RECORDS, MAGIC * 2]):
        writer.write_idx(7 * number, payload)
    writer.close()
    forbid_scan(monkeypatch, "recordio")
    assert read(path) == [*RECORDS, MAGIC * 2]


def test_mxnet_reads_by_our_index(tmp_path, mx_recordio):
    path = written(tmp_path, "recordio", RECORDS)
    index_written(path)
    reader = mx_recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(path), "r")
    assert [reader.read_idx(number) for number in reader.keys] == RECORDS
    reader.close()


@pytest.mark.parametrize("keys", ["540123", ["cat", "dog", "a b", "-1", "é", "7"]])
def test_the_order_of_lines_is_kept_whatever_the_keys(keys, tmp_path):
    lines = list(zip(keys, offsets_of("recordio", RECORDS)))[::-1]
    text = "".join(f"{key}\t{offset}\n" for key, offset in lines)
    assert read(with_index(tmp_path, "recordio", text)) == RECORDS[::-1]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_lines_may_end_otherwise(end, tmp_path, monkeypatch):
    forbid_scan(monkeypatch, "recordio")
    text = index_text("recordio", RECORDS).replace("\n", end)
    assert read(with_index(tmp_path, "recordio", text)) == RECORDS


@formats
@pytest.mark.parametrize("end", ["\r\n", "\n\n", " \n"], ids=["CRLF", "blank lines", "blanks"])
def test_a_choice_of_records_is_kept_however_its_lines_end(end, format, tmp_path):
    lines = index_text(format, RECORDS).splitlines()
    text = "\n" + lines[3] + end + lines[1] + end
    assert read(with_index(tmp_path, format, text)) == [RECORDS[3], RECORDS[1]]


@pytest.mark.parametrize("behind", ["\t", "\tcat.jpg", "\t1.5\tcat.jpg"])
def test_columns_behind_the_offset_change_nothing(behind, tmp_path, mx_recordio):
    """As in MXNet, which reads the first two."""
    lines = index_text("recordio", RECORDS).splitlines()
    path = with_index(tmp_path, "recordio", f"{lines[3]}{behind}\n{lines[1]}\n{lines[4]}{behind}\n")
    reader = mx_recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(path), "r")
    assert read(path) == [reader.read_idx(key) for key in reader.keys]
    reader.close()


@formats
@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("0\t0\n1\tx\n", "0 16\n1 x\n"), True),
        (("0\t0\t0\n", "0 16 0\n"), True),
        (("0 16\n", "0\t0\n"), False),
        (("\0\1\2\3", "\0\1\2\3"), False),
    ],
    ids=["damaged", "three columns", "another format's", "binary"],
)
def test_what_looks_like_an_index_and_is_none_is_said_so(texts, said, format, tmp_path, caplog):
    path = with_index(tmp_path, format, texts[FORMATS.index(format)])
    with caplog.at_level(logging.WARNING, "adapters"):
        assert read(path) == RECORDS
    assert (f"a.idx is not the index of {path}" in caplog.text) is said


@formats
def test_a_newer_index_may_leave_out_records(format, tmp_path):
    lines = index_text(format, RECORDS).splitlines(keepends=True)
    assert read(with_index(tmp_path, format, "".join(lines[1::2]))) == RECORDS[1::2]


@formats
def test_an_index_that_ends_before_its_file_says_how_many_bytes_lie_behind(
    format, tmp_path, caplog
):
    """They may have been appended since; a choice in the middle is nobody's oversight."""
    lines = index_text(format, RECORDS).splitlines(keepends=True)
    path = with_index(tmp_path, format, "".join(lines[:4]))
    behind = len(encoded(format, RECORDS[4:]))
    with caplog.at_level(logging.WARNING, "adapters"):
        assert read(path) == RECORDS[:4]
    assert f"lists 4 records of {path}, and {behind} bytes lie behind" in caplog.text
    assert "delete the index" in caplog.text


@formats
def test_an_index_that_lists_the_last_record_is_used_without_a_word(format, tmp_path, caplog):
    lines = index_text(format, RECORDS).splitlines(keepends=True)
    with caplog.at_level(logging.WARNING, "adapters"):
        assert read(with_index(tmp_path, format, "".join(lines[1::2]))) == RECORDS[1::2]
    assert caplog.text == ""


@formats
def test_an_older_index_that_lists_a_record_twice_is_not_used(format, tmp_path):
    """Its size would be taken for none."""
    records = [b"%03d" % number for number in range(200)]
    lines = index_text(format, records).splitlines(keepends=True)
    path = written(tmp_path, format, records)
    index_paths(path)[0].write_text("".join(lines[:101] + lines[100:]))
    rewritten(path, path.read_bytes(), False)
    assert read(path) == records


@formats
def test_an_older_index_that_leaves_out_records_is_not_used(format, tmp_path):
    lines = index_text(format, RECORDS).splitlines(keepends=True)
    path = with_index(tmp_path, format, "".join(lines[1::2]), newer=False)
    assert read(path) == RECORDS


@formats
def test_an_older_index_that_leaves_out_records_in_the_middle_is_not_used(format, tmp_path):
    lines = index_text(format, RECORDS).splitlines(keepends=True)
    path = with_index(tmp_path, format, "".join(lines[:2] + lines[4:]), newer=False)
    assert read(path) == RECORDS


@formats
def test_an_older_index_of_many_records_that_leaves_out_one_is_never_silent(format, tmp_path):
    """Not every record is looked at before an index is believed."""
    records = [b"%04d" % number for number in range(1000)]
    path = written(tmp_path, format, records)
    lines = index_text(format, records).splitlines(keepends=True)
    for gone in (1, 5, 500, 998):
        index_paths(path)[0].write_text("".join(lines[:gone] + lines[gone + 1 :]))
        rewritten(path, path.read_bytes())
        assert right_or_damaged(path) in (records, gone - 1)
        index_paths(path)[1].unlink(missing_ok=True)


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
def test_a_file_written_anew_beside_an_old_index_is_read_right(name, newer, format, tmp_path):
    path = with_index(tmp_path, format, index_text(format, RECORDS))
    rewritten(path, encoded(format, OTHERS[name]), newer)
    assert read(path, format) == OTHERS[name]


@formats
@pytest.mark.parametrize("name", ["other sizes", "more records", "fewer records", "no records"])
def test_an_index_that_does_not_fit_is_said_so(name, format, tmp_path, caplog):
    path = with_index(tmp_path, format, index_text(format, RECORDS))
    rewritten(path, encoded(format, OTHERS[name]))
    with caplog.at_level(logging.WARNING, "adapters"):
        read(path, format)
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


@ages
@formats
@pytest.mark.parametrize("texts", list(BROKEN.values()), ids=list(BROKEN))
def test_a_broken_index_is_neither_used_nor_overwritten(texts, format, newer, tmp_path):
    text = texts[FORMATS.index(format)].format(0)
    path = with_index(tmp_path, format, text, newer)
    assert read(path) == RECORDS
    assert (tmp_path / "a.idx").read_text() == text


@formats
def test_the_files_own_index_that_does_not_fit_is_not_overwritten(format, tmp_path):
    path = with_index(tmp_path, format, "broken")
    index_paths(path)[1].write_text("broken, too")
    assert read(path) == RECORDS
    assert index_paths(path)[1].read_text() == "broken, too"


def test_the_only_name_for_an_index_is_not_overwritten(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(encoded("tfrecord", RECORDS))
    (tmp_path / "data.idx").write_text(index_text("recordio", RECORDS))
    assert read(path) == RECORDS
    assert (tmp_path / "data.idx").read_text() == index_text("recordio", RECORDS)


def test_files_of_one_stem_have_an_index_each(tmp_path):
    first = written(tmp_path, "recordio", RECORDS)
    index_written(first)
    second = written(tmp_path, "tfrecord", RECORDS)
    index_written(second)
    assert read(first) == read(second) == RECORDS
    assert sorted(os.listdir(tmp_path)) == ["a.idx", "a.rec", "a.tfrecord", "a.tfrecord.idx"]


@formats
def test_an_index_of_another_file_of_that_stem_and_format_is_not_used(format, tmp_path):
    path = with_index(tmp_path, format, index_text(format, OTHERS["other sizes"]))
    assert read(path) == RECORDS


def test_an_offset_in_a_payload_gives_no_sample(tmp_path):
    """Where the 64 that are looked at leave it out, it is found out by reading."""
    inner = b"a" + recordio.encode(b"inner")
    records = [inner] * 1000
    path = written(tmp_path, "recordio", records)
    offsets = offsets_of("recordio", records)
    offsets[1] = offsets[1] + 9
    assert path.read_bytes()[offsets[1] :][:4] == MAGIC
    index_paths(path)[0].write_text("".join(f"0\t{offset}\n" for offset in offsets))
    rewritten(path, path.read_bytes(), True)
    assert right_or_damaged(path) in (records, 0, 1)


@formats
def test_a_folder_in_the_place_of_an_index_does_no_harm(format, tmp_path):
    path = written(tmp_path, format, RECORDS)
    index_paths(path)[0].mkdir()
    assert read(path) == RECORDS


@formats
def test_a_file_without_records_gets_no_index(format, tmp_path):
    assert read(written(tmp_path, format, [])) == []
    assert os.listdir(tmp_path) == [f"a{SUFFIXES[format]}"]


def test_records_beyond_4_gib_are_found_by_an_index(tmp_path):
    path, at = tmp_path / "a.rec", 2**32 + 8
    with path.open("wb") as file:  # A hole, but for its ends.
        file.write(recordio.encode(b"not listed"))
        file.seek(at)
        file.write(recordio.encode(b"second") + recordio.encode(MAGIC))
    (tmp_path / "a.idx").write_text(f"1\t{at}\n2\t{at + 16}\n")
    os.utime(path, (1, 1))
    assert read(path) == [b"second", MAGIC]


def test_records_beyond_4_gib_are_found_by_scanning(tmp_path):
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


@pytest.mark.serial
@formats
def test_a_million_lines_are_parsed_fast(format):
    offsets = np.arange(1_000_000) * 100_000
    sizes = np.full(1_000_000, 100_000)
    codec = CODECS[format]
    text = index.text_of(index.Index(offsets, sizes), codec)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        parsed = parse(text, codec)
        seconds.append(time.perf_counter() - start)
    assert np.array_equal(parsed.offsets, offsets)
    assert min(seconds) < 3 * 0.3
