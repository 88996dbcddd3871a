"""Files compressed as a whole with GZIP or ZLIB, inflated into unnamed temporary files."""

from __future__ import annotations

import contextlib
import tempfile
import zlib
from typing import IO, Any

from adapters.errors import RecordError
from adapters.records.remotefile import RemoteFile
from adapters.records.storage import MappedFile, Storage, inflated_files

# Compressed bytes per step; their inflated content is at most a thousand times as long.
_INFLATED_BYTES = 64 << 10
# A small file may fill the disk otherwise: zeros inflate to a thousand times.
_MOST_BYTES, _MOST_TIMES = 1 << 30, 500


class InflatedFile(MappedFile):
    """Content of a compressed file, in an unnamed temporary file that exists while mapped.

    Args:
        source: The compressed file, local or remote. Each process inflates it for itself.
    """

    damage: RecordError | None = None
    """Error in the compressed data; everything before it was inflated."""
    _registry = inflated_files

    def __init__(self, source: MappedFile | RemoteFile) -> None:
        self.source = source
        self.name, self.size, self.changed_ns = source.name, source.size, source.changed_ns
        self.path = ""  # The inflated content has no name.
        self._view = self._map = None
        self.whole_view()

    def will_read(self, offset: int, size: int) -> None:
        """Do nothing: the inflated bytes are at hand."""

    def _readable(self) -> IO[bytes]:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it is the caller's to close.
        try:
            self.damage = inflate(self.source.stream(), file)
            self.source.close()
            self.size = file.tell()
            file.flush()
            return file
        except BaseException:
            file.close()
            raise


def inflate(compressed: Storage, file: IO[bytes]) -> RecordError | None:
    """Write the inflated data, up to damage if there is any.

    Several members in sequence, with zeros between them, are one stream, as for gzip.

    Returns:
        The error if the data are damaged or truncated, else None.
    """
    damage = _inflated(compressed, file)
    if damage is not None and not file.tell():
        raise damage
    return damage


def _inflated(compressed: Storage, file: IO[bytes]) -> RecordError | None:
    inflater: Any = None
    name, read = compressed.name, 0
    while read < compressed.size:
        block = bytes(compressed.read(read, _INFLATED_BYTES))
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
                with contextlib.suppress(zlib.error):  # The part that precedes the damage.
                    for place in range(len(block)):
                        file.write(before.decompress(block[place : place + 1]))
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
