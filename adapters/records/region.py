"""Memory in which a remote file's bytes appear at their offsets in the file.

A ``Region`` is an address range as long as the file; it tracks by units which bytes are available.
A ``MemoryRegion`` is filled by writing. A ``CachedRegion`` maps a cache's files, and a page is
available once its CRC has been checked. A region is never emptied: to free memory, its file drops
it and makes a new one; views keep the old one alive.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import mmap
import os
import threading
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from adapters.records.mapping import MAP_NORESERVE, Mapping
from adapters.remote import Cache, Head
from adapters.remote.cache import USED_EVERY_SECONDS
from adapters.remote.privatefiles import opened
from adapters.remote.segments import ENTRY, PAGE_BYTES, entries_of, write_all

log = logging.getLogger("adapters")

# Records begin and end within a unit, so about 1 kB more than a record is fetched.
MEMORY_UNIT_BYTES = 1024
# Worth it: with 8 files, batches of 64 and a full cache, units took a tenth of the CPU time.
_LOOK_EVERY = 64


class CacheError(OSError):
    """Raised if the cache can't be used; ``errno.ESTALE``: it evicted a part of the file."""


class Region:
    """Base class of all regions of a file that isn't empty. Thread-safe; ``here`` only grows."""

    is_over = False
    """True for a window that won't be read any more."""
    is_complete = False
    """True if all units are available, as last seen by ``note_use``."""

    def __init__(self, size: int, unit: int, view: memoryview) -> None:
        units = -(-size // unit)
        self.unit = unit
        self.view = view
        self.here = np.zeros(units, bool)
        """True for each unit that may be read."""
        self.flying = np.zeros(units, np.int32)
        """Number of the piece that brings each unit; 0 for none."""
        self._size = size
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
        """Store fetched data from this unit on."""
        raise NotImplementedError


class MemoryRegion(Region):
    """Region in this process's memory."""

    block_bytes = 0
    """Size of the blocks of the window that this region is for; 0 for all others."""

    def __init__(self, size: int) -> None:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        memory.madvise(mmap.MADV_NOHUGEPAGE)  # A byte must not take 2 MiB.
        super().__init__(size, MEMORY_UNIT_BYTES, memoryview(memory).toreadonly())
        self._bytes = np.frombuffer(memory, np.uint8)

    def put(self, first: int, data: bytes | memoryview) -> None:
        """Store fetched data from this unit on."""
        begin = first * self.unit
        self._bytes[begin : begin + len(data)] = np.frombuffer(data, np.uint8)


class CachedRegion(Region):
    """Region in the files of a cache, which other processes fill, too.

    It keeps no descriptor open.
    """

    def __init__(self, cache: Cache, url: str, head: Head) -> None:
        self._memory = Mapping(-(-head.size // PAGE_BYTES) * PAGE_BYTES)
        super().__init__(head.size, PAGE_BYTES, self._memory.view()[: head.size])
        self._cache, self._url, self._head = cache, url, head
        self.limit = cache.limit
        self._pages = cache.segment_bytes // PAGE_BYTES
        self._segments: dict[int, tuple[str, int]] = {}
        """Path and inode of each mapped segment."""
        self._table = np.zeros(len(self.here), ENTRY)
        """Table entry of each page when the cache was last read."""
        self._opening = threading.Lock()
        self._has_warned = False
        self._used, self._looks = time.monotonic(), cache.looks

    def entries(self, units: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the cache's table entries of these pages, 0 for missing ones."""
        entries = self._table[units]
        if entries.all():
            return entries
        for number in np.unique(units[entries == 0] // self._pages).tolist():
            # Read again: another process may have written to it.
            with self._opened(number) as (descriptor, table):
                data = os.pread(descriptor, table.nbytes, table.size * PAGE_BYTES)
                table[:] = np.frombuffer(data.ljust(table.nbytes, b"\0"), ENTRY)
        return self._table[units]

    def look(self, units: NDArray[np.int64]) -> None:
        """Check those of these pages that the cache has, and mark them as available."""
        entries = self.entries(units)
        units, entries = units[entries > 0], entries[entries > 0]
        right = entries_of(self._memory.view(), units) == entries
        self.here[units[right]] = True
        if not right.all() and not self._has_warned:
            self._has_warned = True
            number, page = divmod(int(units[~right][0]), self._pages)
            path, _ = self._segments[number]
            log.warning("%s holds a damaged page, %d; it is fetched again", path, page)

    def put(self, first: int, data: bytes | memoryview) -> None:
        """Write fetched data to the cache, from this unit on."""
        view = memoryview(data)
        if len(view) % PAGE_BYTES:  # The last page is padded with zeros.
            view = memoryview(bytes(view) + bytes(-len(view) % PAGE_BYTES))
        while len(view):
            number, page = divmod(first, self._pages)
            some = view[: (self._pages - page) * PAGE_BYTES]
            self._cache.store(functools.partial(self._write, number, page, some), len(some))
            first, view = first + self._pages - page, view[len(some) :]

    def _write(self, number: int, page: int, data: memoryview) -> None:
        """Write whole pages of a segment, and then their entries."""
        entries = entries_of(data, np.arange(len(data) // PAGE_BYTES))
        with self._opened(number) as (descriptor, table):
            write_all(descriptor, data, page * PAGE_BYTES)
            end = table.size * PAGE_BYTES
            write_all(descriptor, entries.tobytes(), end + page * ENTRY.itemsize)

    @contextlib.contextmanager
    def _opened(self, number: int) -> Iterator[tuple[int, NDArray[np.uint64]]]:
        """Open a segment for a ``with`` block, and yield its descriptor and its part of the table.

        At first it is created if missing, and mapped. All errors are raised as ``CacheError``.
        """
        try:
            with self._opening:
                if number not in self._segments:
                    self._segments[number] = self._mapped(number)
            path, inode = self._segments[number]
            descriptor = opened(path, os.O_RDWR)
            try:
                if os.fstat(descriptor).st_ino != inode:
                    raise FileNotFoundError(path)
                yield descriptor, self._table[number * self._pages :][: self._pages]
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise CacheError(errno.ESTALE, "evicted") from None
        except OSError as error:
            raise CacheError(error.errno, error.strerror, error.filename) from error

    def _mapped(self, number: int) -> tuple[str, int]:
        """Map a segment, and return its path and inode."""
        path = self._cache.segment(self._url, self._head, number)
        first = number * self._pages
        pages = min(self._pages, len(self.here) - first)
        with open(opened(path, os.O_RDWR | os.O_CREAT), "rb+", 0) as file:
            status = os.fstat(file.fileno())
            # Complete a file whose creator was killed; never shorten one.
            if status.st_size < (whole := pages * (PAGE_BYTES + ENTRY.itemsize)):
                file.truncate(whole)
            self._memory.put(first * PAGE_BYTES, file.fileno(), pages * PAGE_BYTES)
        _note_use(path)
        return path, status.st_ino

    def use(self) -> bool:
        """Mark its segments as used, once a minute.

        Returns:
            True if one was evicted. Its disk space stays occupied until this region is released.
        """
        now, looks = time.monotonic(), self._cache.looks
        is_due = now - self._used > USED_EVERY_SECONDS
        if not is_due and looks == self._looks:
            return False
        segments = [*self._segments.values()]
        if is_due:
            self._used = now
            for path, _ in segments:
                _note_use(path)
        self._looks = looks
        with contextlib.suppress(OSError):
            return any(os.stat(path).st_ino != inode for path, inode in segments)
        return True


def _note_use(path: str) -> None:
    """Record a use of a segment, for eviction."""
    with contextlib.suppress(OSError):  # Evicted, or not writable.
        os.utime(path)
