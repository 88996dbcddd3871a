"""Reads files ahead of whoever needs them, in a thread of its own that ends when all is read.

A file is *read*, and what is read goes nowhere, as the system reads ahead of who reads in order:
blocks of 32 MiB come at 1.8 GB/s, where the same blocks told by ``POSIX_FADV_WILLNEED`` come at 1.2
(2026-11). Of what is in memory already, a GiB takes 36 ms, and took 12. Of a range that is told,
Linux takes no more at once than it reads ahead by itself, and forgets the rest: so it is told piece
by piece. Where the system reads little ahead, which is too little for a disk that is far, both are
done.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from typing import NamedTuple

_PIECE_BYTES = 4 << 20
# What Linux reads ahead unless somebody has set that.
_TOLD_BYTES = 128 << 10
# Of a disk that answers in a millisecond, 1 GB/s.
_ENOUGH_BYTES = 1 << 20


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
            with contextlib.suppress(Exception), _opened(piece.path, os.O_RDONLY) as file:
                _read_all(file, piece)

    def _next(self) -> _Range | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._runs = False
            return None


@contextlib.contextmanager
def _opened(path: str | bytes, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_all(file: int, whole: _Range) -> None:
    status = os.fstat(file)
    end = status.st_size
    if whole.size is not None:
        end = min(end, whole.offset + whole.size)
    if end - whole.offset < _PIECE_BYTES:  # One of many, which nobody is to wait for in turn.
        _have_read(file, whole.offset, end)
        return
    is_told = _system_reads_ahead(status.st_dev) < _ENOUGH_BYTES
    if is_told:
        _have_read(file, whole.offset, whole.offset + _PIECE_BYTES)
    with _opened(os.devnull, os.O_WRONLY) as sink:
        for at in range(whole.offset, end, _PIECE_BYTES):
            after = min(at + _PIECE_BYTES, end)
            if is_told:
                _have_read(file, after, min(after + _PIECE_BYTES, end))
            _read(file, at, after, sink)


@functools.cache
def _system_reads_ahead(device: int) -> int:
    """How many bytes the system reads ahead of who reads a file there in order."""
    path = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read()) << 10
    except (OSError, ValueError):  # A partition, or a file system of several disks.
        return _TOLD_BYTES


def _have_read(file: int, begin: int, end: int) -> None:
    """Tell the system that these bytes will be needed; nothing is waited for."""
    for at in range(begin, end, _TOLD_BYTES):
        os.posix_fadvise(file, at, min(_TOLD_BYTES, end - at), os.POSIX_FADV_WILLNEED)


def _read(file: int, begin: int, end: int, sink: int) -> None:
    """Read these bytes to nowhere."""
    while begin < end:
        try:
            sent = os.sendfile(sink, file, begin, end - begin)
        except OSError:  # A file system that sends nothing, such as some of users' own.
            _have_read(file, begin, end)
            return
        if not sent:  # The file has become shorter.
            return
        begin += sent


AHEAD = Ahead()
os.register_at_fork(after_in_child=AHEAD._begin_process)
