"""A few bytes here and there of a large file, without all that the system would read around them.

Where a page of a map isn't in memory, Linux reads as much around it as it reads ahead, 128 KiB to
some MiB: 64 headers of a file of 0.5 GB took a cold disk 0.4 s, in which it was read as a whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from adapters.records.mapping import Mapping, NoMapError
from adapters.records.storage import MappedFile, Storage

# Of a file that is small, all may be read.
_SMALL_BYTES = 4 << 20


@contextlib.contextmanager
def peeked(storage: Storage, places: Sequence[int], size: int) -> Iterator[Storage]:
    """The storage, to read so many bytes at some places of it.

    Args:
        storage: Whose bytes.
        places: Where they begin, some of which may lie behind its end.
        size: Of each.
    """
    with _opened(storage) as descriptor:
        if descriptor is None:
            yield storage
        else:
            _advise(descriptor, [place for place in places if 0 <= place < storage.size], size)
            yield _Peeked(storage, descriptor)


@contextlib.contextmanager
def mapped_lightly(storage: Storage) -> Iterator[Storage]:
    """The storage, of which only those pages are read that are touched."""
    with _opened(storage) as descriptor:
        mapping = None
        with contextlib.suppress(NoMapError):
            mapping = None if descriptor is None else Mapping(descriptor, storage.size)
    if mapping is None:
        yield storage
    else:
        mapping.read_nothing_around()
        yield _Light(storage, mapping.view())


def will_peek(storage: Storage, places: Sequence[int]) -> None:
    """Have the pages read in which these bytes are; nothing is waited for."""
    with _opened(storage) as descriptor:
        if descriptor is not None:
            _advise(descriptor, [place for place in places if 0 <= place < storage.size], 1)


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


def _advise(descriptor: int, places: Sequence[int], size: int) -> None:
    """Have some bytes read, all at once for disks that are far, and nothing around them."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            for place in places:
                os.posix_fadvise(descriptor, place, size, os.POSIX_FADV_WILLNEED)


class _Peeked:
    def __init__(self, file: Storage, descriptor: int) -> None:
        self.name, self.size = file.name, file.size
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> memoryview:
        return memoryview(os.pread(self._descriptor, max(0, min(size, self.size - offset)), offset))

    def close(self) -> None:
        """Whoever opened the descriptor closes it."""


class _Light:
    def __init__(self, file: Storage, view: memoryview) -> None:
        self.name, self.size = file.name, file.size
        self._view = view

    def read(self, offset: int, size: int) -> memoryview:
        return self._view[offset : offset + size]

    def close(self) -> None:
        """It goes with who holds a part of it."""
