"""A few bytes here and there of a large file, without all that the system would read around them.

Where a page of a map isn't in memory, Linux reads as much around it as it reads ahead, 128 KiB to
some MiB: 64 headers of a file of 0.5 GB took a cold disk 0.4 s, in which it was read as a whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from adapters.records.storage import MappedFile, Storage

# Of a file that is small, all may be read.
_SMALL_BYTES = 4 << 20


@contextlib.contextmanager
def peeked(
    storage: Storage, begins: NDArray[np.int64], sizes: NDArray[np.int64] | int
) -> Iterator[Storage]:
    """The storage, to read some ranges of it.

    Args:
        storage: Whose bytes.
        begins: Where they begin, some of which may lie behind its end, ``(ranges,)``.
        sizes: Of each, or of all.
    """
    if type(storage) is not MappedFile or storage.size < _SMALL_BYTES:
        yield storage
        return
    try:
        descriptor = os.open(storage.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # It is mapped already, and gone, or there is no descriptor left.
        yield storage
        return
    try:
        status = os.fstat(descriptor)
        if (status.st_size, status.st_mtime_ns) != storage.version:
            yield storage  # Another file has its name by now.
            return
        inside = (begins >= 0) & (begins < storage.size)
        ranges = np.stack(np.broadcast_arrays(begins, sizes), axis=1)[inside]
        _advise(descriptor, ranges.tolist())
        yield _Peeked(storage, descriptor)
    finally:
        os.close(descriptor)


def _advise(descriptor: int, ranges: list[list[int]]) -> None:
    """Have some bytes read, all at once for disks that are far, and nothing around them."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            for begin, size in ranges:
                os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_WILLNEED)


class _Peeked:
    def __init__(self, file: MappedFile, descriptor: int) -> None:
        self.name, self.size = file.name, file.size
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> memoryview:
        return memoryview(os.pread(self._descriptor, max(0, min(size, self.size - offset)), offset))

    def close(self) -> None:
        """Whoever opened the descriptor closes it."""
