"""Record files of both formats, without an index beside them."""

from __future__ import annotations

import pytest

from adapters import RecordError
from tests.records.materials import SUFFIXES

RECORDS = [b"record %02d" % number * (1 + number % 3) for number in range(50)]
formats = pytest.mark.parametrize("format", SUFFIXES)


def taken_apart(source: object) -> list[bytes | None]:
    found: list[bytes | None] = []
    for number in range(len(source)):  # type: ignore[arg-type]
        try:
            found.append(source[number])  # type: ignore[index]
        except RecordError:
            found.append(None)
    return found
