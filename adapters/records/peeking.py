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


class _Light:
    """Storage of a map that ends with its last view."""

    def __init__(self, name: str, mapping: Mapping) -> None:
        self._view = mapping.view()
        self.name, self.size = name, len(self._view)

    def read(self, offset: int, size: int) -> memoryview:
        return self._view[offset : offset + size]


def mapped_lightly(storage: Storage) -> Storage:
    """Return the storage, mapped so that only touched pages are read."""
    with _opened(storage) as descriptor, contextlib.suppress(OSError):
        if descriptor is not None:
            mapping = Mapping(descriptor, storage.size)
            mapping.read_nothing_around()
            return _Light(storage.name, mapping)
    return storage


def will_peek(storage: Storage, places: Sequence[int]) -> None:
    """Request the pages or headers at these places all at once, for disks and stores that are slow.

    Doesn't wait. Places outside the file are ignored.
    """
    if isinstance(storage, RemoteFile):
        storage.start(np.array(places, np.int64), np.full(len(places), _HEADER_BYTES))
        return
    with _opened(storage) as descriptor, contextlib.suppress(OSError):
        if descriptor is not None and hasattr(os, "posix_fadvise"):
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
        file = open(storage.path, "rb", buffering=0)  # noqa: SIM115 - closed below.
    except OSError:  # Already mapped and deleted, or no descriptor left.
        yield None
        return
    with file:
        # The path may name another file by now.
        yield file.fileno() if storage.is_same(os.fstat(file.fileno())) else None
