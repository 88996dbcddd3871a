"""Memory that several processes map: a nameless file, or a temporary one where those don't exist.

A Linux memory file (``memfd_create``) has no name in ``/dev/shm``: it isn't bound by that mount's
size (64 MB in a container, by default), nothing has to be unlinked, and nothing is left when the
process that made it is killed. Other processes of the same user open it through ``/proc``.
Elsewhere a file in the temporary directory takes its place.

Ownership: the process that makes a ``SharedFile`` keeps it open for as long as others may map it. A
mapping lives on its own, for as long as an array refers to it.
"""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
from typing import NamedTuple

_serials = itertools.count()


class FileName(NamedTuple):
    """How another process finds a shared file."""

    path: str
    serial: int
    """Tells apart files that had the same path one after the other."""
    inode: int
    """What stands at that path must be this file, and not the next one of that path."""


class SharedFile:
    """A file in memory, of the process that makes it; empty at first.

    Any process that has its name may map it and make it longer.
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
        """Bytes, as any process has made it."""
        return os.fstat(self._descriptor).st_size

    def grow(self, size: int) -> None:
        """Make the file at least ``size`` bytes long."""
        grow(self._descriptor, size)

    def map(self) -> mmap.mmap:
        """The whole file; writing changes it for everybody."""
        return mmap.mmap(self._descriptor, self.size)

    def close(self) -> None:
        """Forget the file; what has been mapped stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if self._temporary is not None:
                os.unlink(self._temporary)

    def __del__(self) -> None:
        self.close()


def grow(descriptor: int, size: int) -> None:
    """Make a file at least ``size`` bytes long, and have the room for it now.

    Raises:
        MemoryError: There is no room; a write to the mapping would have killed the process.
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
    """A descriptor of another process's file.

    Raises:
        FileNotFoundError: That process has closed it.
    """
    descriptor = os.open(name.path, flags)
    if os.fstat(descriptor).st_ino != name.inode:
        os.close(descriptor)
        raise FileNotFoundError(f"{name.path} is another file by now")
    return descriptor


def map_private(name: FileName) -> mmap.mmap:
    """Map another process's file; what is written stays in this process."""
    descriptor = open_shared(name, os.O_RDONLY)
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(descriptor)
