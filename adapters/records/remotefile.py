"""``RemoteFile``: an object in a store, or a file on a slow disk, as storage of records.

    covering, touch --units--> region: there?  --no--> Pieces, all at once --> region

It has one view, as long as the object, in which only requested bytes are available. Requesting a
view waits for its bytes. ``expect`` prefetches bytes.

Without a cache, the bytes lie in memory, and all files together keep the last 512 MiB that were
fetched. When half of that has arrived, each file starts a new region. Data that are requested and
still in the previous region are copied; the one before that is released once no view holds it.
Windows of a block order have regions of their own, see ``held``. With a cache, the bytes lie in its
files, or in memory if these can't be written.

If the object's version (ETag, or size and time) changes, a ``RecordError`` is raised. Thread-safe.
Another process or a fork opens the object again, with the same version.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import time
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.records import kept
from adapters.records.mapping import NoMapError, living, most
from adapters.records.pieces import ANY, BEGUN, NONE, Pieces
from adapters.records.regions import (
    CachedRegion,
    CacheError,
    EvictedError,
    MemoryRegion,
    Region,
    WindowRegion,
)
from adapters.records.streamed import Streamed
from adapters.remote import Cache, Head, clean, client_of, is_url
from adapters.remote.cache import CachedObject
from adapters.remote.fetch import runs, start
from adapters.remote.retry import persistently

_TRIES = 5
# A reader that needs part of a large piece in flight fetches the part itself after this time.
_PATIENCE_SECONDS = 0.25


class RemoteFile:
    """Object whose bytes are fetched when they are read.

    Args:
        url: URL of the object, or a local path.
        cache: Cache for fetched data; None for memory.
        head: Its size and version if known; else they are requested.

    Raises:
        ConnectionError: The store doesn't answer.
        FileNotFoundError: There is no such object.
        ImportError: No client for such stores is installed.
        PermissionError: The store refuses.
    """

    is_remote = True

    def __init__(self, url: str, cache: Cache | None = None, head: Head | None = None) -> None:
        self.name = clean(url)
        self.url = url if is_url(url) else os.path.abspath(url)
        if head is None:
            client, key = client_of(self.url)
            head = persistently(lambda: client.head(key), self.name)
        self.head = head
        self._cache = cache and cache.for_version(url, self.head)
        self.size = self.head.size
        self.changed_ns = self.head.changed_ns
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._region: Region | None = None
        self._old: MemoryRegion | None = None
        self._windows: dict[Any, WindowRegion] = {}
        self._pieces = Pieces(self.url, self.name, self.head, self._lock, _came)
        self._uncached = self._cache is None
        _files[self] = None

    # --- storage ---

    def read(self, offset: int, size: int) -> memoryview:
        """Return these bytes; fewer if the object ends before."""
        return self.covering(offset, size)[offset : offset + size]

    def covering(self, offset: int, size: int) -> memoryview:
        """Return a view of the object in which these bytes are available."""
        return self.touch(np.array([offset]), np.array([size]))

    def touch(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> memoryview:
        """Return a view of the object with these ranges available; fetch what is missing.

        Args:
            begins: Offsets of the ranges, ``(ranges,)``.
            sizes: Sizes in bytes, ``(ranges,)``; parts beyond the object are ignored.

        Raises:
            ConnectionError: The store didn't answer within the time limit.
            RecordError: The object has changed since it was opened.
        """
        if not self.size:
            return memoryview(b"")
        kept.used(int(sizes.sum()))
        region = self._region
        if region is not None and region.is_complete:
            return self._viewed(region)
        for _ in range(_TRIES):
            region = self._region_of(begins, sizes)
            try:
                if self._bring(region, begins, sizes):
                    return region.view
            except EvictedError:
                self._drop(region)
            except NoMapError:
                if self._uncached:
                    raise
                self._without_cache(region)
            except CacheError as error:
                assert self._cache is not None
                self._cache.failed(error.cause)
                self._without_cache(region)
        self._without_cache(self._current())
        region = self._current()
        self._bring(region, begins, sizes)
        return region.view

    def expect(
        self, begins: NDArray[np.int64], sizes: NDArray[np.int64], elsewhere: bool = False
    ) -> None:
        """Prefetch ranges if the budget allows; their readers get any errors."""
        if self.size and (elsewhere or kept.expected(int(sizes.sum()))):
            self._start(begins, sizes, expected=True)

    def will_read(self, offset: int, size: int) -> None:
        """Prefetch a range that will be read in any order into the cache.

        Without a cache this does nothing: the range would evict data that are needed sooner, and
        batches are prefetched anyway.
        """
        if self.has_cache:
            self.expect(np.array([offset]), np.array([size]))

    def hold(self, offset: int, size: int, window: Any) -> None:
        """Prefetch a range whole because it will be read here.

        Args:
            offset: Offset of its first byte.
            size: Size in bytes.
            window: Window to hold it in memory until ``leave``; None to store it like other data.
        """
        begins, sizes = np.array([offset]), np.array([size])
        with contextlib.suppress(Exception):
            region: Any = self._current()
            if window is not None:
                with self._lock:
                    if window not in self._windows:
                        self._windows[window] = WindowRegion(self.size)
                    region = self._windows[window]
                region.will_come(offset, size)
            self._start(begins, sizes, expected=True, later=region)

    def leave(self, window: Any) -> None:
        """Release a window that has been read."""
        with self._lock:
            region = self._windows.pop(window, None)
        if region is not None:
            region.left = True

    def start(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        """Start to fetch ranges that are needed next; their readers get any errors."""
        if self.size:
            self._start(begins, sizes, expected=False)

    def _start(
        self,
        begins: NDArray[np.int64],
        sizes: NDArray[np.int64],
        expected: bool,
        later: Region | None = None,
    ) -> None:
        """Start to fetch ranges, at low priority if ``later`` is the region for them."""
        with contextlib.suppress(Exception):
            region = later or self._region_of(begins, sizes)
            missing = self._missing(region, region.units(begins, sizes), ahead=True)
            old, patience = self._before(region), ANY if expected else BEGUN
            own, _ = self._pieces.of(region, old, missing, later is not None, patience)
            start(own, expected)

    def _region_of(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> Region:
        """Return the region for these ranges: a window's if it covers them all."""
        region = self._current()
        if not self._windows:
            return region
        units = region.units(begins, sizes)
        if (region.here[units] | (region.flying[units] > 0)).all():
            return region
        for other in [*self._windows.values()]:
            if other.told[other.units(begins, sizes)].all():
                return other
        return region

    def stream(self) -> Streamed:
        """Return the object for sequential reading."""
        return Streamed(self)

    def close(self) -> None:
        """Release its memory as soon as no view holds it."""
        with self._lock:
            self._region = self._old = None
            self._windows.clear()

    # --- availability ---

    def _bring(self, region: Region, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> bool:
        """Wait for these ranges; return True if the region now has them all."""
        units, patience = region.units(begins, sizes), BEGUN
        for _ in range(_TRIES):
            if region.here[units].all():
                region.note_use()
                self._viewed(region)
                return True
            missing, old = self._missing(region, units), self._before(region)
            own, others = self._pieces.of(region, old, missing, patience=patience)
            if len(own) > 1:
                start(own)
            ends = time.monotonic() + _PATIENCE_SECONDS
            for piece in own + others:
                if piece.later and not piece.ends_within(ends - time.monotonic()):
                    patience = NONE
                    continue
                piece.wait()
                if piece.error is not None:
                    raise copy.copy(piece.error) from None
        return bool(region.here[units].all())

    def _viewed(self, region: Region) -> memoryview:
        """Return the view of a region that is used now."""
        if isinstance(region, CachedRegion) and region.use():
            self._drop(region)
        return region.view

    @property
    def is_here(self) -> bool:
        """True if no data need fetching; cached pages are checked when they are read."""
        region = self._region
        return region is not None and (region.is_complete or region.is_filled)

    def _missing(
        self, region: Region, units: NDArray[np.int64], ahead: bool = False
    ) -> NDArray[np.int64]:
        """Return units to fetch, sorted and unique; if ``ahead``, don't check cached pages."""
        missing: NDArray[np.int64] = units[~region.here[units]]
        if isinstance(region, CachedRegion):
            if ahead:
                return _ascending(missing[~region.lie_here(missing)])
            try:
                region.look(missing)
            except NoMapError:
                raise
            except OSError as error:
                raise CacheError(error) from error
        elif region is self._region:
            for other in (self._old, *self._windows.values()):
                self._copy(other, region, _ascending(missing[~region.here[missing]]))
        return _ascending(missing[~region.here[missing]])

    def _before(self, region: Region) -> MemoryRegion | None:
        """Return the region in which pieces to be copied may be in flight."""
        return self._old if region.shared else None

    @staticmethod
    def _copy(old: MemoryRegion | None, region: Region, units: NDArray[np.int64]) -> None:
        """Copy available units from another region."""
        if old is None:
            return
        for begin, end in runs(units[old.here[units]], 0, 1 << 20):
            data = old.view[begin * old.unit : end * old.unit]
            region.put(begin, data)
            region.here[begin:end] = True
            _came(len(data))

    # --- regions ---

    def _current(self) -> Region:
        region = self._region
        if region is not None:
            return region
        if not self._uncached and living() > most():
            for other in _living():
                other._drop(None)
        with self._lock:
            if self._region is None:
                if self._uncached:
                    self._region = MemoryRegion(self.size)
                else:
                    self._region = CachedRegion(self.size, self.cached())
            return self._region

    def _drop(self, region: Region | None) -> None:
        """Replace this cached region, or any if None, at the next access."""
        with self._lock:
            if isinstance(self._region, CachedRegion) and region in (None, self._region):
                self._region = None

    def _without_cache(self, region: Region) -> None:
        """Use memory from now on."""
        with self._lock:
            self._uncached = True
            if self._region is region and not isinstance(region, MemoryRegion):
                self._region = None

    def _turn(self) -> None:
        """Start a new memory region and keep the previous one."""
        with self._lock:
            if self._region is None or isinstance(self._region, MemoryRegion):
                self._old, self._region = self._region, None

    def cached(self) -> CachedObject:
        """Return its entry in the cache; requires a cache."""
        assert self._cache is not None
        return self._cache.object_of(self.url, self.head)

    @property
    def is_cached(self) -> bool:
        """True if fetched data are now stored in the cache."""
        return not self._uncached

    @property
    def has_cache(self) -> bool:
        """True if it has a cache, even one that has failed."""
        return self._cache is not None

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "cache": self._cache, "head": self.head}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(RemoteFile(state["url"], state["cache"], state["head"]).__dict__)
        _files[self] = None


def _ascending(units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort and remove duplicates."""
    if not len(units):
        return units
    found: NDArray[np.int64] = np.unique(units)
    return found


_files: weakref.WeakKeyDictionary[RemoteFile, None] = weakref.WeakKeyDictionary()


def _living() -> list[RemoteFile]:
    """Return a copy, because other threads add to it."""
    return [file for reference in _files.keyrefs() if (file := reference()) is not None]


def _came(size: int) -> None:
    kept.came(size, _turned)


def _turned() -> None:
    for file in _living():
        file._turn()


def _in_child() -> None:
    kept.forget()
    for file in _living():
        file._begin()


os.register_at_fork(after_in_child=_in_child)
