"""Memory in which the bytes of a remote file appear where they stand in the file.

A ``Region`` is a range of addresses as long as the file, and knows by units what of it is there. In
a ``MemoryRegion`` that is what was written into it; in a ``CachedRegion`` the files of a cache are
mapped, and a page is there when its CRC was right once. Who holds a part of a region's view holds
its memory; a file that needs it no more makes another region.
"""

from __future__ import annotations

import errno
import logging
import threading
import time

import numpy as np
from numpy.typing import NDArray

from adapters.records.mapping import Reserved
from adapters.remote.cache import CachedObject
from adapters.remote.segments import PAGE_BYTES, Segment, right

log = logging.getLogger("adapters")

# A record begins and ends within one: 1 kB more is fetched than it has.
MEMORY_UNIT_BYTES = 1024
_USED_EVERY_SECONDS = 60.0
# Worth it: with 8 files, batches of 64 and a filled cache, units took a tenth of the CPU time.
_LOOK_EVERY = 64
# Freed of the cache's own when the disk is full.
_ROOM_BYTES = 64 << 20


class EvictedError(OSError):
    """The cache let go of a part of the file that was going to be written to."""


class CacheError(Exception):
    """The cache can't be used, and why."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause)
        self.cause = cause


class Region:
    """What all have in common. Any thread may ask; ``here`` only grows.

    Args:
        size: Of the file, not 0.
        unit: In bytes.
        memory: Where its bytes appear.
    """

    shared = False
    """Whether it takes of the memory that all files share, see ``kept``."""
    left = False
    """Whether nobody is going to read from it any more."""

    def __init__(self, size: int, unit: int, memory: Reserved) -> None:
        self.unit = unit
        self.memory = memory
        units = -(-size // unit)
        self.here = np.zeros(units, bool)
        """Of each unit, whether it may be read."""
        self.flying = np.zeros(units, np.int32)
        """Of each unit, the number of the piece that brings it; 0 for none."""
        self.view = memory.view()[:size]
        self._size = size
        self.is_complete = False
        """Whether all of it is there, as far as ``note_use`` has looked."""
        self.is_filled = False
        """Whether nothing of it need be fetched, where all is as it should be."""
        self._uses = 0

    def units(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The units in which these ranges are; what is not in the file is left out."""
        ends = np.minimum(begins + sizes, self._size)
        firsts = np.maximum(begins, 0) // self.unit
        counts = np.maximum(-(-ends // self.unit) - firsts, 0)
        counts[(ends <= begins) | (begins < 0)] = 0
        if len(counts) == 1:
            return np.arange(firsts[0], firsts[0] + counts[0])
        places = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        units: NDArray[np.int64] = np.repeat(firsts, counts) + places
        return units

    def note_use(self) -> None:
        """Look now and then whether all is there, after which nobody needs to look at units."""
        self._uses += 1
        if self._uses % _LOOK_EVERY == 0:
            self.is_complete = bool(self.here.all())

    def look(self, units: NDArray[np.int64]) -> None:
        """Note which of these units are there without being fetched."""

    def put(self, first: int, data: bytes | memoryview) -> None:
        """Keep what was fetched, from this unit on.

        Raises:
            OSError: It can't be kept.
        """
        raise NotImplementedError


class MemoryRegion(Region):
    """In memory of this process.

    Args:
        size: Of the file, not 0.
    """

    shared = True

    def __init__(self, size: int) -> None:
        super().__init__(size, MEMORY_UNIT_BYTES, Reserved(size, writable=True))

    def put(self, first: int, data: bytes | memoryview) -> None:
        """Keep what was fetched, from this unit on."""
        self.memory.write(first * self.unit, data)


class WindowRegion(MemoryRegion):
    """The same for one window of an order in blocks; it goes with the window, see ``held``.

    Args:
        size: Of the file, not 0.
    """

    shared = False

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.told = np.zeros(len(self.here), bool)
        """Of each unit, whether it is of the window."""

    def will_come(self, offset: int, size: int) -> None:
        """A block of the window lies there."""
        self.told[offset // self.unit : -(-(offset + size) // self.unit)] = True
        self.memory.will_write(offset, size)


class CachedRegion(Region):
    """In files of a cache, which other processes write to as well.

    Args:
        size: Of the file, not 0.
        cached: What the cache has of it.
    """

    def __init__(self, size: int, cached: CachedObject) -> None:
        whole = -(-size // PAGE_BYTES) * PAGE_BYTES
        super().__init__(size, PAGE_BYTES, Reserved(whole, writable=False))
        self._cached = cached
        self._pages = cached.segment_bytes // PAGE_BYTES
        self._segments: dict[int, Segment] = {}
        self._count = -(-size // cached.segment_bytes)
        self._full: set[int] = set()
        self._table = np.zeros(len(self.here), np.uint64)
        """Of each page, what the cache said of it when it was last asked."""
        self._opening = threading.Lock()
        self._told = False
        self._used = time.monotonic()
        self._looks = cached.cache.looks

    def lie_here(self, units: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these pages the cache says that it has.

        Raises:
            OSError: The cache can't be used.
        """
        found: NDArray[np.bool_] = self._entries(units) != 0
        return found

    def look(self, units: NDArray[np.int64]) -> None:
        """Check the pages that the cache has of these.

        Raises:
            OSError: The cache can't be used.
        """
        entries = self._entries(units)
        known = np.flatnonzero(entries)
        if len(known):
            self._check(units[known], entries[known])

    def _entries(self, units: NDArray[np.int64]) -> NDArray[np.uint64]:
        entries = self._table[units]
        if entries.all():
            return entries
        for number in np.unique(units[entries == 0] // self._pages).tolist():
            if not self._map(number):  # Somebody may have written since.
                self._keep(number, self._segments[number].table())
        return self._table[units]

    def _check(self, units: NDArray[np.int64], entries: NDArray[np.uint64]) -> None:
        good = right(self.memory.view(), units, entries)
        self.here[units[good]] = True
        if not good.all() and not self._told:
            self._told = True
            page = int(units[~good][0])
            log.warning(
                "%s holds a damaged page, %d; it is fetched again",
                self._segments[page // self._pages].path,
                page % self._pages,
            )

    def put(self, first: int, data: bytes | memoryview) -> None:
        """Write what was fetched into the cache, from this unit on.

        Raises:
            EvictedError: The cache let go of that part of the file meanwhile.
            OSError: The disk is full, or the cache can't be used.
        """
        view = memoryview(data)
        while len(view):
            number, page = divmod(first, self._pages)
            some = view[: (self._pages - page) * PAGE_BYTES]
            self._map(number)
            try:
                self._write(number, page, some)
            except FileNotFoundError:
                raise EvictedError(errno.ESTALE, "evicted") from None
            self._cached.cache.wrote(len(some))
            first, view = first + self._pages - page, view[len(some) :]

    def _write(self, number: int, page: int, data: memoryview) -> None:
        segment = self._segments[number]
        try:
            segment.write(page, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            freed = self._cached.cache.evict(_ROOM_BYTES)
            try:
                segment.write(page, data)  # Though nothing was freed: another may be at it.
            except FileNotFoundError:
                if freed:
                    raise
                raise error from None

    def _map(self, number: int) -> bool:
        """Map a segment, where it isn't yet; whether it wasn't."""
        if number in self._segments:
            return False
        with self._opening:
            if number in self._segments:
                return False
            segment = self._cached.segment(number)
            try:
                assert segment.descriptor is not None
                size = segment.pages * PAGE_BYTES
                self.memory.put(number * self._pages * PAGE_BYTES, segment.descriptor, size)
                table = segment.table()
            finally:
                segment.release()
            # Only now, as other threads would duplicate a descriptor that is about to close.
            self._segments[number] = segment
            self._keep(number, table)
        return True

    def _keep(self, number: int, table: NDArray[np.uint64]) -> None:
        """Note what the table of a segment says."""
        begin = number * self._pages
        self._table[begin : begin + len(table)] = table
        if table.all():
            self._full.add(number)
            self.is_filled = len(self._full) == self._count

    def use(self) -> bool:
        """Note, once a minute, that its segments are in use.

        Returns:
            Whether one was evicted, whose room on the disk this region holds until it is let go of.
        """
        now, looks = time.monotonic(), self._cached.cache.looks
        if now - self._used <= _USED_EVERY_SECONDS and looks == self._looks:
            return False
        segments = [*self._segments.values()]
        if now - self._used > _USED_EVERY_SECONDS:
            self._used = now
            for segment in segments:
                segment.used()
        self._looks = looks
        return not all(segment.is_there for segment in segments)
