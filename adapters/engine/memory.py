"""Memory shared between processes: an anonymous memory file, or a temporary file.

A Linux memory file (``memfd_create``) has no name in ``/dev/shm``. So it isn't bound by that
mount's size (64 MB in a container, by default), needs no unlinking, and leaves nothing behind when
its process is killed. Other processes of the same user open it through ``/proc``. On systems
without it, a file in the temporary directory is used.

Ownership: the process that makes a ``SharedFile`` keeps it open as long as others may map it. A
mapping stays valid as long as an array refers to it, independently of the file.
"""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
from typing import NamedTuple

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
