"""Memory in which a remote file's bytes appear at their offsets in the file.

A ``Region`` is an address range as long as the file; it tracks by units which bytes are available.
A ``MemoryRegion`` is filled by writing. A ``CachedRegion`` maps a cache's files, and a page is
available once its CRC has been checked. Any view keeps the region's memory alive. A file that no
longer needs a region creates another.
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

# Records begin and end within a unit, so about 1 kB more than a record is fetched.
MEMORY_UNIT_BYTES = 1024
_USED_EVERY_SECONDS = 60.0
# Worth it: with 8 files, batches of 64 and a full cache, units took a tenth of the CPU time.
_LOOK_EVERY = 64
# Evicted from the cache if the disk is full.
_ROOM_BYTES = 64 << 20


class EvictedError(OSError):
    """Raised if the cache evicted the part of the file that was to be written."""


class CacheError(Exception):
    """Raised if the cache can't be used; ``cause`` says why."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause)
        self.cause = cause


class Region:
    """Base class of all regions. Thread-safe; ``here`` only grows.

    Args:
        size: Size of the file in bytes, not 0.
        unit: Size of a unit in bytes.
        memory: Memory in which the bytes appear.
    """

    shared = False
    """True if it counts towards the memory that all files share, see ``kept``."""
    left = False
    """True if it won't be read any more."""

    def __init__(self, size: int, unit: int, memory: Reserved) -> None:
        self.unit = unit
        self.memory = memory
        units = -(-size // unit)
        self.here = np.zeros(units, bool)
        """True for each unit that may be read."""
        self.flying = np.zeros(units, np.int32)
        """Number of the piece that brings each unit; 0 for none."""
        self.view = memory.view()[:size]
        self._size = size
        self.is_complete = False
        """True if all units are available, as last seen by ``note_use``."""
        self.is_filled = False
        """True if the cache holds all pages; their CRCs may be unchecked."""
        self._uses = 0

    def units(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the units of these ranges; ranges beyond the file are left out."""
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
        """Check now and then if all units are available; from then on, no unit needs a check."""
        self._uses += 1
        if self._uses % _LOOK_EVERY == 0:
            self.is_complete = bool(self.here.all())

    def look(self, units: NDArray[np.int64]) -> None:
        """Mark those of these units that are available without fetching."""

    def put(self, first: int, data: bytes | memoryview) -> None:
        """Store fetched data from this unit on.

        Raises:
            OSError: They can't be stored.
        """
        raise NotImplementedError


class MemoryRegion(Region):
    """Region in this process's memory.

    Args:
        size: Size of the file in bytes, not 0.
    """

    shared = True

    def __init__(self, size: int) -> None:
        super().__init__(size, MEMORY_UNIT_BYTES, Reserved(size, writable=True))

    def put(self, first: int, data: bytes | memoryview) -> None:
        """Store fetched data from this unit on."""
        self.memory.write(first * self.unit, data)


class WindowRegion(MemoryRegion):
    """Region for one window of a block order; it lives as long as the window, see ``held``.

    Args:
        size: Size of the file in bytes, not 0.
    """

    shared = False

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.told = np.zeros(len(self.here), bool)
        """True for each unit that belongs to the window."""

    def will_come(self, offset: int, size: int) -> None:
        """Add a block to the window."""
        self.told[offset // self.unit : -(-(offset + size) // self.unit)] = True
        self.memory.will_write(offset, size)


class CachedRegion(Region):
    """Region in the files of a cache, which other processes fill, too.

    Args:
        size: Size of the file in bytes, not 0.
        cached: The file's entry in the cache.
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
        """Table entry of each page when the cache was last read."""
        self._opening = threading.Lock()
        self._told = False
        self._used = time.monotonic()
        self._looks = cached.cache.looks

    def lie_here(self, units: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these pages the cache claims to have.

        Raises:
            OSError: The cache can't be used.
        """
        found: NDArray[np.bool_] = self._entries(units) != 0
        return found

    def look(self, units: NDArray[np.int64]) -> None:
        """Check those of these pages that the cache has.

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
            if not self._map(number):  # Another process may have written to it.
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
        """Write fetched data to the cache, from this unit on.

        Raises:
            EvictedError: The cache has evicted that part of the file meanwhile.
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
                segment.write(page, data)  # Retried in any case: others may evict.
            except FileNotFoundError:
                if freed:
                    raise
                raise error from None

    def _map(self, number: int) -> bool:
        """Map a segment; return False if it is already mapped."""
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
            # Set last: other threads would duplicate a descriptor that is about to close.
            self._segments[number] = segment
            self._keep(number, table)
        return True

    def _keep(self, number: int, table: NDArray[np.uint64]) -> None:
        """Store a segment's table."""
        begin = number * self._pages
        self._table[begin : begin + len(table)] = table
        if table.all():
            self._full.add(number)
            self.is_filled = len(self._full) == self._count

    def use(self) -> bool:
        """Mark its segments as used, once a minute.

        Returns:
            True if one was evicted. Its disk space stays occupied until this region is released.
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
