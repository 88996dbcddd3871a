"""Whole files into memory: one `open`, one `fstat`, one read and one `close` for each.

No descriptor stays open, and a batch's files are read into memory that is used again. Worth it: 11
us for a JPEG of 47 kB in the page cache, and 17 where it is mapped, whose pages must be faulted in
(2 cores, CPU time, 2026-11).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable

import numpy as np

from adapters.errors import ContentError

# Nobody has a picture of that size.
_MOST_BYTES = 1 << 30


def read_file(path: bytes, room: Callable[[int], memoryview]) -> memoryview:
    """Read a whole file.

    Args:
        path: The file.
        room: Gives the memory for so many bytes.

    Returns:
        That memory.

    Raises:
        ContentError: No file, but a folder or a pipe, an empty one, or one of more than a GiB; or
            it became shorter meanwhile.
        OSError: It isn't there, or can't be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # A pipe isn't waited for.
    try:
        status = os.fstat(descriptor)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode) or not 0 < size <= _MOST_BYTES:
            raise _refused(status)
        memory = room(size)
        done = os.readv(descriptor, (memory,))
        while done < size:
            count = os.readv(descriptor, (memory[done:],))
            if not count:
                raise ContentError(f"{size:,} bytes", f"{done:,}: the file was cut meanwhile")
            done += count
    finally:
        os.close(descriptor)
    return memory


def will_read_file(path: bytes) -> None:
    """Have the system read a file ahead; nothing is waited for, and nothing is an error."""
    if not hasattr(os, "posix_fadvise"):
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def mean_size(paths: Iterable[bytes]) -> float | None:
    """Bytes of a file on average, of those that are there; None if none is."""
    sizes = []
    for path in paths:
        with contextlib.suppress(OSError):
            sizes.append(os.stat(path).st_size)
    return sum(sizes) / len(sizes) if sizes else None


def _refused(status: os.stat_result) -> ContentError:
    """Why a file isn't read."""
    if stat.S_ISDIR(status.st_mode):
        return ContentError("a file", "a folder")
    if not stat.S_ISREG(status.st_mode):
        return ContentError("a file", "something else")
    if not status.st_size:
        return ContentError("an image", "an empty file")
    return ContentError(
        f"an image of at most {_MOST_BYTES:,} bytes", f"a file of {status.st_size:,}"
    )


def new_memory(size: int) -> memoryview:
    """Room for a file, by itself."""
    return np.empty(size, np.uint8).data
