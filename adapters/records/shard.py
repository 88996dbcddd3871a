"""One record file: its format, told from its content, its index, and its records by number."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np

from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.formats import CODECS
from adapters.records.index import Index
from adapters.records.sidecar import index_of
from adapters.records.storage import InflatedFile, MappedFile

# GZIP, and ZLIB of levels 0 and 1, 2 to 5, 6, and 7 to 9.
_COMPRESSED_BEGINS = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class Shard:
    """The records of one file. Any thread may read; nothing changes but what was checked already.

    Args:
        path: The file.
        format: One of ``CODECS``, or ``"auto"``.
        verify: Check a record's CRC the first time that it is read.
        index: Where the records are. None: what the index beside the file says, which is written
            where there is none. "search": what the file itself says; "readable": that, up to the
            first record of which the end can't be told.

    Raises:
        OSError: The file can't be read.
        RecordError: It is of neither format, or damaged so that it can't be indexed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str,
        verify: bool,
        index: Index | Literal["search", "readable"] | None = None,
    ) -> None:
        self.storage, self.codec = _opened(path, format)
        self.verify = verify
        if index == "search" or (index is None and isinstance(self.storage, InflatedFile)):
            index = Index(*self.codec.scan(self.storage, verify))
        elif index == "readable":
            index = _readable(self.storage, self.codec)
        elif index is None:
            index = index_of(self.storage, self.codec, verify)
        self.offsets = index.offsets
        self.sizes = index.sizes
        # Of a record whose CRC was right once; threads that check twice do no harm.
        self.checked = np.full(len(self.offsets), not verify)

    @property
    def format(self) -> str:
        """The name of its codec."""
        return self.codec.name

    def __len__(self) -> int:
        return len(self.offsets)

    def read(self, number: int) -> memoryview:
        """The payload of record ``number``, from 0; valid for as long as it is held.

        Raises:
            RecordError: The record is damaged.
        """
        verify = not self.checked[number]
        offset = int(self.offsets[number])
        size = None if self.sizes is None else int(self.sizes[number])
        payload = self.codec.read(self.storage, offset, number, verify, size)
        if verify:
            self.checked[number] = True
        return payload

    def will_read(self, first: int, last: int) -> None:
        """Have the storage read ahead where records ``first`` to ``last - 1`` lie, if it can."""
        ahead = getattr(self.storage, "will_read", None)
        if ahead is not None:
            begin = int(self.offsets[first])
            end = int(self.offsets[last]) if last < len(self) else self.storage.size
            ahead(begin, end - begin)

    def close(self) -> None:
        """Unmap the file; reading opens it again."""
        self.storage.close()


def _readable(storage: MappedFile, codec: Codec) -> Index:
    offsets, position = [], 0
    while position < storage.size:
        try:
            end = codec.end(storage, position)
        except RecordError:
            break
        offsets.append(position)
        position = end
    return Index(np.array(offsets, np.int64), None)


def _opened(path: str | os.PathLike[str], format: str) -> tuple[MappedFile, Codec]:
    """The file's bytes, inflated where they are compressed, and its format."""
    storage = MappedFile(path)
    head = bytes(storage.read(0, 16))
    asked = [*CODECS.values()] if format == "auto" else [CODECS[format]]
    if format != "auto" and not asked[0].compressible:
        return storage, asked[0]
    if found := _begun(head, asked):  # Which may as well look compressed.
        return storage, found[0]
    if head.startswith(_COMPRESSED_BEGINS):
        inflated = InflatedFile(path)
        head = bytes(inflated.read(0, 16))
        compressible = [codec for codec in asked if codec.compressible]
        if found := _begun(head, compressible):
            return inflated, found[0]
        if not head or format != "auto":
            return inflated, compressible[0]
        titles = _titles(compressible)
        raise RecordError(
            inflated.name, None, 0, f"a compressed {titles}", f"{head.hex(' ')} in it"
        )
    if format == "auto" and head:
        raise RecordError(storage.name, None, 0, f"a {_titles(asked)} file", head.hex(" "))
    return storage, asked[0]


def _titles(codecs: list[Codec]) -> str:
    return " or ".join(sorted(codec.title for codec in codecs))


def _begun(head: bytes, codecs: list[Codec]) -> list[Codec]:
    """Those of the formats that a file may have which begins like that.

    Raises:
        ImportError: It may be one that needs a library which isn't installed, and is no other.
    """
    found, obstacle = [], None
    for codec in codecs:
        try:
            if head and codec.begins(head):
                found.append(codec)
        except ImportError as error:
            obstacle = error
    if obstacle is not None and not found:
        raise obstacle
    return found
