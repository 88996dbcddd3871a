"""Storage of bytes: a size and reads of ranges. All formats read through this interface alone.

Formats need a ``Storage``: ``name``, ``size`` and ``read``. Batches are gathered from one view of a
file: ``MappedFile.whole_view`` of a local file, ``RemoteFile.fetched_view`` of a remote one, in
which only the requested bytes may be read; others may be missing. Thread-safe. Returned memory
stays valid as long as a reference exists, even after ``close``.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, Protocol

import numpy as np

from adapters.errors import RecordError
from adapters.records.ahead import AHEAD
from adapters.records.mapping import Mapping, NoMapError, living, most
from adapters.records.remotefile import RemoteFile

# Most files mapped at once. Mapping a file again takes 20 us.
_MOST_MAPPED = most()
# Smaller files may be read whole for a few headers.
_SMALL_BYTES = 4 << 20
# Read of an object at a place: a header, and RecordIO's next one, which is checked, too.
_HEADER_BYTES = 16
# Compressed bytes per step of inflating; their content is at most a thousand times as long.
_INFLATED_BYTES = 64 << 10
# A small file may fill the disk otherwise: zeros inflate to a thousand times.
_MOST_BYTES, _MOST_TIMES = 1 << 30, 500


class Storage(Protocol):
    """Source of a record file's bytes."""

    name: str
    """Name in messages."""
    size: int
    """Size in bytes."""

    def read(self, offset: int, size: int) -> memoryview:
        """Return these bytes; fewer if the storage ends before."""
        ...


# Mapped files, oldest first. Removing one keeps its map alive while views exist.
_mapped_files: weakref.WeakKeyDictionary[MappedFile, None] = weakref.WeakKeyDictionary()
# Those that must be inflated again after they are unmapped.
_inflated_files: weakref.WeakKeyDictionary[MappedFile, None] = weakref.WeakKeyDictionary()
_map_lock = threading.RLock()


class MappedFile:
    """Local file, mapped into memory.

    Args:
        path: The file, mapped at the first read. If it is truncated while its map is read, the
            operating system ends the process (SIGBUS); see ``is_truncated`` and ``reopened``.
    """

    _registry = _mapped_files

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        self.path = os.path.abspath(path)  # Other processes may work elsewhere.
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise IsADirectoryError(f"{self.name} is not a file")
        self.size = status.st_size
        self.changed_ns = status.st_mtime_ns
        self.inode = status.st_ino
        self._view: memoryview | None = None
        # The last map; alive while any view holds it, even after ``_let_go``.
        self._map: weakref.ref[Mapping] | None = None

    def read(self, offset: int, size: int) -> memoryview:
        """Return these bytes without a copy; fewer if the file ends before."""
        try:
            return self.whole_view()[offset : offset + size]
        except NoMapError:
            return self._copy_of(offset, size)

    def whole_view(self) -> memoryview:
        """Return a view of the whole file."""
        view = self._view
        return self._map_now() if view is None else view

    def is_truncated(self) -> bool:
        """True if the file is shorter than when it was opened: its map can't be read."""
        try:
            status = os.stat(self.path)
        except OSError:  # The map keeps a file that was removed.
            return False
        return status.st_size < self.size and status.st_ino == self.inode

    def reopened(self) -> io.FileIO | None:
        """Open the file, to read it without the map: it may then be truncated meanwhile.

        Returns:
            The file, which the caller closes; None if it has been removed or replaced, in which
                case the map keeps its bytes.
        """
        try:
            file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - the caller closes it.
        except OSError:
            return None
        if os.fstat(file.fileno()).st_ino == self.inode:
            return file
        file.close()
        return None

    def stream(self) -> MappedFile:
        """Return the file itself, which the system reads ahead."""
        return self

    def will_read(self, offset: int, size: int) -> None:
        """Start read-ahead of these bytes. Doesn't wait."""
        AHEAD.read(self.path, offset, size)

    def close(self) -> None:
        """Unmap the file as soon as no view of it is left."""
        AHEAD.forget(self.path)
        with _map_lock:
            self._let_go()
            self._map = None

    def _let_go(self) -> None:
        """Drop the view; the file is unmapped when no other view of it is left."""
        self._view = None
        self._registry.pop(self, None)

    def _map_now(self) -> memoryview:
        if not self.size:
            return memoryview(b"")
        with _map_lock:
            if self._view is not None:  # Another thread was first.
                return self._view
            mapping = None if self._map is None else self._map()
            if mapping is None:
                with self._readable() as file:
                    if not self.size:  # Nothing was inflated.
                        return memoryview(b"")
                    mapping = _map_of(file, self.size)
            self._map, self._view = weakref.ref(mapping), mapping.view()
            view = self._view
            self._registry[self] = None
            while living() > _MOST_MAPPED and _mapped_files:
                next(iter(_mapped_files))._let_go()
            return view

    def _copy_of(self, offset: int, size: int) -> memoryview:
        """Return a copy of these bytes, when there is no space for a map."""
        with self._readable() as file:
            file.seek(offset)
            return memoryview(file.read(size))

    def _readable(self) -> IO[bytes]:
        """Open the file for mapping; an ``InflatedFile`` inflates it first."""
        file = open(self.path, "rb")  # noqa: SIM115 - it is the caller's to close.
        status = os.fstat(file.fileno())
        if not self.is_same(status):
            file.close()
            raise self.changed(status)
        return file

    def changed(self, status: os.stat_result) -> RecordError:
        """Error that says that the file has changed."""
        return RecordError(
            self.name,
            None,
            0,
            f"the file that was opened, of {self.size} bytes",
            f"one that was changed since, of {status.st_size} bytes; open it again",
        )

    def is_same(self, status: os.stat_result) -> bool:
        """True if this is the status of the file that was opened."""
        return (status.st_size, status.st_mtime_ns) == (self.size, self.changed_ns)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None, "_map": None}


