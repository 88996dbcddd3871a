"""``Held``: the block-order windows of remote files that lie in memory.

    batch requested:   hold(blocks of the next window) --> fetched whole, in the background
    batch computed:    leave(windows that have been read)

So two windows and the start of a third lie in memory. All data sets together hold at most
``MOST_BYTES``; beyond that, records are fetched one by one. Data that fit into the memory shared by
all files stay there, and data of cached files stay in the cache. Thread-safe.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from adapters.readahead import Window
from adapters.records import kept
from adapters.records.remotefile import RemoteFile
from adapters.remote import fetch

MOST_BYTES = 2 << 30
# Smaller blocks gain nothing over fetching single records.
_LEAST_BLOCK_BYTES = 1 << 20
# If a piece takes longer, connections are slow, and fetching records needs all of them.
_MOST_PIECE_SECONDS = 0.5
# Orders over the same files at once, such as training and validation; older ones are dropped.
_MOST_ORDERS = 2

_Key = tuple[int, int, int]


class Held:
    """Windows of one data set.

    Args:
        size: Size of all its files in bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._begin()
        _all[self] = None

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[_Key, dict[RemoteFile, int]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Held, (self._size,)

    @property
    def bytes(self) -> int:
        """Number of bytes of all windows."""
        return sum(sum([*files.values()]) for files in [*self._windows.values()])

    def hold(self, file: RemoteFile, offset: int, size: int, window: Window) -> None:
        """Start to fetch a range of a window from a file."""
        if fetch.later_seconds() > _MOST_PIECE_SECONDS:
            return
        if file.is_cached or self._size <= kept.HALF_BYTES:
            file.hold(offset, size, None)
        elif size >= _LEAST_BLOCK_BYTES and self._size > 2 * kept.HALF_BYTES:
            key = (id(self), window.order, window.number)
            with self._lock:
                if self._makes_room(size, window.order):
                    files = self._windows.setdefault(key, {})
                    files[file] = files.get(file, 0) + size
                    file.hold(offset, size, key)

    def leave(self, window: Window) -> None:
        """Release the windows that have been read according to ``window.over``."""
        with self._lock:
            self._leave(
                key for key in [*self._windows] if key[1] == window.order and key[2] <= window.over
            )

    def close(self) -> None:
        """Release all windows."""
        with self._lock:
            self._leave([*self._windows])

    def _makes_room(self, size: int, order: int) -> bool:
        """Drop other orders' windows if needed; return True if ``size`` more bytes may be held."""
        orders = list(dict.fromkeys(key[1] for key in self._windows if key[1] != order))
        gone = orders[: max(0, len(orders) + 1 - _MOST_ORDERS)]
        self._leave([key for key in self._windows if key[1] in gone])
        others = [key for key in self._windows if key[1] != order]
        while sum(held.bytes for held in _living()) + size > MOST_BYTES:
            if not others:
                return False
            self._leave([others.pop(0)])
        return True

    def _leave(self, keys: Any) -> None:
        for key in keys:
            for file in self._windows.pop(key):
                file.leave(key)


_all: weakref.WeakKeyDictionary[Held, None] = weakref.WeakKeyDictionary()


def _living() -> list[Held]:
    """Return a copy, because other threads add to it."""
    return [held for reference in _all.keyrefs() if (held := reference()) is not None]


def _in_child() -> None:
    for held in _living():
        held._begin()


os.register_at_fork(after_in_child=_in_child)
