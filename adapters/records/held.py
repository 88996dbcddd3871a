"""``Held``: which windows of an order in blocks lie in memory, over all files of a data set.

A window is fetched as a whole while the one before it is read, and goes when it was read: so two
of them lie in memory, and the begin of a third. Another pass, or another order over the same files,
begins anew. Any thread may ask.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from adapters.foretold import Window
from adapters.records.remotefile import RemoteFile

# As long as all take less, so many more stay after they were read: of small ones, batches may still
# be computed then, as they are asked for ahead.
_LEAST_BYTES, _MORE = 256 << 20, 4
# Larger windows are fetched sample by sample: two of them would take more than this of memory.
MOST_BYTES = 2 << 30


class Held:
    """The windows of one data set.

    Args:
        size: Of all its files, in bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[int, set[RemoteFile]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Held, (self._size,)

    def hold(self, file: RemoteFile, offset: int, size: int, window: Window) -> None:
        """Have a file begin to fetch a range of a window."""
        window_bytes = window.share * self._size
        if not file.has_cache and 2 * window_bytes > MOST_BYTES:
            return
        with self._lock:
            if window.number not in self._files:
                follows = window.number - 1 in self._files
                self._leave([*self._files] if not follows else [])
                self._files[window.number] = set()
            more = 0 if len(self._files) * window_bytes > _LEAST_BYTES else _MORE
            self._leave([number for number in self._files if number <= window.over - more])
            self._files[window.number].add(file)
            file.hold(offset, size, window.number)

    def _leave(self, numbers: list[int]) -> None:
        for number in numbers:
            for file in self._files.pop(number):
                file.leave(number)


_all: weakref.WeakSet[Held] = weakref.WeakSet()


def _in_child() -> None:
    for held in [*_all]:
        held._begin()


os.register_at_fork(after_in_child=_in_child)
