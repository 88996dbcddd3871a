"""The page cache: dropping files from it, filling it, and how much of them is in it.

Nothing here is sure: pages that some process has mapped stay, and on tmpfs the cache is the file.
So whoever measures without the cache looks afterwards what is still there. What the disk has in a
cache of its own, or a virtual machine's host, isn't seen from here.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)


def drop(paths: Iterable[Path]) -> float:
    """Have the kernel forget these files' pages; returns the share that is still cached, 0 to 1.

    Args:
        paths: Files that nobody has mapped.
    """
    paths = list(paths)
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # Pages that aren't written yet are kept.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return cached_share(paths)


def fill(paths: Iterable[Path]) -> None:
    """Read these files: the first row would wait for the disk, the others not."""
    for path in paths:
        path.read_bytes()


def cached_share(paths: Iterable[Path]) -> float:
    """Which share of these files' pages is in the cache, 0 to 1.

    Args:
        paths: Files; Linux tells of those only that one may write to, and says 1 of others.

    Raises:
        OSError: The system doesn't tell.
    """
    cached, pages = 0, 0
    for path in paths:
        size = path.stat().st_size
        if size == 0:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as mapped:
            states = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
            view = np.frombuffer(mapped, np.uint8)
            failed = _LIBC.mincore(
                ctypes.c_void_p(view.ctypes.data),
                ctypes.c_size_t(size),
                ctypes.c_void_p(states.ctypes.data),
            )
            del view  # It would keep the map open.
        if failed:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
        cached += int((states & 1).sum())
        pages += len(states)
    return cached / pages if pages else 0.0
