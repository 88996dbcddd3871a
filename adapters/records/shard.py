"""One record file: its format, told from its content, its index, and its records by number."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, Literal

import numpy as np

from adapters.errors import RecordError
from adapters.records import recordio, tfrecord
from adapters.records.crc import available as crc_available
from adapters.records.index import CODECS, Index, index_of
from adapters.records.storage import InflatedFile, MappedFile

_RECORDIO_BEGINS = recordio.MAGIC.to_bytes(4, "little")
# GZIP, and ZLIB of levels 0 and 1, 2 to 5, 6, and 7 to 9.
_COMPRESSED_BEGINS = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class Shard:
    """The records of one file. Any thread may read; nothing changes but what was checked already.

    Args:
        path: The file.
        format: ``"recordio"``, ``"tfrecord"`` or ``"auto"``.
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
        """``"recordio"`` or ``"tfrecord"``."""
        name: str = self.codec.NAME
        return name

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
        payload: memoryview = self.codec.read(self.storage, offset, number, verify, size)
        if verify:
            self.checked[number] = True
        return payload

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "codec": self.format}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, codec=CODECS[state["codec"]])

    def close(self) -> None:
        """Unmap the file; reading opens it again."""
        self.storage.close()


def _readable(storage: MappedFile, codec: ModuleType) -> Index:
    offsets, position = [], 0
    while position < storage.size:
        try:
            end = codec.end(storage, position)
        except RecordError:
            break
        offsets.append(position)
        position = end
    return Index(np.array(offsets, np.int64), None)


def _opened(path: str | os.PathLike[str], format: str) -> tuple[MappedFile, ModuleType]:
    """The file's bytes, inflated where they are compressed, and its format."""
    storage = MappedFile(path)
    head = bytes(storage.read(0, 16))
    if format == recordio.NAME:
        return storage, recordio
    if format == "auto" and head.startswith(_RECORDIO_BEGINS):
        # The length of a TFRecord may begin like that: three gigabytes and more.
        is_length = crc_available and tfrecord.begins_here(head)
        return storage, tfrecord if is_length else recordio
    if head and tfrecord.begins_here(head):  # Which may as well look compressed.
        return storage, tfrecord
    if head.startswith(_COMPRESSED_BEGINS):
        inflated = InflatedFile(path)
        head = bytes(inflated.read(0, 16))
        if not head or tfrecord.begins_here(head) or format == tfrecord.NAME:
            return inflated, tfrecord
        raise RecordError(inflated.name, None, 0, "a compressed TFRecord", f"{head.hex(' ')} in it")
    if format == "auto" and head:
        raise RecordError(storage.name, None, 0, "a RecordIO or TFRecord file", head.hex(" "))
    return storage, CODECS.get(format, tfrecord)
