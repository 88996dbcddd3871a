"""Opening writes nothing; what isn't a record file is named; each URL asks for its own object."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import os
import pickle
import stat
import struct
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapters import RecordError, open_images, open_records
from adapters.cli import main
from adapters.remote.clients import forget
from tests.contract.record_files import RECORDS, formats, taken_apart
from tests.records.materials import encoded, written
from tests.remote.rangeserver import RangeServer
from tests.sources.image_folders import varied
from tests.sources.record_files import write


@pytest.fixture
def path(tmp_path: Path, format: str) -> Path:
    """A record file whose name tells no format."""
    path = tmp_path / "a"
    path.write_bytes(encoded(format, RECORDS))
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    return tmp_path / "home" / "cache"


def files_below(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


def indexes_in(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.seg"))


@pytest.mark.parametrize("name", ["part-r-00000", "a.rec", "a.tfrecord"])
@formats
def test_nothing_is_written_beside_record_files(format, name, tmp_path, cache):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).write_bytes(encoded(format, RECORDS))
    for _ in range(2):
        with open_records(folder / name) as source:
            assert source[:] == RECORDS
    assert os.listdir(folder) == [name]


def test_nothing_is_written_into_a_folder_of_images(tmp_path, cache):
    folder = varied(tmp_path / "photos", 6)
    before = files_below(folder)
    assert len([*open_images(folder)]) == 6
    assert files_below(folder) == before


@formats
def test_kept_index_is_private_and_used(path, cache):
    for _ in range(3):
        assert open_records(path)[:] == RECORDS
        (kept,) = indexes_in(cache)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
        os.utime(kept, (1, 1))
    assert open_records(path)[:] == RECORDS
    assert kept.stat().st_mtime > 1  # It was used last, and goes last.


OVERHEAD = {"tfrecord": 16, "recordio": 8}
OTHERS = {
    "the records in another order": RECORDS[::-1],
    "another first record": [b"number 00", *RECORDS[1:]],
    "two records as one": [RECORDS[0], RECORDS[1] + bytes(8), *RECORDS[3:]],
}


def overwrite(path: Path, content: bytes) -> None:
    before = path.stat()
    path.write_bytes(content)
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@formats
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("others", OTHERS)
def test_kept_index_of_a_file_of_the_same_size_and_time(
    others, verify, format, tmp_path, cache, path
):
    assert open_records(path, verify=verify)[:] == RECORDS
    records = OTHERS[others]
    content = encoded(format, records)
    if len(content) < path.stat().st_size:
        filler = bytes(path.stat().st_size - len(content) - OVERHEAD[format])
        content = encoded(format, records := [*records, filler])
    overwrite(path, content)
    assert open_records(path, verify=verify)[:] == records


@formats
def test_kept_index_of_records_not_looked_at(format, tmp_path, cache):
    """Of a thousand, 64 are looked at before an index is believed."""
    records = [b"%04d" % number for number in range(1000)]
    path = tmp_path / "a"
    path.write_bytes(encoded(format, records))
    assert open_records(path)[:] == records
    others = [*records[:500], b"%04d" % 500 + bytes(OVERHEAD[format] + 4), *records[502:]]
    overwrite(path, encoded(format, others))
    found = taken_apart(open_records(path))
    assert all(record in others for record in found if record is not None)
    assert {number for number, record in enumerate(found) if record is None} <= {500, 501}


@formats
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "text", "folder"])
def test_kept_index_that_is_damaged_is_built_again(damage, path, cache):
    assert open_records(path)[:] == RECORDS
    (kept,) = indexes_in(cache)
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
def test_cache_folder_that_cannot_be_written_to(tmp_path, monkeypatch, path):
    (tmp_path / "file").write_bytes(b"no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert open_records(path)[:] == RECORDS
    assert sorted(os.listdir(tmp_path)) == ["a", "file"]


@formats
def test_several_open_a_file_at_once(path, cache):
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(lambda _: open_records(path)[:], range(16)):
            assert found == RECORDS
    assert len(indexes_in(cache)) == 1


@formats
def test_index_is_written_if_asked(format, tmp_path, cache, capsys):
    path = written(tmp_path, format, RECORDS)
    assert main(["verify", "--write-index", str(path)]) == 0
    assert (tmp_path / "a.idx").is_file()
    assert open_records(path)[:] == RECORDS
    assert files_below(cache) == []  # The one beside the file is used.


# --- what isn't a record file ---

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
PAGE = b'<!DOCTYPE html>\n<html lang="en"><head><title>Sign in</title></head></html>\n'


# A block of one part, which is one literal.
SPARK = struct.pack(">II", 5000, 5005) + b"\x88\x27\xf4\x87\x13" + bytes(5000)
KINDS = {
    "lfs": (POINTER, "git lfs pull"),
    "page": (PAGE, "a web page"),
    "page with a mark": (b"\xef\xbb\xbf\r\n" + PAGE.lower(), "a web page"),
    "answer of a store": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code>', "message"),
    "zstd": (b"\x28\xb5\x2f\xfd\x24\x05abcdefgh", "zstd"),
    "snappy": (b"\xff\x06\x00\x00sNaPpY\x00\x10", "snappy"),
    "snappy of Spark": (SPARK, "snappy"),
    "bzip2": (b"BZh91AY&SY", "bzip2"),
    "parquet": (b"PAR1\x15\x04\x15", "Parquet"),
    "tar": (tarfile.TarInfo("00000.jpg").tobuf() + bytes(1024), "tar"),
    "image": (b"\xff\xd8\xff\xe0" + bytes(20), "open_images"),
    "npz": (b"PK\x03\x04" + bytes(26) + b"x.npy" + bytes(20), "numpy.load"),
    "pickle": (pickle.dumps([1]), "a pickle: load it"),
    "arrow stream": (b"\xff\xff\xff\xff\xf8\0\0\0\x10\0\0\0", "pyarrow"),
    "json": (b'{"a": [1, 2]}\n{"a": [3]}\n', "JSON: load it"),
    "csv": (b"file,label\nant/1.jpg,3\n", "open_images"),
}


@pytest.mark.parametrize(
    ("kind", "format"),
    [*((kind, "auto") for kind in KINDS), ("lfs", "tfrecord"), ("page", "recordio")],
)
def test_file_of_another_kind_is_named(tmp_path, kind, format, capsys):
    content, word = KINDS[kind]
    path = tmp_path / "train.tfrecord"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=word) as caught:
        open_records(path, format=format)
    assert caught.value.file == str(path)
    assert main(["inspect", str(path)]) != 0
    assert word in capsys.readouterr().err


def test_file_of_another_kind_compressed(tmp_path):
    path = tmp_path / "train.tfrecord.gz"
    path.write_bytes(gzip.compress(KINDS["tar"][0]))
    with pytest.raises(RecordError, match="tar archive"):
        open_records(path)
    path.write_bytes(gzip.compress(written(tmp_path, "recordio", RECORDS).read_bytes()))
    with pytest.raises(RecordError, match="a RecordIO, which is read only uncompressed"):
        open_records(path)


@pytest.mark.parametrize("kind", ["lfs", "page"])
def test_image_file_of_another_kind(tmp_path, kind):
    content, word = KINDS[kind]
    path = tmp_path / "1.jpg"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=word):
        open_images([path])[0]


@pytest.fixture
def spark(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    for part, count in enumerate((3, 0, 2)):
        path, records = folder / f"part-r-{part:05}", [bytes([part, n]) for n in range(count)]
        write(path, "tfrecord", records).with_suffix(".idx").unlink()
        (folder / f".{path.name}.crc").write_bytes(b"crc\0\0\0\x02\0abcd")
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / ".staging").mkdir()
    (folder / "._SUCCESS.crc").write_bytes(b"crc\0\0\0\x02\0")
    return folder


PARTS = [b"\0\0", b"\0\1", b"\0\2", b"\2\0", b"\2\1"]


@pytest.mark.parametrize("named", ["out", "out/", "out/*", "out/part-*", "file"])
def test_folder_of_parts(spark, named):
    paths = f"file://{spark}" if named == "file" else str(spark.parent / named)
    assert open_records(paths)[:] == PARTS
    assert open_records([spark])[:] == PARTS


def test_folder_of_parts_on_the_command_line(spark, capsys):
    assert main(["inspect", str(spark)]) == 0
    found = capsys.readouterr().out
    assert "part-r-00000: tfrecord, 3 records" in found
    assert "part-r-00001: empty, 0 records" in found
    assert main(["verify", str(spark)]) == 0
    assert "5 good records, 0 problems" in capsys.readouterr().out


def test_folder_without_parts_is_an_error(tmp_path):
    (tmp_path / "label=0").mkdir()
    with pytest.raises(FileNotFoundError, match=r"which holds only folders.*part-\*.*open_images"):
        open_records(tmp_path)
    with pytest.raises(FileNotFoundError, match="an empty one"):
        open_records(tmp_path / "label=0")


# --- URLs ---


@pytest.fixture(scope="session")
def loop() -> None:
    """The thread of fsspec's own, which stays, where fsspec is installed."""
    pytest.importorskip("obstore")
    with contextlib.suppress(ImportError):
        importlib.import_module("fsspec.asyn").get_loop()


