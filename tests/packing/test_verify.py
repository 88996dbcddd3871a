"""Every kind of damage is found, named, and never a traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from adapters import pack
from adapters.packing import verify
from adapters.records import CODECS, RecordFiles, example
from tests.packing.materials import FORMATS, SUFFIXES, image, jpeg
from tests.sources.record_files import damage, write

IMAGES = 4


def made(place: Path, format: str, **options: object) -> Path:
    path = place / f"x{SUFFIXES[format]}"
    pack([(jpeg(number), number) for number in range(IMAGES)], path, format=format, **options)
    return path


def problems(path: Path) -> list[str]:
    return verify(path)[1]


# --- what is right ---


@pytest.mark.parametrize(("format", "encoding"), [("recordio", "jpeg"), ("tfrecord", "raw")])
def test_right_files(tmp_path, format, encoding):
    seen: list[tuple[int, int]] = []
    path = made(tmp_path, format, encoding=encoding)
    assert verify(path, lambda *counts: seen.append(counts)) == (IMAGES, [])
    assert seen == [(done, IMAGES) for done in range(1, IMAGES + 1)]
    made(tmp_path, format, encoding=encoding, shard_bytes=1500)
    files, manifest = tmp_path / f"x-*{SUFFIXES[format]}", tmp_path / "x.json"
    assert verify(manifest) == (IMAGES, [])
    assert verify([files, manifest, f"{tmp_path}/./x-*"]) == (IMAGES, [])  # Each file once.


def test_right_records_without_images(tmp_path):
    write(tmp_path / "x.tfrecord", "tfrecord", [b"", b"abc", example.encode({"word": "x"})])
    assert verify(tmp_path / "x.tfrecord") == (3, [])
    floats = image(0).astype("float32")
    pack([(floats, 1)], tmp_path / "x.rec", format="recordio", encoding="raw")
    assert verify(tmp_path / "x.rec") == (1, [])


# --- damage ---


@pytest.mark.parametrize(
    ("format", "at", "expected"),
    [
        ("recordio", 0, "record 0, byte 0: expected the magic number"),
        ("tfrecord", 0, "record 0, byte 0: .* the CRC of the length"),
        ("tfrecord", 500, "the CRC of the data"),
        ("tfrecord", -1, f"record {IMAGES - 1}, byte .* the CRC of the data"),
    ],
)
def test_flipped_bit_has_its_place(tmp_path, format, at, expected):
    path = made(tmp_path, format)
    damage(path, at, 2)
    found = problems(path)
    assert found[0].startswith(str(path))
    assert re.search(expected, found[0])


@pytest.mark.parametrize("format", FORMATS)
def test_cut_between_records_is_found_by_the_index(tmp_path, format):
    path = made(tmp_path, format)
    end = int(RecordFiles(path).shards[0].offsets[-1])
    path.write_bytes(path.read_bytes()[:end])
    assert [line for line in problems(path) if "doesn't fit" in line]
    path.write_bytes(b"")
    assert f"{path}: no records" in problems(path)


@pytest.mark.parametrize(
    ("format", "number", "content"),
    [
        ("recordio", 0, jpeg(1)[:-300]),
        ("tfrecord", 0, b"no image"),
        ("recordio", IMAGES - 1, b""),
        ("tfrecord", IMAGES - 1, jpeg(1)[:2]),
    ],
)
def test_damaged_image_is_named(tmp_path, format, number, content):
    """Also the first one, by which a file may be told to be full of images."""
    path = tmp_path / f"x{SUFFIXES[format]}"
    envelope = CODECS[format].envelope
    contents = [content if each == number else jpeg(each) for each in range(IMAGES)]
    write(path, format, (envelope.pack(each, n, n) for n, each in enumerate(contents)))
    good, (found,) = verify(path)
    assert (good, found.split(", byte")[0]) == (IMAGES - 1, f"{path}, record {number}")


# --- manifests ---


def test_manifest_names_all_unreadable_and_changed_files(tmp_path):
    made(tmp_path, "recordio", shard_bytes=1500)
    first, second, *_, last = sorted(tmp_path.glob("*.rec"))
    first.unlink()
    first.mkdir()
    write(second, "recordio", [b"another"])  # It is right in itself.
    last.unlink()
    found = problems(tmp_path / "x.json")
    expected = [f"{first}: Is a directory", f"{second}: SHA-256 ", f"{last}: No such file"]
    assert [line[: len(start)] for line, start in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"read": 9}, "9 read, but 4 packed and 0 skipped"),
        ({"packed": 3, "read": 3}, "3 packed, but 4 in its files"),
        ({"files": 5}, "is not a manifest"),
        ({"read": "many"}, "many read, but 4 packed"),
    ],
)
def test_manifest_that_contradicts_itself(tmp_path, change, expected):
    made(tmp_path, "recordio")
    content = json.loads((tmp_path / "x.json").read_text())
    (tmp_path / "x.json").write_text(json.dumps({**content, **change}))
    assert [line for line in problems(tmp_path / "x.json") if expected in line]
