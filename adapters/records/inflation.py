"""Streaming decompression of GZIP and ZLIB data."""

from __future__ import annotations

import contextlib
import zlib
from typing import IO, Any

from adapters.errors import RecordError

# Compressed bytes per step; their inflated content is at most a thousand times as long.
_INFLATED_BYTES = 64 << 10
# A small file may fill the disk otherwise: zeros inflate to a thousand times.
_MOST_BYTES, _MOST_TIMES = 1 << 30, 500


def inflate(name: str, compressed: IO[bytes], file: IO[bytes]) -> RecordError | None:
    """Write the inflated data, up to damage if there is any.

    Several members in sequence, with zeros between them, are one stream, as for gzip.

    Returns:
        The error if the data are damaged or truncated, else None.

    Raises:
        RecordError: There is such an error, and nothing could be inflated; or the data inflate to
            more than 1 GiB and 500 times their size.
    """
    damage = _inflated(name, compressed, file)
    if damage is not None and not file.tell():
        raise damage
    return damage


def _inflated(name: str, compressed: IO[bytes], file: IO[bytes]) -> RecordError | None:
    inflater: Any = None
    read = 0
    while block := compressed.read(_INFLATED_BYTES):
        read += len(block)
        while block:
            if inflater is None:
                block = block.lstrip(b"\0")
                if not block:
                    break
                inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # Detects GZIP or ZLIB.
            before = inflater.copy()
            try:
                file.write(inflater.decompress(block))
            except zlib.error as error:
                _write_until_damage(before, block, file)
                at = read - len(block)
                return RecordError(name, None, at, "GZIP or ZLIB data", f"damage: {error}")
            if file.tell() > max(_MOST_BYTES, _MOST_TIMES * read):
                expected = f"data that inflate to at most 1 GiB, or {_MOST_TIMES} times their size"
                raise RecordError(name, None, read, expected, f"{file.tell():,} bytes")
            block = inflater.unused_data
            if inflater.eof:
                inflater = None
    if inflater is None:
        return None
    file.write(inflater.flush())
    return RecordError(name, None, read, "the end of the compressed data", "the file's end")


def _write_until_damage(inflater: Any, block: bytes, file: IO[bytes]) -> None:
    """Write the part of a damaged block that precedes the damage."""
    with contextlib.suppress(zlib.error):
        for place in range(len(block)):
            file.write(inflater.decompress(block[place : place + 1]))
