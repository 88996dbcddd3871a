"""Memory of batches: files shared between processes, and blocks of this process used again.

A Linux memory file (``memfd_create``) has no name in ``/dev/shm``. So it isn't bound by that
mount's size (64 MB in a container, by default), needs no unlinking, and leaves nothing behind when
its process is killed. Other processes of the same user open it through ``/proc``. On systems
without it, a file in the temporary directory is used.

Ownership: the process that makes a ``SharedFile`` keeps it open as long as others may map it. A
mapping stays valid as long as an array refers to it, independently of the file.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import math
import mmap
import os
import tempfile
import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.alignment import aligned_empty

_serials = itertools.count()


class FileName(NamedTuple):
    """Name under which another process opens a shared file."""

    path: str
    serial: int
    """Distinguishes files that had the same path one after the other."""
    inode: int
    """Inode of the file, to detect that a later file has the same path."""


class SharedFile:
    """A memory file, owned by the process that makes it; empty at first.

    Any process with its name may map it and make it longer.
    """

    _descriptor = -1
    _temporary: str | None = None

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._descriptor = os.memfd_create("loader-adapters", os.MFD_CLOEXEC)
            path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        else:
            self._descriptor, path = tempfile.mkstemp(prefix="loader-adapters-")
            self._temporary = path
        self.name = FileName(path, next(_serials), os.fstat(self._descriptor).st_ino)

    @property
    def size(self) -> int:
        """Size in bytes; any process may have changed it."""
        return os.fstat(self._descriptor).st_size

    def grow(self, size: int) -> None:
        """Make the file at least ``size`` bytes long."""
        grow(self._descriptor, size)

    def map(self) -> mmap.mmap:
        """Map the whole file; writes are visible to all processes."""
        return mmap.mmap(self._descriptor, self.size)

    def close(self) -> None:
        """Close the file; mappings stay valid."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if self._temporary is not None:
                os.unlink(self._temporary)

    def __del__(self) -> None:
        self.close()


def grow(descriptor: int, size: int) -> None:
    """Make a file at least ``size`` bytes long, and allocate its memory now.

    Raises:
        MemoryError: There is too little memory; writing to a mapping would kill the process.
    """
    if os.fstat(descriptor).st_size >= size:
        return
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        raise MemoryError(
            f"shared memory for {size:,} bytes could not be had ({error.strerror}): use a smaller "
            "batch_size or max_queue_size, fewer workers, or threads (use_multiprocessing=False)"
        ) from error


def open_shared(name: FileName, flags: int = os.O_RDWR) -> int:
    """Open another process's file, and return the descriptor.

    Raises:
        FileNotFoundError: That process has closed it.
    """
    descriptor = os.open(name.path, flags)
    if os.fstat(descriptor).st_ino != name.inode:
        os.close(descriptor)
        raise FileNotFoundError(f"{name.path} is another file by now")
    return descriptor


def map_private(name: FileName) -> mmap.mmap:
    """Map another process's file; writes stay in this process."""
    descriptor = open_shared(name, os.O_RDONLY)
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(descriptor)


# --- blocks of this process ---

# Smaller blocks are cached by glibc's allocator, which is 3% faster (uint8 images, 10 MB).
_LEAST_BYTES = 32 << 20
# Maximum number of free blocks: batches are freed one by one, and a worker starts on the next.
_MOST_FREE = 4


class Arena:
    """Memory of large batches, reused when no array refers to it any more.

    The system zeroes the pages of new memory first: two threads that decode JPEGs into float32
    ``(64, 3, 224, 224)`` were a seventh slower with new memory.

    A block is lent as an array, and every view of that array keeps the loan alive. The block is
    free again when the last of them is gone, never sooner, because frameworks read from it without
    a copy. The garbage collector ends no loan early: it doesn't traverse NumPy arrays. Any thread
    may call this, and it never blocks. If many blocks are freed at once, most go back to the
    system.
    """

    def __init__(self) -> None:
        self._free: collections.deque[NDArray[np.uint8]] = collections.deque(maxlen=_MOST_FREE)
        self._closed = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Allocate an uninitialised array, as ``aligned_empty`` does."""
        dtype = np.dtype(dtype)
        count = math.prod(shape)
        size = count * dtype.itemsize
        if dtype.hasobject or size < _LEAST_BYTES:
            return aligned_empty(shape, dtype)
        block = self._take(size)
        loan: Any = (ctypes.c_char * size).from_buffer(block.data)
        weakref.finalize(loan, self._give_back, block).atexit = False
        array: NDArray[Any] = np.frombuffer(loan, dtype, count).reshape(shape)
        return array

    def close(self) -> None:
        """Return free blocks to the system, and the others when their arrays are gone."""
        self._closed = True
        self._free.clear()

    def _take(self, size: int) -> NDArray[np.uint8]:
        """Take a free block of up to twice the size, or make a new one."""
        for _ in range(len(self._free)):
            try:
                block = self._free.pop()
            except IndexError:  # Another thread was faster.
                break
            if size <= block.nbytes <= 2 * size:
                return block
            self._free.appendleft(block)
        return aligned_empty((size,), np.dtype(np.uint8))

    def _give_back(self, block: NDArray[np.uint8]) -> None:
        if not self._closed:
            self._free.append(block)