@pytest.fixture
def server(loop):
    with RangeServer() as serving:
        yield serving
    forget()


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("a#1.rec", "a%231.rec"),
        ("a%231.rec", "a%231.rec"),
        ("b/#/c.rec", "b/%23/c.rec"),
        ("d.rec?X-Sig=a%2Fb&e=1", "d.rec?X-Sig=a%2Fb&e=1"),
        ("e#2.rec?X-Sig=1", "e%232.rec?X-Sig=1"),
    ],
)
def test_url_asks_for_its_own_object(server, tmp_path, name, asked):
    if "?" in asked:
        pytest.importorskip("aiohttp")
    for shortened in (asked.partition("%23")[0], asked.partition("?")[0]):
        server.objects[shortened] = encoded("recordio", [b"wrong"])
    server.objects[asked] = encoded("recordio", [b"right"])
    with open_records(server.url(name)) as records:
        assert records[:] == [b"right"]


WITHOUT = [
    ("http://h/a.rec?X-Sig=secret", "aiohttp"),
    ("http://h/a.rec?X-Sig=secret", "aiohttp", "fsspec"),
    ("http://h/a.rec", "obstore", "fsspec"),
    ("http://h/a.rec", "obstore", "aiohttp"),
    ("s3://bucket/a.rec", "obstore", "s3fs"),
    ("gs://bucket/a.rec", "obstore", "fsspec"),
]
# Each in a process of its own, for which nothing is imported anew.
MISSING = """
import json, os, sys
from adapters import open_records
for url, *missing in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    sys.modules.update(dict.fromkeys(missing))
    try:
        open_records(url)
    except ImportError as error:
        print(error, flush=True)
    os._exit(0)
"""


def test_url_without_its_package_names_the_extra(loop):
    command = [sys.executable, "-c", MISSING, json.dumps(WITHOUT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert len(said) == len(WITHOUT)
    assert all("pip install 'loader-adapters[remote]'" in line for line in said)
    assert "secret" not in done.stdout


@pytest.mark.parametrize(
    ("root", "name", "opened", "status"),
    [
        ("s3://bucket", "train-*.rec", open_records, "401 Unauthorized"),
        ("s3://bucket", "out/", open_images, "403 Forbidden"),
        ("http", "train-*.rec", open_records, "403 Forbidden"),
        ("http", "out/", open_records, "401 Unauthorized"),
        ("http", "out/", open_images, "403 Forbidden"),
    ],
)
def test_url_that_is_denied_is_a_permission_error(server, monkeypatch, root, name, opened, status):
    server.settings.status = status
    for variable, value in {
        "AWS_ENDPOINT_URL": server.url().rstrip("/"),
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(variable, value)
    forget()
    with pytest.raises(PermissionError, match="the store refuses") as caught:
        opened(f"{server.url('x') if root == 'http' else root}/{name}")
    assert name.rstrip("/") in str(caught.value.filename)
