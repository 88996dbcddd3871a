"""One record file: its format, told from its content, its index, and its records by number."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.formats import CODECS, codec_of
from adapters.records.index import Index
from adapters.records.inflated import InflatedObject
from adapters.records.recovery import searched
from adapters.records.remotefile import RemoteFile
from adapters.records.remoteindex import remote_index_of
from adapters.records.sidecar import index_of
from adapters.records.storage import InflatedFile, MappedFile
from adapters.remote import Cache, is_url
from adapters.remote.urls import clean, head_in
from adapters.signatures import HEAD_BYTES, recognized

log = logging.getLogger("adapters")

# Of a file that is of no format.
_SHOWN_BYTES = 16
# GZIP, and ZLIB of levels 0 and 1, 2 to 5, 6, and 7 to 9.
_COMPRESSED_BEGINS = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class Shard:
    """The records of one file. Any thread may read; nothing changes but what was checked already.

    Args:
        path: The file.
        format: One of ``CODECS``, or ``"auto"``.
        verify: Check a record's CRC the first time that it is read.
        index: Where the records are. None: what the index beside the file says, or the file itself
            if there is none. "search": what the file itself says.
        cache: Where to keep what is read of it.

    Raises:
        OSError: The file can't be read.
        RecordError: It is of neither format, or holds no record.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str,
        verify: bool,
        index: Index | Literal["search"] | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.storage, self.codec = _opened(path, format, cache)
        storage = self.storage
        self.verify = verify
        if index == "search" or (index is None and isinstance(storage, INFLATED)):
            whole = storage.stream() if isinstance(storage, RemoteFile) else storage
            index = searched(whole, self.codec, verify)
        elif index is None:
            if isinstance(storage, RemoteFile) and is_url(storage.name):
                index = remote_index_of(storage, self.codec, verify)
            else:
                index = index_of(storage, self.codec, verify)
        if isinstance(storage, INFLATED) and storage.damage is not None:
            index = _cut_short(index, storage)
        self.offsets = index.offsets
        self.sizes = index.sizes
        # Where those end that an index gives no sizes of; found out when first asked for.
        self._most: NDArray[np.int64] | None = None
        self.damage: Mapping[int, RecordError] = dict(index.damage)
        """What is wrong with records that aren't whole, by their numbers."""
        # Of a record whose CRC was right once; threads that check twice do no harm. In a damaged
        # file, all are looked at.
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
        """The name of its codec."""
        return self.codec.name

    @property
    def parts(self) -> list[Shard]:
        """The files that it is, one after another."""
        return [self]

    def __len__(self) -> int:
        return len(self.offsets)

    def inside(
        self, starts: NDArray[np.int64], sizes: NDArray[np.int64] | np.int64
    ) -> NDArray[np.bool_]:
        """Which of these ranges of bytes lie in the file."""
        within: NDArray[np.bool_] = (starts >= 0) & (starts <= self.storage.size - sizes)
        return within

    def read(self, number: int) -> memoryview:
        """The payload of record ``number``, from 0; valid for as long as it is held.

        Raises:
            RecordError: The record is damaged.
        """
        verify = not self.checked[number]
        offset = int(self.offsets[number])
        size = None if self.sizes is None else int(self.sizes[number])
        if isinstance(self.storage, RemoteFile):
            self.storage.touch(*self.extents(np.array([number])))
        try:
            payload = self.codec.read(self.storage, offset, number, verify, size)
        except RecordError:
            if number not in self.damage:
                raise
            raise RecordError(*self.damage[number].args) from None
        if verify:
            self.checked[number] = True
        return payload

    def will_read(self, first: int, last: int) -> None:
        """Have the storage read ahead where records ``first`` to ``last - 1`` lie, if it can."""
        ahead = getattr(self.storage, "will_read", None)
        if ahead is not None:
            ahead(*self.stretch(first, last))

    @functools.cached_property
    def is_in_order(self) -> bool:
        """Whether records lie in the order of their numbers, which an index need not have."""
        return bool((self.offsets[1:] > self.offsets[:-1]).all())

    def stretch(self, first: int, last: int) -> tuple[int, int]:
        """Where records ``first`` to ``last - 1`` begin, and how many bytes they take."""
        begin = self.begin_of(first)
        end = self.begin_of(last) if last < len(self) else self.storage.size
        return begin, end - begin

    @property
    def whole(self) -> Index:
        """Where the records are that are whole."""
        left = np.delete(np.arange(len(self)), [*self.damage])
        return Index(self.offsets[left], None if self.sizes is None else self.sizes[left])

    def begin_of(self, number: int) -> int:
        """The byte at which a record begins, or what is in the place of one that isn't whole."""
        damage = self.damage.get(number)
        return int(self.offsets[number]) if damage is None else damage.offset

    def touch(self, numbers: NDArray[np.int64], size: int) -> memoryview:
        """All of the file, of which these records may be read; those of a remote one are fetched.

        Args:
            numbers: Of the records.
            size: So many bytes of each are going to be read, to account for what is in memory.

        Raises:
            ConnectionError: The store doesn't answer.
            NoMapError: There is no room for a map.
        """
        if isinstance(self.storage, RemoteFile):
            return self.storage.touch(*self.extents(numbers))
        return self.storage.will_touch(self.offsets, size, numbers)

    def bring(self, first: int, last: int) -> None:
        """Fetch records ``first`` to ``last - 1`` of a remote file at once, and begin with more.

        Raises:
            ConnectionError: The store doesn't answer.
        """
        if isinstance(self.storage, RemoteFile):
            self.storage.touch(*self.extents(np.arange(first, min(last, len(self)))))
            more = np.arange(min(last, len(self)), min(2 * last - first, len(self)))
            self.storage.expect(*self.extents(more))

    def extents(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where these records begin, and at most how many bytes are read of each.

        Where the index says no sizes, a record's is how far it is to the next; and the header of
        what follows is looked at, too.
        """
        begins = self.offsets[numbers]
        if self.sizes is not None:
            return begins, self.sizes[numbers]
        if self._most is None:
            starts = np.unique(self.offsets)
            ends = np.append(starts[1:], self.storage.size)
            behind = self.codec.header_bytes
            self._most = ends[np.searchsorted(starts, self.offsets)] - self.offsets + behind
        return begins, self._most[numbers]

    def close(self) -> None:
        """Unmap the file; reading opens it again."""
        self.storage.close()


INFLATED = (InflatedFile, InflatedObject)
"""Files whose records have no offsets in what is stored."""


def _cut_short(index: Index, storage: InflatedFile) -> Index:
    """The index of an inflated file that says where the compressed data end, in its last place."""
    found, last = storage.damage, len(index.offsets) - 1
    assert found is not None
    if last in index.damage:
        error = RecordError(storage.name, last, found.offset, found.expected, found.found)
        return index._replace(damage={**index.damage, last: error})
    offsets = np.append(index.offsets, storage.size)
    sizes = None if index.sizes is None else np.append(index.sizes, 1)
    return Index(offsets, sizes, {**index.damage, last + 1: found})


def _opened(
    path: str | os.PathLike[str], format: str, cache: Cache | None
) -> tuple[MappedFile | RemoteFile, Codec]:
    """The file's bytes, inflated where they are compressed, and its format."""
    storage: MappedFile | RemoteFile
    if cache is not None or is_url(path):
        storage = RemoteFile(os.fspath(path), cache, head_in(path))
    else:
        storage = MappedFile(path)
    head = bytes(storage.read(0, HEAD_BYTES))
    asked = [*CODECS.values()] if format == "auto" else [CODECS[format]]
    if found := _begun(head, asked):  # Which may as well look compressed.
        return storage, found[0]
    may_be_compressed = any(codec.compressible for codec in asked)
    if may_be_compressed and head.startswith(_COMPRESSED_BEGINS):
        inflated = (
            InflatedObject(storage) if isinstance(storage, RemoteFile) else InflatedFile(path)
        )
        head = bytes(inflated.read(0, HEAD_BYTES))
        compressible = [codec for codec in asked if codec.compressible]
        if found := _begun(head, compressible):
            return inflated, found[0]
        if inflated.damage is not None:
            raise inflated.damage
        if not head or format != "auto":
            return inflated, compressible[0]
        titles = _titles(compressible)
        raise RecordError(inflated.name, None, 0, f"a compressed {titles}", f"{_shown(head)} in it")
    other = recognized(head)
    if (format == "auto" and head) or other:
        named = None if other or format != "auto" else codec_of(clean(os.fspath(path)))
        if named is None or not _is_damaged(storage, named):
            raise RecordError(storage.name, None, 0, f"a {_titles(asked)} file", _shown(head))
        return storage, named
    return storage, asked[0]


def _shown(head: bytes) -> str:
    return recognized(head) or head[:_SHOWN_BYTES].hex(" ")


def _is_damaged(storage: MappedFile | RemoteFile, codec: Codec) -> bool:
    """Whether a file that doesn't begin like one of this format has records of it."""
    whole = storage.stream() if isinstance(storage, RemoteFile) else storage
    return codec.following is not None and codec.following(whole, None, 0) < storage.size


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
