"""Record files of both formats, without an index beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters import RecordWriter

SUFFIXES = {"recordio": ".rec", "tfrecord": ".tfrecord"}
RECORDS = [b"record %02d" % number * (1 + number % 3) for number in range(50)]
formats = pytest.mark.parametrize("format", SUFFIXES)


def written(folder: Path, format: str, records: list[bytes], name: str = "a") -> Path:
    """A file under this name and the suffix of its format."""
    path = folder / f"{name}{SUFFIXES[format]}"
    with RecordWriter(path, format=format) as writer:
        for record in records:
            writer.write(record)
    path.with_suffix(".idx").unlink()
    return path


def content_of(folder: Path, format: str, records: list[bytes]) -> bytes:
    """The bytes of such a file."""
    path = written(folder, format, records, "made")
    content = path.read_bytes()
    path.unlink()
    return content
