"""A damaged record is an error when it is reached; the whole ones before and behind it are read."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from adapters import Feature, ImageDecoder, RecordError, SafeSequence, open_records, pack
from adapters.cli import main
from tests.contract.front_ends import batches_of, loader_of, log_lines
from tests.contract.record_files import RECORDS, formats, taken_apart
from tests.records.materials import SUFFIXES, written
from tests.sources.record_files import damage

verifications = pytest.mark.parametrize("verify", [True, False])


def begins(format: str, records: list[bytes]) -> list[int]:
    """Where each record begins in its file, and where the last one ends."""
    sizes = [
        len(each) + 16 if format == "tfrecord" else 8 + (len(each) + 3 & ~3) for each in records
    ]
    return [0, *np.cumsum(sizes).tolist()]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@verifications
@formats
def test_cut_last_record_is_an_error_when_reached(format, verify, tmp_path):
    path = written(tmp_path, format, RECORDS)
    content, last = path.read_bytes(), begins(format, RECORDS)[-2]
    for size in range(last + 1, len(content)):
        path.write_bytes(content[:size])
        source = open_records(path, verify=verify)
        missing = f"expected {len(content) - last} bytes, found {size - last} before"
        with pytest.raises(RecordError, match=missing if size - last >= 12 else "expected"):
            source[len(RECORDS) - 1]
        assert len(source) == 50
        records = iter(source)
        assert [next(records) for _ in range(49)] == RECORDS[:-1]
        with pytest.raises(RecordError) as raised:
            next(records)
        error = raised.value
        assert (error.file, error.record, error.offset) == (str(path), 49, last)
        assert error.expected
        assert error.found
        source.close()


# They take as much room when they are compressed.
NOISE = [np.random.default_rng(number).bytes(200) for number in range(50)]


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_cut_compressed_file_has_its_whole_records(compress, tmp_path):
    path = written(tmp_path, "tfrecord", NOISE)
    content = compress(path.read_bytes())
    for size in (len(content) // 2, len(content) - 300, len(content) - 3):
        path.write_bytes(content[:size])
        with open_records(path) as source:
            *whole, last = taken_apart(source)
        assert whole == NOISE[: len(whole)]
        assert last is None
        assert len(whole) >= 50 * (size - 350) // len(content)


@verifications
def test_damaged_compressed_file(verify, tmp_path):
    path = written(tmp_path, "tfrecord", NOISE)
    path.write_bytes(gzip.compress(path.read_bytes(), 6))
    damage(path, path.stat().st_size // 2, 0xFF)
    found = taken_apart(open_records(path, verify=verify))
    assert found[:20] == NOISE[:20]
    assert all(each is None or each in NOISE for each in found)
    assert None in found


@formats
def test_index_from_before_hides_nothing(format, tmp_path):
    path = written(tmp_path, format, RECORDS)
    assert main(["verify", "--write-index", str(path)]) == 0
    cut(path)
    assert taken_apart(open_records(path)) == [*RECORDS[:-1], None]


def test_skip_takes_another_record(front_end, tmp_path, log):
    path = written(tmp_path, "tfrecord", RECORDS)
    cut(path)
    source = open_records(path, decode=lambda record: np.float32(record[7:9]))
    with loader_of(front_end, source, 10, on_error="skip") as loader:
        assert np.concatenate(list(batches_of(loader))).tolist() == [*range(49), 0]
    assert any(f"{path}: 1 of 50 records can't be read" in line for line in log_lines(log))


@verifications
@pytest.mark.parametrize("place", [0, 5, 9])
def test_flipped_bit_in_a_length_costs_one_record(place, verify, tmp_path):
    """In the length, or in its CRC."""
    path = written(tmp_path, "tfrecord", RECORDS)
    damage(path, begins("tfrecord", RECORDS)[20] + place, 0x10)
    found = taken_apart(open_records(path, verify=verify))
    expected = [*RECORDS[:20], None, *RECORDS[21:]]
    if not verify and place == 9:  # Without the CRC, nothing is wrong with the length.
        expected = RECORDS
    assert found == expected


@pytest.mark.parametrize("first", [0, 20, 46])
@pytest.mark.parametrize("what", ["zeros", "noise", "removed", "inserted", "its middle removed"])
def test_damaged_stretch_hides_nothing_behind_it(what, first, tmp_path):
    path = written(tmp_path, "tfrecord", RECORDS)
    content, places = path.read_bytes(), begins("tfrecord", RECORDS)
    begin, end = places[first] + 3, places[first + 2] + 5
    noise = np.random.default_rng(1).bytes(end - begin)
    middle = places[first] + 15
    damaged = {
        "zeros": content[:begin] + bytes(end - begin) + content[end:],
        "noise": content[:begin] + noise + content[end:],
        "removed": content[:begin] + content[end:],
        "inserted": content[:begin] + noise + content[begin:],
        "its middle removed": content[:middle] + content[middle + 3 :],
    }[what]
    path.write_bytes(damaged)
    lost = {"inserted": 1, "its middle removed": 1}.get(what, 3)
    found = taken_apart(open_records(path, format="tfrecord"))
    assert found == [*RECORDS[:first], None, *RECORDS[first + lost :]]


@pytest.mark.parametrize("where", ["length", "end"])
@pytest.mark.parametrize("behind", [0, 3])
def test_damaged_record_of_records(where, behind, tmp_path):
    inner = written(tmp_path, "tfrecord", RECORDS[:9], "inner").read_bytes()
    records = [*RECORDS[:5], inner, *RECORDS[5 : 5 + behind]]
    path = written(tmp_path, "tfrecord", records)
    if where == "length":
        damage(path, begins("tfrecord", records)[5], 1)
        expected = [*records[:5], None, *records[6:]]
    else:
        path.write_bytes(path.read_bytes()[: begins("tfrecord", records)[6] - 1])
        expected = [*records[:5], None]
    assert taken_apart(open_records(path)) == expected


@formats
def test_damaged_first_record_hides_no_other(format, tmp_path):
    """The name tells the format then."""
    path = written(tmp_path, format, RECORDS)
    damage(path, 1, 1)
    assert taken_apart(open_records(path)) == [None, *RECORDS[1:]]


@pytest.mark.parametrize("bit", range(64))
def test_damaged_recordio_goes_on_at_the_next_header(bit, tmp_path):
    """Whatever is wrong with a header; there is no CRC, so the record before may be in doubt."""
    path = written(tmp_path, "recordio", RECORDS)
    damage(path, begins("recordio", RECORDS)[20] + bit // 8, 1 << bit % 8)
    found = taken_apart(open_records(path))
    assert found[:19] == RECORDS[:19]
    assert found[-28:] == RECORDS[-28:]
    one = RECORDS[20]
    more = {one[: len(one) ^ 1], one[: len(one) ^ 2], one + b"\0", one + b"\0\0"}  # In its padding.
    assert all(each is None or each in RECORDS or each in more for each in found)


def test_damaged_recordio_of_several_parts(tmp_path):
    magic = bytes.fromhex("0a23d7ce")
    records = [magic * 3 + b"%d" % number + magic for number in range(30)]
    path = written(tmp_path, "recordio", records)
    damage(path, 10 * (path.stat().st_size // 30) + 17, 1)
    found = taken_apart(open_records(path))
    assert found[:9] == records[:9]
    assert found[-19:] == records[-19:]
    assert all(each is None or each in records for each in found)


@formats
def test_damaged_file_without_a_whole_record(format, tmp_path):
    path = written(tmp_path, format, RECORDS[:1])
    cut(path)
    with pytest.raises(RecordError, match="record 0"):
        open_records(path)[:]
    path.write_bytes(b"something else, and nothing of a record" * 9)
    for each in ("auto", format):
        with pytest.raises(RecordError):
            open_records(path, format=each)


@formats
def test_empty_file_has_no_records(format, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    assert len(open_records(path, format=format)) == 0


@formats
def test_commands_give_the_whole_ones_and_a_status(format, tmp_path, capsys):
    path = written(tmp_path, format, RECORDS)
    cut(path)
    message = re.compile(re.escape(f"{path}, record 49, byte ") + r"\d+: expected .+, found .+")

    assert main(["verify", str(path)]) == 1
    said = capsys.readouterr()
    assert message.search(said.out)
    assert "49 good records, 1 problem" in said.out

    other = "tfrecord" if format == "recordio" else "recordio"
    for name in (f"b{SUFFIXES[format]}", f"c{SUFFIXES[other]}"):
        assert main(["convert", str(path), str(tmp_path / name)]) == 1
        said = capsys.readouterr()
        assert message.search(said.err)
        assert "49 records" in said.out
        assert open_records(tmp_path / name)[:] == RECORDS[:-1]

    assert main(["verify", "--write-index", str(path)]) == 1
    said = capsys.readouterr()
    assert message.search(said.out)
    assert "a.idx: 49 records" in said.out
    assert len((tmp_path / "a.idx").read_text().splitlines()) == 49


@formats
def test_commands_leave_out_what_is_damaged(format, tmp_path, capsys):
    path = written(tmp_path, format, RECORDS)
    damage(path, begins(format, RECORDS)[20] + 1, 0xFF)
    assert main(["convert", str(path), str(tmp_path / "b.tfrecord")]) == 1
    found = open_records(tmp_path / "b.tfrecord")[:]
    assert found[:19] == RECORDS[:19]
    assert found[-29:] == RECORDS[-29:]
    assert main(["verify", str(tmp_path / "b.tfrecord")]) == 0
    assert main(["verify", "--write-index", str(path)]) == 1
    assert open_records(path)[:] == found


@formats
def test_commands_refuse_a_file_without_a_whole_record(format, tmp_path, capsys):
    path = written(tmp_path, format, RECORDS[:1])
    cut(path)
    for words in (["verify", "--write-index", path], ["convert", path, tmp_path / "b.rec"]):
        assert main([*map(str, words)]) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name]


SIZE = 40
IMAGES = np.random.default_rng(0).integers(0, 256, (SIZE, 6, 6, 3), np.uint8)
DECODES = {
    "raw images": "image",
    "decoded images": ImageDecoder(6),
    "numbers": {"label": Feature("int64")},
}


@verifications
@pytest.mark.parametrize("where", ["end", "middle"])
@pytest.mark.parametrize("decode", list(DECODES.values()), ids=list(DECODES))
@formats
def test_batches_have_all_but_the_damaged_ones(format, decode, where, verify, tmp_path):
    path = tmp_path / f"a{SUFFIXES[format]}"
    pack((IMAGES, range(SIZE)), path, format=format, encoding="raw")
    path.with_suffix(".idx").unlink()
    number = SIZE - 1 if where == "end" else 20
    if where == "end":
        cut(path)
    else:
        with open_records(path) as whole:
            before = [whole.read(each) for each in range(number)]
        damage(path, begins(format, before)[-1] + 4, 1)
    renamed = isinstance(decode, dict) and format == "tfrecord"
    fields = {"label": "image/class/label"} if renamed else None
    source = open_records(path, decode=decode, fields=fields, verify=verify)
    labels = [*range(number), (number + 1) % SIZE, *range(number + 1, SIZE)]
    for _ in range(2):
        with SafeSequence(source, 8, on_error="skip", workers=2) as sequence:
            batches = [*batches_of(sequence)]
        if isinstance(decode, dict):
            assert [n for batch in batches for n in batch["label"].tolist()] == labels
        else:
            images, found = map(np.concatenate, zip(*batches))
            np.testing.assert_array_equal(images, IMAGES[labels])
            assert found.tolist() == labels
