"""``RemoteFile``: an object in a store, or a file on a slow disk, as storage of records.

    fetched_view --units--> region: there?  --no--> pieces, fetched all at once --> region

It has one view, as long as the object, in which only requested bytes are available. Requesting a
view waits for its bytes. ``prefetch`` prefetches bytes.

Without a cache, the bytes lie in memory, and all files together keep the last 512 MiB that were
fetched. When half of that has arrived, each file starts a new region. Data that are requested and
still in the previous region are copied; the one before that is released once no view holds it.
Windows of a block order have regions of their own, see ``files``. With a cache, the bytes lie in
its files, or in memory if these can't be written.

If the object's version (ETag, or size and time) changes, a ``RecordError`` is raised. Thread-safe.
Another process or a fork opens the object again, with the same version.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.records.mapping import living, most
from adapters.records.region import CachedRegion, CacheError, MemoryRegion, Region
from adapters.remote import Cache, Changed, Head, clean, is_url, reader_of
from adapters.remote.fetch import GAP_BYTES, PIECE_BYTES, Piece, runs, start
from adapters.remote.retry import persistently

# Looks for the ranges of one request, of which each eviction meanwhile takes a few.
_MOST_TRIES = 25
# Limits of a process, for all files without a cache. The fetched data are two generations of
# ``HALF_BYTES``; data that were prefetched and not requested yet, and windows of blocks have their
# own. For scale: a window of 10 prefetched batches of 256 images of 47 kB has 120 MB.
HALF_BYTES = 256 << 20
MOST_EXPECTED_BYTES = 128 << 20
MOST_WINDOW_BYTES = 2 << 30
WindowKey = tuple[int, int, int]
"""Data set, order and number of a window of blocks."""
# Sequential reading fetches so much at once, and again as read-ahead: 8 requests of 4 MiB each, or
# up to an eighth of a cache.
_STREAM_BYTES = 32 << 20


class RemoteFile:
    """Object whose bytes are fetched when they are read.

    Args:
        url: URL of the object, or a local path.
        cache: Cache for fetched data; None for memory.
        head: Its size and version if known; else they are requested.
    """

    def __init__(self, url: str, cache: Cache | None = None, head: Head | None = None) -> None:
        self.name = clean(url)
        self.path = url if is_url(url) else os.path.abspath(url)
        if head is None:
            reader, key = reader_of(self.path)
            head = persistently(lambda: reader.head(key), self.name)
        self.head, self.size = head, head.size
        self.cache = cache and cache.for_version(url, head)
        """Cache for fetched data; None without one, or since it failed."""
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._region: Region | None = None
        self._old: Region | None = None
        self._windows: dict[WindowKey, MemoryRegion] = {}
        self._flying: dict[int, Piece] = {}
        self._numbers = itertools.count(1)
        _files[self] = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFile, (self.path, self.cache, self.head)

    def read(self, offset: int, size: int) -> memoryview:
        """Return these bytes; fewer if the object ends before."""
        view = self.fetched_view(np.array([offset]), np.array([size]))
        return view[offset : offset + size]

    def fetched_view(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> memoryview:
        """Return a view of the object with these ranges available; fetch what is missing.

        Parts of ranges beyond the object are ignored.
        """
        if not self.size:
            return memoryview(b"")
        size, region = int(sizes.sum()), self._region
        _fetched.used(size)
        if region is not None and region.is_complete:
            return self._viewed(region)
        region, tries = None, 0
        while True:
            if region is None or region.is_over:
                region = self._region_of(begins, sizes)
                units = region.units(begins, sizes)
            tries += 1
            try:
                if region.here[units].all():
                    region.note_use()
                    return self._viewed(region)
                if isinstance(region, CachedRegion) and (
                    tries > _MOST_TRIES or 2 * size > region.limit
                ):
                    what = f"its limit of {region.limit} bytes is too small to read {size} at once"
                    raise CacheError(errno.ENOSPC, what)
                self._fetch_now(region, units)
            except CacheError as error:
                if error.errno != errno.ESTALE and (cache := self.cache) is not None:
                    self.cache = None
                    cache.failed(error)
                self._drop(region)
                region = None

    def prefetch(
        self, begins: NDArray[np.int64], sizes: NDArray[np.int64], elsewhere: bool = False
    ) -> None:
        """Prefetch ranges if the budget allows; their readers get any errors."""
        if elsewhere or _fetched.expected(int(sizes.sum())):
            self.start(begins, sizes, expected=True)

    def prefetch_hint(self, offset: int, size: int) -> None:
        """Prefetch a range into the cache, if any; in memory, it would evict other data."""
        if self.cache is not None:
            self.prefetch(np.array([offset]), np.array([size]))

    def prefetch_block(self, offset: int, size: int, window: WindowKey | None = None) -> None:
        """Prefetch a block at low priority; a window keeps it in memory until ``leave``."""
        with contextlib.suppress(Exception):
            region = self._current()
            if window is not None:
                with self._lock:
                    region = self._windows.get(window) or MemoryRegion(self.size)
                    self._windows[window] = region
                    region.block_bytes += size
            self.start(np.array([offset]), np.array([size]), expected=True, block_region=region)

    def leave(self, is_over: Callable[[WindowKey], bool]) -> None:
        """Release windows that have been read."""
        with self._lock:
            for key in filter(is_over, [*self._windows]):
                self._windows.pop(key).is_over = True

    def start(
        self,
        begins: NDArray[np.int64],
        sizes: NDArray[np.int64],
        expected: bool = False,
        block_region: Region | None = None,
    ) -> None:
        """Start to fetch ranges that are needed next; their readers get any errors.

        If ``expected``, all that readers wait for comes first. A block is fetched at low priority,
        into its region.
        """
        with contextlib.suppress(Exception):
            region = block_region or self._region_of(begins, sizes)
            missing = self._missing(region, region.units(begins, sizes), ahead=True)
            own, _ = self._pieces(region, missing, expected, block_region is not None)
            start(own, expected)

    def stream(self) -> Stream:
        """Return the object for sequential reading."""
        limit = 8 * _STREAM_BYTES if self.cache is None else self.cache.limit
        return Stream(self, min(_STREAM_BYTES, limit // 8))

    def close(self) -> None:
        """Release its memory as soon as no view holds it."""
        with self._lock:
            self._region = self._old = None
            self._windows.clear()

    @property
    def is_here(self) -> bool:
        """True if no data need fetching."""
        return self._region is not None and self._region.is_complete

    def _fetch_now(self, region: Region, units: NDArray[np.int64]) -> None:
        """Wait for units; more of them may be missing afterwards."""
        own, others = self._pieces(region, self._missing(region, units))
        if len(own) > 1:
            start(own)
        for piece in own + others:
            piece.wait()
            if piece.error is not None:
                raise copy.copy(piece.error) from None

    def _missing(
        self, region: Region, units: NDArray[np.int64], ahead: bool = False
    ) -> NDArray[np.int64]:
        """Return units to fetch, sorted and unique; if ``ahead``, don't check cached pages."""
        missing: NDArray[np.int64] = np.unique(units[~region.here[units]])
        if isinstance(region, CachedRegion):
            if ahead:
                missing = missing[region.entries(missing) == 0]
            else:
                region.look(missing)
        elif region is self._region:
            for other in (self._old, *self._windows.values()):
                if other is None:
                    continue
                there = missing[other.here[missing] & ~region.here[missing]]
                for begin, end in runs(there, 0, 1 << 20):
                    data = other.view[begin * other.unit : end * other.unit]
                    region.put(begin, data)
                    region.here[begin:end] = True
                    _fetched.came(len(data))
        return missing[~region.here[missing]]

    def _pieces(
        self,
        region: Region,
        missing: NDArray[np.int64],
        ahead: bool = False,
        low_priority: bool = False,
    ) -> tuple[list[Piece], list[Piece]]:
        """Return pieces that fetch units: new ones, not yet started, and ones in flight.

        Unless ``ahead``, pieces of low priority that no thread has started don't count: a reader
        that waits needs only a part of such a piece, and fetches that part itself.
        """
        if not len(missing):
            return [], []
        with self._lock:
            missing = missing[~region.here[missing]]
            flying = region.flying[missing]
            old = self._old
            if old is not None and region is self._region:  # Copied when they have arrived.
                flying = np.where(flying == 0, old.flying[missing], flying)
            under_way = {
                number: piece
                for number in np.unique(flying[flying > 0]).tolist()
                if (piece := self._flying.get(number))
                and (ahead or piece.begun or not piece.low_priority)
            }
            own = []
            gap, longest = GAP_BYTES // region.unit, PIECE_BYTES // region.unit
            for begin, end in runs(missing[~np.isin(flying, [*under_way])], gap, longest):
                number = next(self._numbers)
                fetch = functools.partial(self._fetch, region, number)
                piece = self._flying[number] = Piece(begin, end, fetch, low_priority)
                region.flying[begin:end] = number
                own.append(piece)
            return own, [*under_way.values()]

    def _fetch(self, region: Region, number: int, piece: Piece) -> None:
        begin, end = piece.begin * region.unit, min(piece.end * region.unit, self.size)
        try:
            if region.is_over or region.here[piece.begin : piece.end].all():
                return
            data = self._got(begin, end)
            region.put(piece.begin, data)
            region.here[piece.begin : piece.end] = True
        finally:
            with self._lock:
                self._flying.pop(number, None)
                flying = region.flying[piece.begin : piece.end]
                flying[flying == number] = 0
        if isinstance(region, MemoryRegion) and not region.block_bytes:
            _fetched.came(len(data))

    def _got(self, begin: int, end: int) -> bytes | memoryview:
        reader, key = reader_of(self.path)

        def once() -> bytes | memoryview:
            data = reader.get(key, begin, end, self.head)
            if len(data) != end - begin:
                raise ConnectionError(f"{len(data)} of {end - begin} bytes came")
            return data

        try:
            return persistently(once, self.name)
        except Changed as error:
            head = self.head
            what = f"the object that was opened, of {head.size} bytes, version {head.version}"
            found = f"one that was changed since: {error.found}; open it again"
            raise RecordError(self.name, None, begin, what, found) from None

    def _current(self) -> Region:
        region = self._region
        if region is not None:
            return region
        if self.cache is not None and living() > most():
            for other in _living():
                other._drop()
        with self._lock:
            if self._region is None and (cache := self.cache) is not None:
                self._region = CachedRegion(cache, self.path, self.head)
            if self._region is None:
                self._region = MemoryRegion(self.size)
            return self._region

    def _region_of(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> Region:
        """Return the region for these ranges: one that has or gets them all, if there is any."""
        current = self._current()
        if self._windows:
            units = current.units(begins, sizes)
            for region in (current, *self._windows.values()):
                if (region.here[units] | (region.flying[units] > 0)).all():
                    return region
        return current

    def _viewed(self, region: Region) -> memoryview:
        """Return the view of a region that is used now."""
        if isinstance(region, CachedRegion) and region.use():
            self._drop(region)
        return region.view

    def _drop(self, region: Region | None = None) -> None:
        """Replace this cached region, or any if None, at the next access."""
        with self._lock:
            if isinstance(self._region, CachedRegion) and region in (None, self._region):
                self._region = None

    def _turn(self) -> None:
        """Start a new memory region and keep the previous one."""
        with self._lock:
            if self._region is None or isinstance(self._region, MemoryRegion):
                self._old, self._region = self._region, None


class Stream:
    """Remote file for sequential reading: fetches many pieces at once and as many ahead."""

    def __init__(self, file: RemoteFile, at_once_bytes: int) -> None:
        self._file, self._at_once_bytes = file, at_once_bytes
        self.name, self.size = file.name, file.size
        self._begin, self._part = 0, memoryview(b"")

    def read(self, offset: int, size: int) -> memoryview:
        """Return these bytes; fewer if the object ends before."""
        begin = offset - self._begin
        if begin < 0 or begin + size > len(self._part):
            self._begin, begin = offset, 0
            size_at_once = max(size, self._at_once_bytes)
            self._part = self._file.read(offset, size_at_once)
            self._file.prefetch(np.array([offset + size_at_once]), np.array([self._at_once_bytes]))
        return self._part[begin : begin + size]


class _Fetched:
    """Accounts of fetched and of prefetched bytes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._young_bytes = self._ahead_bytes = 0

    def came(self, size: int) -> None:
        """Account for stored bytes; if half of the budget is used, all files begin new regions."""
        with self._lock:
            self._young_bytes += size
            if self._young_bytes < HALF_BYTES:
                return
            self._young_bytes = self._ahead_bytes = 0
        for file in _living():
            file._turn()

    def expected(self, size: int) -> bool:
        """Reserve ``size`` bytes for prefetched data; return False if they don't fit."""
        with self._lock:
            if self._ahead_bytes + size > MOST_EXPECTED_BYTES:
                return False
            self._ahead_bytes += size
            return True

    def used(self, size: int) -> None:
        """Account for bytes that were requested."""
        if self._ahead_bytes:
            with self._lock:
                self._ahead_bytes = max(0, self._ahead_bytes - size)


_fetched = _Fetched()
_files: weakref.WeakKeyDictionary[RemoteFile, None] = weakref.WeakKeyDictionary()


def _living() -> list[RemoteFile]:
    """Return a copy, because other threads add to it."""
    return [file for reference in _files.keyrefs() if (file := reference()) is not None]


def window_bytes() -> int:
    """Return the number of bytes of all windows in this process's memory."""
    windows = (region for file in _living() for region in [*file._windows.values()])
    return sum(region.block_bytes for region in windows)


def _in_child() -> None:
    global _fetched
    _fetched = _Fetched()
    for file in _living():
        file._begin()


os.register_at_fork(after_in_child=_in_child)
