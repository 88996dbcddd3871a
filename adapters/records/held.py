"""``Held``: which windows of an order in blocks lie in memory, over all files of a data set.

    asked for a batch:   hold(blocks of the next window) --> fetched as wholes, in the background
    computed a batch:    leave(windows that were read)

So two windows lie in memory, and the begin of a third; all data sets together hold no more than
``MOST_BYTES``, beyond which records are fetched one by one. What fits into the memory that all
files share anyway stays in that, and what has a cache in the cache. Any thread may ask.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from adapters.foretold import Window
from adapters.records import kept
from adapters.records.remotefile import RemoteFile
from adapters.remote import fetching

MOST_BYTES = 2 << 30
# Smaller blocks are no better than their records by themselves.
_LEAST_BLOCK_BYTES = 1 << 20
# Where a piece takes longer, connections are slow: as many as there can be bring records sooner.
_MOST_PIECE_SECONDS = 0.5
# That read the same files, such as training and validation; those of an earlier one go.
_MOST_ORDERS = 2

_Key = tuple[int, int, int]


class Held:
    """The windows of one data set.

    Args:
        size: Of all its files, in bytes.
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
        """Of all windows."""
        return sum(sum([*files.values()]) for files in [*self._windows.values()])

    def hold(self, file: RemoteFile, offset: int, size: int, window: Window) -> None:
        """Have a file begin to fetch a range of a window."""
        if fetching.later_seconds() > _MOST_PIECE_SECONDS:
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
        """Let go of what was read by the time that this is told."""
        with self._lock:
            self._leave(
                key for key in [*self._windows] if key[1] == window.order and key[2] <= window.over
            )

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            self._leave([*self._windows])

    def _makes_room(self, size: int, order: int) -> bool:
        """Whether so many bytes more may be held, when other orders have let go of theirs."""
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
    """A copy, as threads add to it."""
    return [held for reference in _all.keyrefs() if (held := reference()) is not None]


def _in_child() -> None:
    for held in _living():
        held._begin()


os.register_at_fork(after_in_child=_in_child)
