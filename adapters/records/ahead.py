"""Reads files ahead of whoever needs them, in a thread of its own that ends when all is read.

Linux reads no more of a range at once than it reads ahead by itself, 128 KiB unless somebody has
set that, and forgets the rest: so a range is told piece by piece. Where the disk is slower than who
tells it, the system has whoever tells it wait, which is not to be a thread that makes batches.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from typing import NamedTuple

_PIECE_BYTES = 128 << 10


class _Range(NamedTuple):
    path: str | bytes
    offset: int
    size: int | None


class Ahead:
    """Ranges of files that are to be read, first come, first read. Any thread may call."""

    def __init__(self) -> None:
        self._begin_process()

    def _begin_process(self) -> None:
        self._lock = threading.RLock()  # A signal handler may close a file.
        self._waiting: collections.deque[_Range] = collections.deque()
        self._runs = False

    def read(self, path: str | bytes, offset: int = 0, size: int | None = None) -> None:
        """Have these bytes read, to the end if there is no size.

        Nothing is waited for, and nothing is an error.
        """
        if not hasattr(os, "posix_fadvise"):
            return
        with self._lock:
            self._waiting.append(_Range(path, offset, size))
            starts, self._runs = not self._runs, True
        if starts:
            try:
                threading.Thread(target=self._run, name="adapters-ahead", daemon=True).start()
            except RuntimeError:  # There is no room for one, or the interpreter exits.
                with self._lock:
                    self._waiting.clear()
                    self._runs = False

    def forget(self, path: str) -> None:
        """Read no more of this file, but what was begun."""
        if not self._runs:
            return
        with self._lock:
            kept = [each for each in self._waiting if each.path != path]
            self._waiting = collections.deque(kept)

    @property
    def is_idle(self) -> bool:
        """Whether all has been read."""
        return not self._runs

    def _run(self) -> None:
        while (piece := self._next()) is not None:
            with contextlib.suppress(OSError):
                descriptor = os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                try:
                    self._tell(descriptor, piece)
                finally:
                    os.close(descriptor)

    def _next(self) -> _Range | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._runs = False
            return None

    def _tell(self, descriptor: int, whole: _Range) -> None:
        end = os.fstat(descriptor).st_size if whole.size is None else whole.offset + whole.size
        for at in range(whole.offset, end, _PIECE_BYTES):
            size = min(_PIECE_BYTES, end - at)
            os.posix_fadvise(descriptor, at, size, os.POSIX_FADV_WILLNEED)


AHEAD = Ahead()
os.register_at_fork(after_in_child=AHEAD._begin_process)
