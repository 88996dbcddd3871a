"""``RecordParser``: the kernel's parser, from record files into the columns of a batch.

All records of a batch are parsed in one call without Python code per record, from the files' own
memory (``native/records.c``). Nothing is learned or remembered of a record but that its CRC was
checked. Records that the kernel doesn't take, because they are damaged or of a kind that it leaves
to Python, are named, to be read one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.records import RecordFiles, Shard
from adapters.records.mapping import NoMapError, most
from adapters.records.remotefile import RemoteFile
from adapters.records.storage import MappedFile

# What a field is in a record with an IRHeader, as in ``native/records.h``.
CONTENT, LABEL, OWN_LABEL, LABELS, ID, ID2, NOWHERE = range(7)
LEFT = 0
"""Kind of a file whose records the kernel leaves to Python; else as ``Codec.kernel_kind``."""

# Files that stay mapped for the next batch. With more, a batch maps those that it needs.
_MOST_FILES = max(1, most() // 16)
Parsed = tuple[NDArray[np.bool_] | None, Sequence[memoryview | bytes]]
"""Result of parsing a batch: a mask of the requested records that weren't taken, None if all were;
and the files' bytes, valid as long as they are referenced."""


class Column(NamedTuple):
    """Field of records that is written into a column."""

    name: bytes
    """Name of the feature in an Example."""
    kind: int
    """Kind of its list."""
    size: int
    """Numbers in a row, or bytes for a bytes list."""
    part: int = NOWHERE
    """Part of a record with an IRHeader."""
    is_place: bool = False
    """Write where the bytes lie, instead: index in the buffers of ``Parsed``, first byte, size."""
    prefix: bytes = b""
    """Bytes of the value before those that go into the row."""
    default: bytes | None = None
    """Row of a record without the feature; None to leave the record to Python."""


class _Opened(NamedTuple):
    """Files whose memory the kernel holds."""

    handle: Any
    buffers: list[memoryview | bytes]


class RecordParser:
    """Parses records of a batch. Thread-safe, without a lock; for this process alone.

    Args:
        kernel: The native kernel.
        files: The records.
        columns: Fields to write, at least one.
        kind_of: Returns a file's ``Codec.kernel_kind``, or ``LEFT``.
    """

    def __init__(
        self,
        kernel: ModuleType,
        files: RecordFiles,
        columns: Sequence[Column],
        kind_of: Callable[[Shard], int],
    ) -> None:
        self._kernel = kernel
        self._files = files
        self._shards = files.shards
        self._kind_of = kind_of
        self._schema = kernel.schema(
            [(c.name, c.kind, c.part, c.is_place, c.size, c.prefix, c.default) for c in columns]
        )
        self._firsts = np.cumsum([0, *map(len, self._shards)])
        self._stays = len(self._shards) <= _MOST_FILES and not files.are_remote
        self._opened: _Opened | None = None

    def parse(
        self,
        numbers: NDArray[np.int64],
        rows: NDArray[np.int64] | None,
        columns: Sequence[NDArray[Any]],
    ) -> Parsed:
        """Write fields of these records into rows of the columns.

        Args:
            numbers: Record numbers, ``(records,)``. The files must be open.
            rows: Row of each record; None for one after another.
            columns: An array for each field, contiguous, ``(rows, ...)``; int64 ``(rows, 3)`` for
                places.

        Raises:
            ConnectionError: A store doesn't answer.
        """
        numbers = np.ascontiguousarray(self._files.in_order(numbers))
        if self._stays:
            opened = self._opened
            if opened is None:
                opened = self._open(self._shards, [None] * len(self._shards))
                self._opened = opened if all(map(len, opened.buffers)) else None
        else:
            opened, numbers = self._open_for(numbers)
        wrong = self._kernel.gather(self._schema, opened.handle, numbers, rows, tuple(columns))
        return None if wrong is None else np.frombuffer(wrong, np.bool_), opened.buffers

    def _open_for(self, numbers: NDArray[np.int64]) -> tuple[_Opened, NDArray[np.int64]]:
        """Open the files of these records; return also the records' numbers in them."""
        places = np.searchsorted(self._firsts, numbers, "right") - 1
        own = numbers - self._firsts[places]
        needed, which = np.unique(places, return_inverse=True)
        shards = [self._shards[place] for place in needed.tolist()]
        opened = self._open(shards, [own[which == place] for place in range(len(shards))])
        return opened, np.cumsum([0, *map(len, shards)])[which] + own

    def _open(
        self, shards: Sequence[Shard], numbers: Sequence[NDArray[np.int64] | None]
    ) -> _Opened:
        buffers = [_buffer_of(*each) for each in zip(shards, numbers)]
        handle = self._kernel.files(
            tuple(buffers),
            tuple(np.ascontiguousarray(shard.offsets, np.int64) for shard in shards),
            tuple(
                None if shard.sizes is None else np.ascontiguousarray(shard.sizes, np.int64)
                for shard in shards
            ),
            tuple(shard.checked for shard in shards),
            tuple(map(self._kind_of, shards)),
        )
        return _Opened(handle, [b"" if buffer is None else buffer for buffer in buffers])


def _buffer_of(shard: Shard, numbers: NDArray[np.int64] | None) -> memoryview | None:
    """Bytes of a file, in which these records can be read; None if reading them says what's wrong.

    Args:
        shard: The file.
        numbers: Records that will be read, for a remote file; None for all.
    """
    with contextlib.suppress(NoMapError, RecordError):
        if isinstance(shard.storage, RemoteFile):
            assert numbers is not None
            return shard.storage.touch(*shard.extents(numbers))
        if isinstance(shard.storage, MappedFile):
            return shard.storage.covering(0, 0)
    return None
