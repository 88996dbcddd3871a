"""Opening writes nothing beside other people's data; indexes are kept in the user's cache."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapters import RecordError, RecordWriter, open_images, open_records
from adapters.cli import main
from tests.sources.image_folders import varied

FORMATS = ("recordio", "tfrecord")
RECORDS = [b"record %02d" % number * (1 + number % 3) for number in range(50)]
formats = pytest.mark.parametrize("format", FORMATS)


def content_of(folder: Path, format: str, records: list[bytes]) -> bytes:
    """What a file of these records holds."""
    with RecordWriter(folder / "made", format=format) as writer:
        for record in records:
            writer.write(record)
    content = (folder / "made").read_bytes()
    for each in folder.glob("made*"):
        each.unlink()
    return content


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, which isn't there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    return tmp_path / "home" / "cache"


def files_below(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


@pytest.mark.parametrize("name", ["part-r-00000", "train-00000-of-00001", "a.rec", "a.tfrecord"])
@formats
def test_record_files_get_nothing_beside_them(format, name, tmp_path, cache):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).write_bytes(content_of(tmp_path, format, RECORDS))
    for _ in range(2):
        with open_records(folder / name) as source:
            assert source[:] == RECORDS
    assert os.listdir(folder) == [name]


def test_a_compressed_file_gets_nothing_beside_it(tmp_path, cache):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "part").write_bytes(gzip.compress(content_of(tmp_path, "tfrecord", RECORDS)))
    assert open_records(folder / "part")[:] == RECORDS
    assert os.listdir(folder) == ["part"]


def test_a_folder_of_images_is_left_as_it_is(tmp_path, cache):
    folder = varied(tmp_path / "photos", 6)
    before = files_below(folder)
    assert len([*open_images(folder)]) == 6
    assert files_below(folder) == before


@formats
def test_what_is_kept_is_private(format, tmp_path, cache):
    path = tmp_path / "a"
    path.write_bytes(content_of(tmp_path, format, RECORDS))
    assert open_records(path)[:] == RECORDS
    (kept,) = files_below(cache)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


@formats
def test_an_index_that_was_kept_is_used(format, tmp_path, cache, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(content_of(tmp_path, format, RECORDS))
    for _ in range(3):
        assert open_records(path)[:] == RECORDS
        (kept,) = files_below(cache)
        os.utime(kept, (1, 1))
    assert open_records(path)[:] == RECORDS
    assert kept.stat().st_mtime > 1  # It was used last, and goes last.


OTHERS: dict[str, Callable[[], list[bytes]]] = {
    "the records in another order": lambda: RECORDS[::-1],
    "another first record": lambda: [b"number 00", *RECORDS[1:]],
    "two records as one": lambda: [RECORDS[0], RECORDS[1] + bytes(8), *RECORDS[3:]],
}


@formats
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("others", list(OTHERS.values()), ids=list(OTHERS))
def test_a_file_of_the_same_size_and_time_is_read_right(others, verify, format, tmp_path, cache):
    path = tmp_path / "a"
    path.write_bytes(content_of(tmp_path, format, RECORDS))
    assert open_records(path, verify=verify)[:] == RECORDS
    before = path.stat()
    content = content_of(tmp_path, format, records := others())
    if len(content) < before.st_size:
        left = before.st_size - len(content)
        overhead = 16 if format == "tfrecord" else 8
        content = content_of(tmp_path, format, records := [*records, bytes(left - overhead)])
    assert len(content) == before.st_size
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert open_records(path, verify=verify)[:] == records


@formats
def test_a_record_that_is_not_looked_at_is_right_or_an_error(format, tmp_path, cache):
    """Of a thousand, 64 are looked at before an index is believed."""
    records = [b"%04d" % number for number in range(1000)]
    path = tmp_path / "a"
    path.write_bytes(content_of(tmp_path, format, records))
    assert open_records(path)[:] == records
    before = path.stat()
    overhead = 16 if format == "tfrecord" else 8
    others = [*records[:500], b"%04d" % 500 + bytes(overhead + 4), *records[502:]]
    path.write_bytes(content_of(tmp_path, format, others))
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    source = open_records(path)
    for number in range(len(source)):
        try:
            assert source[number] in others
        except RecordError:
            assert number in (500, 501)


@formats
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "text", "folder"])
def test_a_damaged_index_is_built_again(damage, format, tmp_path, cache):
    path = tmp_path / "a"
    path.write_bytes(content_of(tmp_path, format, RECORDS))
    assert open_records(path)[:] == RECORDS
    (kept,) = files_below(cache)
    content = bytearray(kept.read_bytes())
    content[-20] ^= 1
    kept.unlink()
    if damage == "folder":
        kept.mkdir()
    else:
        texts = {"flipped": content, "cut": content[:-1], "empty": b"", "text": b"[]\n0 1\n"}
        kept.write_bytes(texts[damage])
    for _ in range(2):
        assert open_records(path)[:] == RECORDS


@formats
def test_a_cache_folder_that_cannot_be_written_to_does_no_harm(format, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = tmp_path / "a"
    path.write_bytes(content_of(tmp_path, format, RECORDS))
    assert open_records(path)[:] == RECORDS
    assert sorted(os.listdir(tmp_path)) == ["a", "file"]


@formats
def test_several_may_open_a_file_at_once(format, tmp_path, cache):
    path = tmp_path / "a"
    path.write_bytes(content_of(tmp_path, format, RECORDS))
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(lambda _: open_records(path)[:], range(16)):
            assert found == RECORDS
    assert len(files_below(cache)) == 1


@formats
def test_an_index_is_written_where_that_is_asked_for(format, tmp_path, cache, capsys):
    path = tmp_path / f"a{'.rec' if format == 'recordio' else '.tfrecord'}"
    path.write_bytes(content_of(tmp_path, format, RECORDS))
    assert main(["verify", "--write-index", str(path)]) == 0
    assert (tmp_path / "a.idx").is_file()
    assert open_records(path)[:] == RECORDS
    assert files_below(cache) == []  # The one beside the file is used.
