"""One record file: its detected format, its index, and its records by number."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.formats import CODECS, codec_of
from adapters.records.index import Index, searched
from adapters.records.remotefile import RemoteFile
from adapters.records.sidecar import index_of
from adapters.records.storage import InflatedFile, MappedFile
from adapters.remote import Cache, is_url
from adapters.remote.urls import ListedUrl, clean
from adapters.signatures import HEAD_BYTES, recognized, supposed

log = logging.getLogger("adapters")

# Shown in the error for an unknown format.
_SHOWN_BYTES = 16
# GZIP, and ZLIB with levels 0 and 1, 2 to 5, 6, and 7 to 9.
_COMPRESSED_BEGINS = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class Shard:
    """Records of one file. Thread-safe; only the marks of checked records change.

    Args:
        path: The file.
        format: One of ``CODECS``, or ``"auto"``.
        verify: Check a record's CRC the first time it is read.
        index: Positions of the records. None: use the index next to the file, or scan the file if
            there is none. "search": scan the file.
        cache: Cache for the bytes that are read.

    Raises:
        OSError: The file can't be read.
        RecordError: The file has neither format, or holds no whole record, unless it is empty.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str,
        verify: bool,
        index: Index | Literal["search"] | None = None,
        cache: Cache | None = None,
    ) -> None:
        storage, self.codec = _opened(path, format, cache)
        self.storage = storage
        if index == "search" or (index is None and isinstance(storage, InflatedFile)):
            index = searched(storage.stream(), self.codec, verify)
        elif index is None:
            index = index_of(storage, self.codec, verify)
        if isinstance(storage, InflatedFile) and storage.damage is not None:
            index = _cut_short(index, storage.name, storage.size, storage.damage)
        self.offsets = index.offsets
        self.sizes = index.sizes
        self.damage: Mapping[int, RecordError] = dict(index.damage)
        """Errors of damaged records by record number."""
        # Records whose CRC has been checked; checking twice in two threads is harmless. In a
        # damaged file, all records are checked.
        self.checked = np.full(len(self.offsets), not verify and not self.damage)
        if self.damage:
            log.warning(
                "%s: %d of %d records can't be read, as the file is damaged: %s",
                storage.name,
                len(self.damage),
                len(self.offsets),
                next(iter(self.damage.values())),
            )

    @property
    def format(self) -> str:
        """Name of its codec."""
        return self.codec.name

    def __len__(self) -> int:
        return len(self.offsets)

    def read(self, number: int) -> memoryview:
        """Return the payload of record ``number``, counted from 0; valid as long as it is held."""
        if number in self.damage:
            raise RecordError(*self.damage[number].args)
        verify = not self.checked[number]
        offset = int(self.offsets[number])
        size = None if self.sizes is None else int(self.sizes[number])
        if isinstance(self.storage, RemoteFile):
            self.storage.fetched_view(*self.extents(np.array([number])))
        self.check_length()
        payload = self.codec.read(self.storage, offset, number, verify, size)
        self.checked[number] = True
        return payload

    def check_length(self) -> None:
        """Raise a ``RecordError`` if the file was truncated since it was opened."""
        if isinstance(self.storage, MappedFile) and self.storage.is_truncated():
            raise self.storage.changed(os.stat(self.storage.path))

    @functools.cached_property
    def is_in_order(self) -> bool:
        """True if the records lie in the order of their numbers; an index may differ."""
        return bool((self.offsets[1:] > self.offsets[:-1]).all())

    def stretch(self, first: int, last: int) -> tuple[int, int]:
        """Return the offset and the size in bytes of records ``first`` to ``last - 1``."""
        begin = self.begin_of(first)
        end = self.begin_of(last) if last < len(self) else self.storage.size
        return begin, end - begin

    def without(self, numbers: Iterable[int]) -> Index:
        """Index of all records but these, such as damaged ones."""
        left = np.delete(np.arange(len(self)), [*numbers])
        return Index(self.offsets[left], None if self.sizes is None else self.sizes[left])

    def begin_of(self, number: int) -> int:
        """Return the offset of a record, or of the damage in its place.

        At the end of truncated compressed data, this is an offset in them; others are in the
        inflated data.
        """
        damage = self.damage.get(number)
        return int(self.offsets[number]) if damage is None else damage.offset

    def extents(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the offsets of these records, and the most bytes that are read of each."""
        return self.offsets[numbers], self._most_bytes[numbers]

    @functools.cached_property
    def _most_bytes(self) -> NDArray[np.int64]:
        """Sizes of records; without those, the next one's header is read, too, which is checked."""
        if self.sizes is not None:
            return self.sizes
        starts = np.unique(self.offsets)
        ends = np.append(starts[1:], self.storage.size)
        found: NDArray[np.int64] = ends[np.searchsorted(starts, self.offsets)] - self.offsets
        return found + self.codec.header_bytes

    def close(self) -> None:
        """Unmap the file; reading opens it again."""
        self.storage.close()


def _cut_short(index: Index, name: str, size: int, found: RecordError) -> Index:
    """Add an inflated file's damage to its index, as another record or for the last damaged one."""
    number = len(index.offsets)
    if number - 1 in index.damage:
        number -= 1
    else:
        sizes = None if index.sizes is None else np.append(index.sizes, 1)
        index = Index(np.append(index.offsets, size), sizes, index.damage)
    error = RecordError(name, number, found.offset, found.expected, found.found)
    return index._replace(damage={**index.damage, number: error})


def _opened(
    path: str | os.PathLike[str], format: str, cache: Cache | None
) -> tuple[MappedFile | RemoteFile, Codec]:
    """Open the file, inflate it if it is compressed, and detect its format."""
    storage: MappedFile | RemoteFile
    if cache is not None or is_url(path):
        head = path.head if isinstance(path, ListedUrl) else None
        storage = RemoteFile(os.fspath(path), cache, head)
    else:
        storage = MappedFile(path)
    begin = bytes(storage.read(0, HEAD_BYTES))
    asked = [*CODECS.values()] if format == "auto" else [CODECS[format]]
    if found := _begun(begin, asked):  # It may look compressed, too.
        return storage, found
    compressible = [codec for codec in asked if codec.compressible]
    if compressible and begin.startswith(_COMPRESSED_BEGINS):
        storage = InflatedFile(storage)
        begin = bytes(storage.read(0, HEAD_BYTES))
        if found := _begun(begin, compressible):
            return storage, found
        if storage.damage is not None:
            raise storage.damage
        if not begin or format != "auto":  # Empty, or damaged.
            return storage, compressible[0]
        expected = f"a compressed {_titles(compressible)}"
        shown = f"{_shown(begin)} in it"
        if found := _begun(begin, asked):
            shown = f"a {found.title}, which is read only uncompressed: decompress it"
        raise RecordError(storage.name, None, 0, expected, shown)
    other = recognized(begin)
    if not other and (format != "auto" or not begin):
        # A damaged file of the given format, or an empty one, which has no records in any format.
        return storage, asked[0]
    # If the file's start is damaged, its suffix names the format, and records of it must follow.
    codec = None if other or format != "auto" else codec_of(clean(os.fspath(path)))
    following = None if codec is None else codec.following
    if codec and following and following(storage.stream(), None, 0)[1] < storage.size:
        return storage, codec
    known = other or format != "auto" or supposed(begin)
    hint = "" if known else ": format=... opens one whose start is damaged"
    raise RecordError(storage.name, None, 0, f"a {_titles(asked)} file", _shown(begin) + hint)


def _shown(begin: bytes) -> str:
    return recognized(begin) or supposed(begin) or begin[:_SHOWN_BYTES].hex(" ")


def _titles(codecs: list[Codec]) -> str:
    return " or ".join(sorted(codec.title for codec in codecs))


def _begun(begin: bytes, codecs: list[Codec]) -> Codec | None:
    """Return the first format that a file with this beginning may have, if any."""
    return next((codec for codec in codecs if begin and codec.begins(begin)), None)
