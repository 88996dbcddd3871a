"""What isn't a record file is named, with what to do about it; folders of parts are opened."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile

import pytest

from adapters import RecordError, RecordWriter, open_images, open_records
from adapters.cli.main import main

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
PAGE = b'<!DOCTYPE html>\n<html lang="en"><head><title>Sign in</title></head></html>\n'


def snappy_of_hadoop(content: bytes) -> bytes:
    """A block of one part, which is one literal."""
    size = bytes([len(content) & 127 | 128, len(content) >> 7])
    part = size + b"\xf4" + struct.pack("<H", len(content) - 1) + content
    return struct.pack(">II", len(content), len(part)) + part


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("00000.jpg"))
    return buffer.getvalue()


KINDS = {
    "lfs": (POINTER, "git lfs pull"),
    "page": (PAGE, "a web page"),
    "page with a mark": (b"\xef\xbb\xbf\r\n" + PAGE.lower(), "a web page"),
    "answer of a store": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code>', "message"),
    "zstd": (b"\x28\xb5\x2f\xfd\x24\x05abcdefgh", "zstd"),
    "snappy": (b"\xff\x06\x00\x00sNaPpY\x00\x10", "snappy"),
    "snappy of Spark": (snappy_of_hadoop(bytes(5000)), "snappy"),
    "bzip2": (b"BZh91AY&SY", "bzip2"),
    "parquet": (b"PAR1\x15\x04\x15", "Parquet"),
    "tar": (tar(), "tar"),
    "image": (b"\xff\xd8\xff\xe0" + bytes(20), "open_images"),
}


@pytest.mark.parametrize("format", ["auto", "tfrecord", "recordio"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_named_with_the_remedy(tmp_path, kind, format, capsys):
    content, word = KINDS[kind]
    path = tmp_path / "train.tfrecord"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=word) as caught:
        open_records(path, format=format)
    assert caught.value.file == str(path)
    assert main(["inspect", str(path)]) != 0
    assert word in capsys.readouterr().err


def test_what_a_compressed_file_holds_is_named_too(tmp_path):
    path = tmp_path / "train.tfrecord.gz"
    path.write_bytes(gzip.compress(tar()))
    with pytest.raises(RecordError, match="tar archive"):
        open_records(path)


@pytest.mark.parametrize(("content", "word"), [(POINTER, "git lfs pull"), (PAGE, "a web page")])
def test_an_image_file_of_another_kind_is_named_with_the_remedy(tmp_path, content, word):
    path = tmp_path / "1.jpg"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=word):
        open_images([path])[0]


@pytest.fixture
def spark(tmp_path):
    """A folder as Spark writes it: two parts with records, and an empty one."""
    folder = tmp_path / "out"
    folder.mkdir()
    for part, count in enumerate((3, 0, 2)):
        with RecordWriter(folder / f"part-r-{part:05}", format="tfrecord") as writer:
            for number in range(count):
                writer.write(bytes([part, number]))
        (folder / f".part-r-{part:05}.crc").write_bytes(b"crc\0\0\0\x02\0abcd")
    (folder / "part-r-00001").write_bytes(b"")
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "._SUCCESS.crc").write_bytes(b"crc\0\0\0\x02\0")
    for index in folder.glob("*.idx"):
        index.unlink()
    return folder


RECORDS = [b"\0\0", b"\0\1", b"\0\2", b"\2\0", b"\2\1"]


@pytest.mark.parametrize("named", ["out", "out/", "out/*", "out/part-*", "file"])
def test_a_folder_of_parts_is_its_parts(spark, named):
    paths = f"file://{spark}" if named == "file" else str(spark.parent / named)
    assert open_records(paths)[:] == RECORDS
    assert open_records([spark])[:] == RECORDS


def test_the_command_line_takes_a_folder_of_parts(spark, capsys):
    assert main(["inspect", str(spark)]) == 0
    found = capsys.readouterr().out
    assert "part-r-00000: tfrecord, 3 records" in found
    assert "part-r-00001: tfrecord, 0 records" in found
    assert main(["verify", str(spark)]) == 0
    assert "5 records are right, 0 things are wrong" in capsys.readouterr().out


def test_a_folder_without_parts_is_an_error_with_the_remedy(tmp_path):
    (tmp_path / "label=0").mkdir()
    with pytest.raises(FileNotFoundError, match=r"one of folders alone.*part-\*.*open_images"):
        open_records(tmp_path)
    with pytest.raises(FileNotFoundError, match="an empty one"):
        open_records(tmp_path / "label=0")
