"""Reads files into the page cache in a background thread, which ends when the queue is empty.

The data are read into ``/dev/null`` rather than only hinted: blocks of 32 MiB arrive at 1.8 GB/s,
and at 1.2 GB/s with ``POSIX_FADV_WILLNEED`` (2026-11). The price is 36 ms instead of 12 for each
GiB that is already in memory. Linux serves a hint only up to its own read-ahead size and drops the
rest, so hints are given piece by piece. If the system's read-ahead is too small for a disk with
high latency, the thread does both.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import threading
from collections.abc import Iterator

_PIECE_BYTES = 4 << 20
# Linux's default read-ahead.
_TOLD_BYTES = 128 << 10
# Enough for 1 GB/s from a disk with a latency of 1 ms.
_ENOUGH_BYTES = 1 << 20


class Ahead:
    """Queue of file ranges to read, first in, first out. Thread-safe."""

    def __init__(self) -> None:
        self._begin_process()

    def _begin_process(self) -> None:
        self._lock = threading.RLock()  # A signal handler may close a file.
        self._waiting: collections.deque[tuple[str | bytes, int, int | None]] = collections.deque()
        self._runs = False

    def read(self, path: str | bytes, offset: int = 0, size: int | None = None) -> None:
        """Queue these bytes for reading, up to the end of the file if ``size`` is None.

        Returns at once and never raises.
        """
        with self._lock:
            self._waiting.append((path, offset, size))
            starts, self._runs = not self._runs, True
        if starts:
            try:
                threading.Thread(target=self._run, name="adapters-ahead", daemon=True).start()
            except RuntimeError:  # No resources for a thread, or the interpreter exits.
                with self._lock:
                    self._waiting.clear()
                    self._runs = False

    def forget(self, path: str) -> None:
        """Drop queued ranges of this file; a range that is being read is finished."""
        if not self._runs:
            return
        with self._lock:
            kept = [each for each in self._waiting if each[0] != path]
            self._waiting = collections.deque(kept)

    @property
    def is_idle(self) -> bool:
        """True if everything queued has been read."""
        return not self._runs

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._runs = False
                    return
                path, offset, size = self._waiting.popleft()
            with contextlib.suppress(Exception), _opened(path, os.O_RDONLY) as file:
                _read_all(file, offset, size)


@contextlib.contextmanager
def _opened(path: str | bytes, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_all(file: int, offset: int, size: int | None) -> None:
    status = os.fstat(file)
    end = status.st_size if size is None else min(status.st_size, offset + size)
    if end - offset < _PIECE_BYTES:  # A small range: don't block the others.
        _have_read(file, offset, end)
        return
    gives_hints = _system_reads_ahead(status.st_dev) < _ENOUGH_BYTES
    if gives_hints:
        _have_read(file, offset, offset + _PIECE_BYTES)
    with _opened(os.devnull, os.O_WRONLY) as sink:
        for at in range(offset, end, _PIECE_BYTES):
            after = min(at + _PIECE_BYTES, end)
            if gives_hints:
                _have_read(file, after, min(after + _PIECE_BYTES, end))
            _read(file, at, after, sink)


@functools.cache
def _system_reads_ahead(device: int) -> int:
    """Number of bytes that the system reads ahead on this device."""
    path = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read()) << 10
    except (OSError, ValueError):  # A partition, or a file system over several disks.
        return _TOLD_BYTES


def _have_read(file: int, begin: int, end: int) -> None:
    """Tell the system that these bytes will be needed. Doesn't wait."""
    for at in range(begin, end, _TOLD_BYTES):
        os.posix_fadvise(file, at, min(_TOLD_BYTES, end - at), os.POSIX_FADV_WILLNEED)


def _read(file: int, begin: int, end: int, sink: int) -> None:
    """Read these bytes and discard them."""
    while begin < end:
        try:
            sent = os.sendfile(sink, file, begin, end - begin)
        except OSError:  # File system without sendfile, such as some FUSE ones.
            _have_read(file, begin, end)
            return
        if not sent:  # The file was truncated.
            return
        begin += sent


AHEAD = Ahead()
os.register_at_fork(after_in_child=AHEAD._begin_process)
