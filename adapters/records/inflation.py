"""Streaming decompression of GZIP and ZLIB data."""

from __future__ import annotations

import contextlib
import zlib
from typing import IO, Any

from adapters.errors import RecordError

# Compressed bytes per step; their inflated content is at most a thousand times as long.
_INFLATED_BYTES = 64 << 10


def inflate(name: str, compressed: IO[bytes], file: IO[bytes]) -> RecordError | None:
    """Write the inflated data, up to damage if there is any.

    Several members in sequence, with zeros between them, are one stream, as for gzip.

    Returns:
        The error if the data are damaged or truncated, else None.

    Raises:
        RecordError: There is such an error, and nothing could be inflated.
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
