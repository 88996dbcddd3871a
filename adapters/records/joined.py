"""Local files mapped one after another into one address range, as if they were one file.

::

    a.tfrecord | b.tfrecord | c.tfrecord      each at a page boundary, in one map

Batches are gathered from one view at a time. With a view for each of a hundred files, a shuffled
batch of 64 records would take 50 gathers. Worth it: 17 us, against 181, for such a batch of 784
bytes per record, and 150 us, against 1,130, in the first epoch (one core, 2026-11).
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.records.mapping import Reserved, most
from adapters.records.shard import Shard
from adapters.records.storage import MappedFile, with_room

# Most files in one range, and in all ranges. Each file takes a map. Beyond the system's limit,
# ranges would evict each other in every batch.
_MOST_FILES = 1024
_MOST_FILES_OF_ALL = most() // 4
# Positions take another 24 bytes per record: 1.6 GB at most.
_MOST_RECORDS = 1 << 26


class ApartError(Exception):
    """Raised if joined files can't be mapped together any more; read each shard by itself."""


def joined(shards: Sequence[Shard]) -> list[Shard]:
    """Join neighbouring shards that can be mapped together.

    The order of the records stays the same.

    Args:
        shards: Any shards. Remote, compressed and damaged ones stay separate, as do those whose
            index doesn't fit the file.
    """
    alone = len(shards) < 2 or len(shards) > _MOST_FILES_OF_ALL
    if alone or sum(map(len, shards)) > _MOST_RECORDS:
        return list(shards)
    units: list[Shard] = []
    for kind, group in itertools.groupby(shards, _kind):
        alike = list(group)
        if kind is None:
            units += alike
            continue
        for first in range(0, len(alike), _MOST_FILES):
            few = alike[first : first + _MOST_FILES]
            units += few if len(few) < 2 else [_joined(few)]
    return units


def _joined(shards: list[Shard]) -> JoinedShard:
    """Return these shards as one, shared with other callers such as the parts of a split."""
    key = tuple(map(id, shards))  # The joined shard keeps them alive, so ids stay unique.
    with _making:
        unit = _made.get(key)
        if unit is None:
            unit = _made[key] = JoinedShard(shards)
        return unit


def _kind(shard: Shard) -> tuple[str, bool] | None:
    """Return the properties that joined shards must share; None if it can't be joined."""
    if type(shard.storage) is not MappedFile or not shard.storage.size:
        return None
    sizes = np.int64(1) if shard.sizes is None else shard.sizes
    if not shard.inside(shard.offsets, sizes).all():
        return None
    return shard.format, shard.sizes is not None


class JoinedShard(Shard):
    """Several shards with consecutive record numbers. Created by ``joined``.

    Args:
        shards: Shards of local files of one format, all with record sizes or all without.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        storage = JoinedFiles([shard.storage for shard in shards])  # type: ignore[misc]
        self._parts = list(shards)
        self._firsts = np.cumsum([0, *map(len, shards)])
        self.storage, self.codec = storage, shards[0].codec
        self.verify = any(shard.verify for shard in shards)
        begins = zip(storage.begins.tolist(), shards)
        self.offsets = np.concatenate([shard.offsets + begin for begin, shard in begins])
        sizes = [shard.sizes for shard in shards if shard.sizes is not None]
        self.sizes = np.concatenate(sizes) if sizes else None
        self._most = None
        self.damage = {}  # Shards with damage stay separate.
        self.checked = np.concatenate([shard.checked for shard in shards])
        for shard, first, last in zip(shards, self._firsts.tolist(), self._firsts[1:].tolist()):
            shard.checked = self.checked[first:last]  # Shared, so no record is checked twice.

    @property
    def parts(self) -> list[Shard]:
        """The shards that were joined."""
        return self._parts

    def read(self, number: int) -> memoryview:
        """Return a record's payload, read from its own file."""
        place = int(np.searchsorted(self._firsts, number, "right")) - 1
        return self._parts[place].read(number - int(self._firsts[place]))

    def touch(self, numbers: NDArray[np.int64], size: int) -> memoryview:
        """Return a view of all files in which these records may be read.

        Raises:
            ApartError: There is no space for the map, or a file has changed.
        """
        try:
            return super().touch(numbers, size)
        except (OSError, RecordError) as error:
            raise ApartError from error

    def inside(
        self, starts: NDArray[np.int64], sizes: NDArray[np.int64] | np.int64
    ) -> NDArray[np.bool_]:
        """Return which of these byte ranges lie within one file."""
        assert isinstance(self.storage, JoinedFiles)
        return self.storage.inside(starts, sizes)


class JoinedFiles(MappedFile):
    """Local files mapped into one address range.

    Args:
        files: At least one file.
    """

    def __init__(self, files: Sequence[MappedFile]) -> None:
        self._files = list(files)
        sizes = np.array([file.size for file in files])
        taken = -(-sizes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.begins: NDArray[np.int64] = np.cumsum([0, *taken[:-1]])
        """Offset of each file's first byte."""
        self._ends = self.begins + sizes
        self.name = files[0].name
        self.size = int(self._ends[-1])
        self.changed_ns = max(file.changed_ns for file in files)
        self.version = self.size, self.changed_ns
        self._view = self._map = None
        self._seen, self._all_seen = self._none_seen(), False

    def inside(
        self, starts: NDArray[np.int64], sizes: NDArray[np.int64] | np.int64
    ) -> NDArray[np.bool_]:
        """Return which of these byte ranges lie within one file."""
        places = np.searchsorted(self.begins, starts, "right") - 1
        within: NDArray[np.bool_] = (places >= 0) & (starts + sizes <= self._ends[places])
        return within

    def will_read(self, offset: int, size: int) -> None:
        """Do nothing: the shards read ahead."""

    def _mapped(self) -> memoryview:
        held = None if self._map is None else self._map()
        if held is not None:
            return self._keep(held)
        return self._keep(with_room(self._range))

    def _range(self) -> Reserved:
        whole = Reserved(self.size, writable=False)
        for file, begin in zip(self._files, self.begins.tolist()):
            with file._opened() as opened:
                file._check(opened)
                whole.put(begin, opened.fileno(), file.size)
        for file in self._files:
            file._unmap()  # It was mapped when it was opened.
        return whole


_made: weakref.WeakValueDictionary[tuple[int, ...], JoinedShard] = weakref.WeakValueDictionary()
_making = threading.Lock()


def _renew_lock() -> None:
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
