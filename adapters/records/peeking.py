"""A few bytes here and there of a large file, without all that the system would read around them.

Where a page of a map isn't in memory, Linux reads as much around it as it reads ahead, 128 KiB to
some MiB: 64 headers of a file of 0.5 GB took a cold disk 0.4 s, in which it was read as a whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from adapters.records.mapping import Mapping
from adapters.records.storage import MappedFile, Storage

# Of a file that is small, all may be read.
_SMALL_BYTES = 4 << 20


@contextlib.contextmanager
def mapped_lightly(storage: Storage) -> Iterator[Storage]:
    """The storage, of which only those pages are read that are touched."""
    with _opened(storage) as descriptor:
        mapping = None
        with contextlib.suppress(OSError):
            mapping = None if descriptor is None else Mapping(descriptor, storage.size)
    if mapping is None:
        yield storage
    else:
        mapping.read_nothing_around()
        yield _Light(storage, mapping.view())


def will_peek(storage: Storage, places: Sequence[int]) -> None:
    """Have the pages read in which these bytes are, all at once for disks that are far.

    Nothing is waited for. Places may lie outside the file.
    """
    with _opened(storage) as descriptor:
        if descriptor is None or not hasattr(os, "posix_fadvise"):
            return
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            for place in places:
                if 0 <= place < storage.size:
                    os.posix_fadvise(descriptor, place, 1, os.POSIX_FADV_WILLNEED)


@contextlib.contextmanager
def _opened(storage: Storage) -> Iterator[int | None]:
    """A descriptor of a large local file that is the one that was opened first; else None."""
    if type(storage) is not MappedFile or storage.size < _SMALL_BYTES:
        yield None
        return
    try:
        descriptor = os.open(storage.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # It is mapped already, and gone, or there is no descriptor left.
        yield None
        return
    try:
        status = os.fstat(descriptor)
        # Another file may have its name by now.
        is_it = (status.st_size, status.st_mtime_ns) == storage.version
        yield descriptor if is_it else None
    finally:
        os.close(descriptor)


class _Light:
    def __init__(self, file: Storage, view: memoryview) -> None:
        self.name, self.size = file.name, file.size
        self._view = view

    def read(self, offset: int, size: int) -> memoryview:
        return self._view[offset : offset + size]

    def close(self) -> None:
        """It goes with who holds a part of it."""
