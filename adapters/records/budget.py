"""Memory budgets for remote data, shared by all files of a process.

==================  ========================================================================
fetched data        two generations of ``HALF_BYTES`` for all files without a cache
prefetched data     ``MOST_EXPECTED_BYTES`` that were not requested yet
windows of blocks   ``MOST_BYTES``; beyond that, records are fetched one by one
==================  ========================================================================

An order of samples in blocks (``batch.blocks``) reads a few blocks at once, shuffled: a window. A
block is a range of a file::

    batch requested:   prefetch(blocks of the next window) --> fetched whole, in the background
    batch computed:    leave(windows that have been read)

So two windows and the start of a third lie in memory. Data that fit into the generations stay
there, and data of cached files stay in the cache. Thread-safe. Each process has its own budgets.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

from adapters.readahead import Window
from adapters.remote import fetch

# For scale: a window of 10 prefetched batches of 256 images of 47 kB has 120 MB.
HALF_BYTES = 256 << 20
MOST_EXPECTED_BYTES = 128 << 20
MOST_BYTES = 2 << 30
# Smaller blocks gain nothing over fetching single records.
_LEAST_BLOCK_BYTES = 1 << 20
# If a piece takes longer, connections are slow, and fetching records needs all of them.
_MOST_PIECE_SECONDS = 0.5


class Fetched:
    """Accounts of fetched and of prefetched bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._young_bytes = self._ahead_bytes = 0

    def came(self, size: int) -> bool:
        """Account for stored bytes; return True if all files must start a new generation."""
        with self._lock:
            self._young_bytes += size
            if self._young_bytes < HALF_BYTES:
                return False
            self._young_bytes = self._ahead_bytes = 0
            return True

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


class _File(Protocol):
    """Remote file that holds windows."""

    @property
    def uses_cache(self) -> bool: ...

    def prefetch_block(self, offset: int, size: int, window: Any) -> None: ...

    def leave(self, window: Any) -> None: ...


class Windows:
    """Windows of one data set that lie in memory.

    Args:
        size: Size of all its files in bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._windows: dict[tuple[int, int, int], dict[_File, int]] = {}
        with _lock:
            _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Windows, (self._size,)

    @property
    def bytes(self) -> int:
        """Number of bytes of all windows."""
        return sum(sum(files.values()) for files in [*self._windows.values()])

    def prefetch(self, file: _File, offset: int, size: int, window: Window) -> None:
        """Start to fetch a block of a window from a file, unless fetching records is better.

        Small blocks gain nothing, and on slow connections, records come first. Data sets of up to
        two ``HALF_BYTES`` stay in the generations anyway; of these, only data sets of up to one, or
        with a cache, are fetched in blocks.
        """
        if fetch.low_priority_seconds() > _MOST_PIECE_SECONDS:
            return
        if file.uses_cache or self._size <= HALF_BYTES:
            file.prefetch_block(offset, size, None)
        elif size >= _LEAST_BLOCK_BYTES and self._size > 2 * HALF_BYTES:
            key = (id(self), window.order, window.number)
            with _lock:
                if self._makes_room(size, window.order):
                    files = self._windows.setdefault(key, {})
                    files[file] = files.get(file, 0) + size
                    file.prefetch_block(offset, size, key)

    def leave(self, window: Window) -> None:
        """Release the windows that have been read according to ``window.over``."""
        with _lock:
            for key in [*self._windows]:
                if key[1] == window.order and key[2] <= window.over:
                    self._drop(key)

    def close(self) -> None:
        """Release all windows."""
        with _lock:
            for key in [*self._windows]:
                self._drop(key)

    def _makes_room(self, size: int, order: int) -> bool:
        """Drop other orders' windows if needed; return True if ``size`` more bytes may be held."""
        others = [key for key in self._windows if key[1] != order]
        while sum(each.bytes for each in _all) + size > MOST_BYTES:
            if not others:
                return False
            self._drop(others.pop(0))
        return True

    def _drop(self, key: tuple[int, int, int]) -> None:
        for file in self._windows.pop(key):
            file.leave(key)


fetched = Fetched()
_lock = threading.Lock()
_all: weakref.WeakSet[Windows] = weakref.WeakSet()


def _in_child() -> None:
    global fetched, _lock
    fetched, _lock = Fetched(), threading.Lock()
    for each in _all:
        each._windows = {}


os.register_at_fork(after_in_child=_in_child)
