"""Segment files of the cache: a part of an object, stored by pages as these were read.

::

    segment:  pages of 4,096 bytes, where they stand in the object | table
    table:    u64 for each page: 0 while it isn't there, else its CRC | which CRC << 32

The file is sparse: missing pages take no disk space. A page is written before its entry and used
only if its CRC matches. So a kill or a power loss leaves pages that are missing or are fetched
again, never a wrong one. Processes that write the same page write the same bytes, so they need no
lock. All numbers are little-endian.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load
from adapters.remote.privatefiles import make_private, opened

SUFFIX = ".seg"
PAGE_BYTES = 4096
_ENTRY = np.dtype("<u8")
_ZLIB, _CASTAGNOLI = 1 << 32, 2 << 32

try:
    from google_crc32c import value as _crc32c
except ImportError:  # zlib's is slower: 1.3 us a page, against 0.6 (2026-11).
    _crc32c = None


def crc_of(data: bytes | memoryview) -> int:
    """Compute the table entry of a page."""
    return zlib.crc32(data) | _ZLIB if _crc32c is None else _crc32c(bytes(data)) | _CASTAGNOLI


def entries_of(data: memoryview, pages: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Compute the table entries of these pages of ``data``."""
    begins, kernel = pages * PAGE_BYTES, load()
    if kernel is None:
        return np.array([crc_of(data[at : at + PAGE_BYTES]) for at in begins.tolist()], _ENTRY)
    crcs = np.frombuffer(kernel.crcs(data, begins, begins + PAGE_BYTES), np.uint32)
    entries: NDArray[np.uint64] = crcs.astype(_ENTRY) | np.uint64(_CASTAGNOLI)
    return entries


class Segment:
    """One segment file, for any number of threads and processes; keeps no descriptor open.

    It and its folder are created if missing. The last page is padded with zeros.
    """

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.pages = -(-size // PAGE_BYTES)
        self._end = self.pages * PAGE_BYTES
        whole = self._end + self.pages * _ENTRY.itemsize
        make_private(os.path.dirname(path))
        with open(opened(path, os.O_RDWR | os.O_CREAT), "rb+", 0) as file:
            status = os.fstat(file.fileno())
            # Complete a file whose creator was killed; never shorten one.
            if status.st_size < whole:
                file.truncate(whole)
            self._inode = status.st_ino

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Open the file for a ``with`` block, and yield its descriptor."""
        descriptor = opened(self.path, os.O_RDWR)
        try:
            if os.fstat(descriptor).st_ino != self._inode:
                raise FileNotFoundError(self.path)
            yield descriptor
        finally:
            os.close(descriptor)

    def table(self) -> NDArray[np.uint64]:
        """Read the present entries of all pages; zeros if the file was evicted."""
        size, data = self.pages * _ENTRY.itemsize, b""
        with contextlib.suppress(FileNotFoundError), self.opened() as descriptor:
            data = os.pread(descriptor, size, self._end)
        return np.frombuffer(data.ljust(size, b"\0"), _ENTRY)

    def write(self, first: int, data: memoryview) -> None:
        """Store pages from number ``first`` on; the last may be shorter."""
        count = -(-len(data) // PAGE_BYTES)
        if len(data) < count * PAGE_BYTES:
            data = memoryview(bytes(data).ljust(count * PAGE_BYTES, b"\0"))
        entries = entries_of(data, np.arange(count))
        with self.opened() as descriptor:
            write_all(descriptor, data, first * PAGE_BYTES)
            write_all(descriptor, entries.tobytes(), self._end + 8 * first)

    @property
    def is_there(self) -> bool:
        """True if the file hasn't been evicted."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except OSError:
            return False

    def used(self) -> None:
        """Record a use, for eviction."""
        with contextlib.suppress(OSError):  # Evicted, or not writable.
            os.utime(self.path)


def write_all(descriptor: int, data: Any, offset: int) -> None:
    """Write all of these bytes to a place in a file."""
    while len(data):
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count
