"""Memory in which a remote file's bytes appear at their offsets in the file.

A ``Region`` is an address range as long as the file; it tracks by units which bytes are available.
A ``MemoryRegion`` is filled by writing. A ``CachedRegion`` maps a cache's files, and a page is
available once its CRC has been checked. A region is never emptied: to free memory, its file drops
it and makes a new one; views keep the old one alive.
"""

from __future__ import annotations

import errno
import functools
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


class EvictedError(OSError):
    """Raised if the cache evicted a part of the file that was to be written or mapped."""


class Region:
    """Base class of all regions. Thread-safe; ``here`` only grows.

    Args:
        size: Size of the file in bytes, not 0.
        unit: Size of a unit in bytes.
        memory: Memory in which the bytes appear.
    """

    window: NDArray[np.bool_] | None = None
    """Units of a window of blocks; None for all regions but a window's."""
    is_over = False
    """True for a window that won't be read any more."""

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
        """True if a cache holds all pages; their CRCs may be unchecked."""
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

    def __init__(self, size: int) -> None:
        super().__init__(size, MEMORY_UNIT_BYTES, Reserved(size, writable=True))

    def add_block(self, offset: int, size: int) -> None:
        """Make a block part of the window that this region is for."""
        if self.window is None:
            self.window = np.zeros(len(self.here), bool)
        self.window[offset // self.unit : -(-(offset + size) // self.unit)] = True
        self.memory.will_write(offset, size)

    def put(self, first: int, data: bytes | memoryview) -> None:
        """Store fetched data from this unit on."""
        self.memory.write(first * self.unit, data)


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
        self._table = np.zeros(len(self.here), np.uint64)
        """Table entry of each page when the cache was last read."""
        self._full: set[int] = set()
        self._count = -(-size // cached.segment_bytes)
        self._opening = threading.Lock()
        self._has_warned = False
        self._used = time.monotonic()
        self._looks = cached.cache.looks

    def entries(self, units: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the cache's table entries of these pages, 0 for missing ones.

        Raises:
            OSError: The cache can't be used.
        """
        entries = self._table[units]
        if entries.all():
            return entries
        for number in np.unique(units[entries == 0] // self._pages).tolist():
            # Read again: another process may have written to it.
            self._keep_table(number, self._mapped(number))
        return self._table[units]

    def look(self, units: NDArray[np.int64]) -> None:
        """Check those of these pages that the cache has, and mark them as available.

        Raises:
            OSError: The cache can't be used.
        """
        entries = self.entries(units)
        known = np.flatnonzero(entries)
        if not len(known):
            return
        units = units[known]
        good = right(self.memory.view(), units, entries[known])
        self.here[units[good]] = True
        if not good.all() and not self._has_warned:
            self._has_warned = True
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
        view, cache = memoryview(data), self._cached.cache
        while len(view):
            number, page = divmod(first, self._pages)
            some = view[: (self._pages - page) * PAGE_BYTES]
            segment = self._mapped(number)
            try:
                cache.with_room(functools.partial(segment.write, page, some))
            except FileNotFoundError:
                raise EvictedError(errno.ESTALE, "evicted") from None
            cache.wrote(len(some))
            first, view = first + self._pages - page, view[len(some) :]

    def _mapped(self, number: int) -> Segment:
        """Return a segment whose pages appear in the memory."""
        segment = self._segments.get(number)
        if segment is not None:
            return segment
        with self._opening:
            if number not in self._segments:
                segment = self._cached.segment(number)
                offset = number * self._pages * PAGE_BYTES
                try:
                    with segment.opened() as descriptor:
                        self.memory.put(offset, descriptor, segment.pages * PAGE_BYTES)
                except FileNotFoundError:
                    raise EvictedError(errno.ESTALE, "evicted") from None
                self._segments[number] = segment
            return self._segments[number]

    def _keep_table(self, number: int, segment: Segment) -> None:
        begin, table = number * self._pages, segment.table()
        self._table[begin : begin + segment.pages] = table
        if table.all():
            self._full.add(number)
            self.is_filled = len(self._full) == self._count

    def use(self) -> bool:
        """Mark its segments as used, once a minute.

        Returns:
            True if one was evicted. Its disk space stays occupied until this region is released.
        """
        now, looks = time.monotonic(), self._cached.cache.looks
        is_due = now - self._used > _USED_EVERY_SECONDS
        if not is_due and looks == self._looks:
            return False
        segments = [*self._segments.values()]
        if is_due:
            self._used = now
            for segment in segments:
                segment.used()
        self._looks = looks
        return not all(segment.is_there for segment in segments)