def _map_of(file: IO[bytes], size: int) -> Mapping:
    """Map a file; if there is no space for a map, unmap other files and retry."""
    with contextlib.suppress(NoMapError):
        return Mapping(file.fileno(), size)
    for other in [*_mapped_files, *_inflated_files]:
        other._let_go()
    return Mapping(file.fileno(), size)


class _Light:
    """Storage of a map that ends with its last view."""

    def __init__(self, name: str, mapping: Mapping) -> None:
        self._view = mapping.view()
        self.name, self.size = name, len(self._view)

    def read(self, offset: int, size: int) -> memoryview:
        return self._view[offset : offset + size]


def mapped_lightly(storage: Storage) -> Storage:
    """Return the storage, mapped so that only touched pages are read.

    For a page of a map that isn't in memory, Linux reads as much around it as its read-ahead size,
    128 KiB to some MiB. For 64 headers in a file of 0.5 GB, a cold disk read the whole file, in
    0.4 s.
    """
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
        if descriptor is not None:
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


class InflatedFile(MappedFile):
    """Content of a compressed file, in an unnamed temporary file that exists while mapped.

    Args:
        source: The compressed file, local or remote. Each process inflates it for itself.
    """

    damage: RecordError | None = None
    """Error in the compressed data; everything before it was inflated."""
    _registry = _inflated_files

    def __init__(self, source: MappedFile | RemoteFile) -> None:
        self.source = source
        self.name, self.size, self.changed_ns = source.name, source.size, source.changed_ns
        self.path = ""  # The inflated content has no name by which it could be truncated.
        self.inode = 0
        self._view = self._map = None
        self.whole_view()

    def will_read(self, offset: int, size: int) -> None:
        """Do nothing: the inflated bytes are at hand."""

    def _readable(self) -> IO[bytes]:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it is the caller's to close.
        try:
            self.damage = inflate(self.source.stream(), file)
            self.source.close()
            self.size = file.tell()
            file.flush()
            return file
        except BaseException:
            file.close()
            raise


def inflate(compressed: Storage, file: IO[bytes]) -> RecordError | None:
    """Write the inflated data, up to damage if there is any.

    Several members in sequence, with zeros between them, are one stream, as for gzip.

    Returns:
        The error if the data are damaged or truncated, else None.
    """
    damage = _inflated(compressed, file)
    if damage is not None and not file.tell():
        raise damage
    return damage


def _inflated(compressed: Storage, file: IO[bytes]) -> RecordError | None:
    inflater: Any = None
    name, read = compressed.name, 0
    while read < compressed.size:
        block = bytes(compressed.read(read, _INFLATED_BYTES))
        read += len(block)
        while block:
            if inflater is None:
                block = block.lstrip(b"\0")
                if not block:
                    break
                inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)  # Detects GZIP or ZLIB.
            before = inflater.copy()
            try:
                file.write(inflater.decompress(block))
            except zlib.error as error:
                with contextlib.suppress(zlib.error):  # The part that precedes the damage.
                    for place in range(len(block)):
                        file.write(before.decompress(block[place : place + 1]))
                at = read - len(block)
                return RecordError(name, None, at, "GZIP or ZLIB data", f"damage: {error}")
            if file.tell() > max(_MOST_BYTES, _MOST_TIMES * read):
                expected = f"data that inflate to at most 1 GiB, or {_MOST_TIMES} times their size"
                raise RecordError(name, None, read, expected, f"{file.tell():,} bytes")
            block = inflater.unused_data
            if inflater.eof:
                inflater = None
    if inflater is None:
        return None
    file.write(inflater.flush())
    return RecordError(name, None, read, "the end of the compressed data", "the file's end")


def _reset_lock() -> None:
    global _map_lock
    _map_lock = threading.RLock()


os.register_at_fork(after_in_child=_reset_lock)
