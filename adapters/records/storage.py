"""Storage of bytes: a size and reads of ranges. All formats read through this interface alone.

Formats need a ``Storage``: ``name``, ``size`` and ``read``. Batches are gathered from one view of a
file: ``MappedFile.whole_view`` of a local file, ``RemoteFile.fetched_view`` of a remote one, in
which only the requested bytes may be read; others may be missing. Thread-safe. Returned memory
stays valid as long as a reference exists, even after ``close``.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import mmap
import os
import tempfile
import threading
import zlib
from collections.abc import Sequence
from typing import IO, Any, Protocol

import numpy as np

from adapters.errors import RecordError
from adapters.records.ahead import AHEAD
from adapters.records.mapping import Mapping, NoMapError, living, most
from adapters.records.remotefile import RemoteFile
from adapters.remote.clients import head_of

# Most maps at once. Records of further files are copied when they are read.
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


_map_lock = threading.RLock()


class MappedFile:
    """Local file, mapped into memory.

    Args:
        path: The file, mapped at the first read. If it is truncated while its map is read, the
            operating system ends the process (SIGBUS); see ``is_truncated`` and ``reopened``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        self.path = os.path.abspath(path)  # Other processes may work elsewhere.
        status = os.stat(path)
        self.head = head_of(status, self.name)
        self.size = self.head.size
        self.inode = status.st_ino
        self._view: memoryview | None = None

    def read(self, offset: int, size: int) -> memoryview:
        """Return these bytes, uncopied if possible; fewer if the file ends before."""
        try:
            return self.whole_view()[offset : offset + size]
        except NoMapError:
            with self._readable() as file:
                file.seek(offset)
                return memoryview(file.read(size))

    def whole_view(self) -> memoryview:
        """Return a view of the whole file."""
        view = self._view
        if view is not None:
            return view
        with _map_lock:
            if self._view is None and self.size:
                # An inflated file has no path; a copy would inflate it again.
                if self.path and living() >= _MOST_MAPPED:
                    raise NoMapError(errno.ENOMEM, "too many files are mapped", self.name)
                with self._readable() as file:
                    if self.size:  # Something was inflated.
                        self._view = Mapping(self.size, file.fileno()).view()
            return self._view or memoryview(b"")

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

    def prefetch_hint(self, offset: int, size: int) -> None:
        """Start read-ahead of these bytes. Doesn't wait."""
        AHEAD.read(self.path, offset, size)

    def close(self) -> None:
        """Unmap the file as soon as no view of it is left."""
        AHEAD.forget(self.path)
        with _map_lock:
            self._view = None

    def _readable(self) -> IO[bytes]:
        """Open the file for mapping; an ``InflatedFile`` inflates it first."""
        file = open(self.path, "rb")  # noqa: SIM115 - it is the caller's to close.
        status = os.fstat(file.fileno())
        if head_of(status, self.name)[::2] != self.head[::2]:  # As in ``LocalFiles``.
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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None}


def peeked(storage: Storage, places: Sequence[int]) -> Storage:
    """Request the headers at these places all at once, and return a storage that reads them alone.

    For disks and stores that are slow. Doesn't wait; places outside the file are ignored.

    For a page of a map that isn't in memory, Linux reads as much around it as its read-ahead size,
    128 KiB to some MiB. For 64 headers in a file of 0.5 GB, a cold disk read the whole file, in
    0.4 s. So a large local file is mapped once more, such that only touched pages are read.
    """
    if isinstance(storage, RemoteFile):
        storage.start(np.array(places, np.int64), np.full(len(places), _HEADER_BYTES))
    if type(storage) is not MappedFile or storage.size < _SMALL_BYTES:
        return storage
    # A file that was removed or replaced is read by its map, if any.
    with contextlib.suppress(OSError, RecordError), storage._readable() as file:
        for place in places:
            if 0 <= place < storage.size:
                os.posix_fadvise(file.fileno(), place, 1, os.POSIX_FADV_WILLNEED)
        memory = mmap.mmap(file.fileno(), storage.size, access=mmap.ACCESS_READ)
        memory.madvise(mmap.MADV_RANDOM)
        light = copy.copy(storage)
        light._view = memoryview(memory)
        return light
    return storage


class InflatedFile(MappedFile):
    """Content of a compressed file, in an unnamed temporary file that exists while mapped.

    Args:
        source: The compressed file, local or remote. Each process inflates it for itself.
    """

    damage: RecordError | None = None
    """Error in the compressed data; everything before it was inflated."""

    def __init__(self, source: MappedFile | RemoteFile) -> None:
        self.source = source
        self.name, self.size, self.head = source.name, source.size, source.head
        self.path = ""  # The inflated content has no name by which it could be truncated.
        self.inode = 0
        self._view = None
        self.whole_view()

    def prefetch_hint(self, offset: int, size: int) -> None:
        """Do nothing: the inflated bytes are at hand."""

    def _readable(self) -> IO[bytes]:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it is the caller's to close.
        try:
            self.damage = _inflate(self.source.stream(), file)
            if self.damage is not None and not file.tell():
                raise self.damage
            self.source.close()
            self.size = file.tell()
            file.flush()
            return file
        except BaseException as error:
            with contextlib.suppress(OSError):  # The buffered rest isn't needed.
                file.close()
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                place = f"{tempfile.gettempdir()}, where it is inflated; TMPDIR names another"
                raise OSError(error.errno, f"{error.strerror} in {place}", self.name) from error
            raise


def _inflate(compressed: Storage, file: IO[bytes]) -> RecordError | None:
    """Write the inflated data; return the error if they are damaged or truncated.

    Several members in sequence, with zeros between them, are one stream, as for gzip.
    """
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
                at = read - len(block)
                with contextlib.suppress(zlib.error):  # The part that precedes the damage.
                    for place in range(len(block)):
                        file.write(before.decompress(block[place : place + 1]))
                        at += 1
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
