"""Scattered reads of a few bytes from a large file, without the system's read-around.

For a page of a map that isn't in memory, Linux reads as much around it as its read-ahead size, 128
KiB to some MiB. For 64 headers in a file of 0.5 GB, a cold disk read the whole file, in 0.4 s.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import numpy as np

from adapters.records.mapping import Mapping
from adapters.records.remotefile import RemoteFile
from adapters.records.storage import MappedFile, Storage

# Smaller files may be read whole.
_SMALL_BYTES = 4 << 20
# Read of an object at a place: a header, and RecordIO's next one, which is checked, too.
_HEADER_BYTES = 16


@contextlib.contextmanager
def mapped_lightly(storage: Storage) -> Iterator[Storage]:
    """Yield the storage, mapped so that only touched pages are read."""
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
    """Request the pages or headers at these places all at once, for disks and stores that are slow.

    Doesn't wait. Places outside the file are ignored.
    """
    if isinstance(storage, RemoteFile):
        begins = np.array(places, np.int64)
        storage.start(begins, np.full(len(begins), _HEADER_BYTES))
        return
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
    """Yield a descriptor of a large local file if it is still the same file; else None."""
    if type(storage) is not MappedFile or storage.size < _SMALL_BYTES:
        yield None
        return
    try:
        descriptor = os.open(storage.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # Already mapped and deleted, or no descriptor left.
        yield None
        return
    try:
        status = os.fstat(descriptor)
        # The path may name another file by now.
        is_it = (status.st_size, status.st_mtime_ns) == (storage.size, storage.changed_ns)
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
        """Do nothing: the map ends with its last view."""
