"""GZIP and ZLIB data, inflated a piece at a time."""

from __future__ import annotations

import zlib
from typing import IO, Any

from adapters.errors import RecordError

# Of compressed data; a thousandfold of it at most is in memory.
_INFLATED_BYTES = 64 << 10


def inflate(name: str, compressed: IO[bytes], file: IO[bytes]) -> None:
    """Write what compressed data hold.

    Several members after each other, with zeros between them, are one stream, as gzip has it.
    """
    inflater: Any = None
    read = 0
    while block := compressed.read(_INFLATED_BYTES):
        read += len(block)
        while block:
            if inflater is None:
                block = block.lstrip(b"\0")
                if not block:
                    break
                inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # GZIP or ZLIB, by its header.
            try:
                file.write(inflater.decompress(block))
            except zlib.error as error:
                raise RecordError(
                    name, None, read - len(block), "GZIP or ZLIB data", f"damage: {error}"
                ) from error
            block = inflater.unused_data
            if inflater.eof:
                inflater = None
    if inflater is not None:
        raise RecordError(name, None, read, "the end of the compressed data", "the file's end")
