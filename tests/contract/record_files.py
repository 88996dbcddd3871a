"""Record files of both formats, without an index beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters import RecordError
from tests.sources.record_files import SUFFIXES, write

RECORDS = [b"record %02d" % number * (1 + number % 3) for number in range(50)]
formats = pytest.mark.parametrize("format", SUFFIXES)


def written(folder: Path, format: str, records: list[bytes], name: str = "a") -> Path:
    path = write(folder / f"{name}{SUFFIXES[format]}", format, records)
    path.with_suffix(".idx").unlink()
    return path


def content_of(folder: Path, format: str, records: list[bytes]) -> bytes:
    path = written(folder, format, records, "made")
    content = path.read_bytes()
    path.unlink()
    return content


def taken_apart(source: object) -> list[bytes | None]:
    found: list[bytes | None] = []
    for number in range(len(source)):  # type: ignore[arg-type]
        try:
            found.append(source[number])  # type: ignore[index]
        except RecordError:
            found.append(None)
    return found
