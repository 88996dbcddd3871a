"""Where bytes lie: a size, and the reading of a range. All formats read through this and no more.

Formats need a ``Storage``: ``name``, ``size`` and ``read``. What fills batches takes many records
out of one view of a file, a ``MappedStorage``: ``MappedFile`` is a local file, ``RemoteFile`` of
``remotefile`` one that comes piece by piece. Of a view, those bytes may be read that were announced
when it was asked for (``covering``, ``will_touch``), and no others: what of a remote file wasn't
announced isn't there. Any thread may read at any time. Memory that was returned stays valid for as
long as somebody holds it, also after ``close``.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import IO, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.records.ahead import AHEAD
from adapters.records.inflation import inflate
from adapters.records.mapping import Mapping, NoMapError, Reserved, living, most

# Of files that are mapped at once. A file that is needed again is mapped again, in 20 microseconds.
_MOST_MAPPED = most()
# Pages that were read count as the process's memory for as long as they are mapped, so those of all
# files are let go after that much; reading them again costs a page fault, not a read of the disk.
# Worth it: 57 against 448 MiB of Rss for 480 MB of records of 10 kB, shuffled (2026-11). Each costs
# 0.2 of 1.8 us for that.
_KEPT_BYTES = 64 << 20
# With a page also those around it are mapped that are at hand: 16 of 4 KiB as a rule, but hundreds
# where Linux cached the file in large folios. So how much it was is looked up, and not too rarely.
# Worth it: 119 against 247 MiB for 286 MB that were just read from the disk, by large folios.
# Which blocks were read already is kept so that these don't count: 1.8 against 2.4 us a record.
_BLOCK_BITS = 16
_BLOCK_BYTES = 1 << _BLOCK_BITS
_MOST_BLOCKS = 4096  # Looked at as a whole: a file of 256 MiB.
_STATUS = "/proc/self/statm"
_LOOK_BYTES = 4 << 20 if os.path.exists(_STATUS) else _KEPT_BYTES

_Map = TypeVar("_Map", Mapping, Reserved)


class Storage(Protocol):
    """What a record file asks of whatever holds its bytes."""

    name: str
    """For people."""
    size: int
    """In bytes."""

    def read(self, offset: int, size: int) -> memoryview:
        """These bytes; fewer where the storage ends before."""
        ...

    def close(self) -> None:
        """Free what can be freed; reading opens it again."""
        ...


class MappedStorage(Storage, Protocol):
    """What the filling of batches asks of it."""

    changed_ns: int
    """When it was last written."""
    is_remote: bool
    """Whether a read that wasn't announced together with others may take long."""

    def covering(self, offset: int, size: int) -> memoryview:
        """All of the file, of which these bytes may be read."""
        ...

    def will_touch(
        self, offsets: NDArray[np.int64], size: int, numbers: NDArray[np.int64] | None = None
    ) -> memoryview:
        """All of the file, of which so many bytes from each of these places on may be read."""
        ...


class MappedFile:
    """A local file, of which only those pages come into memory that are read.

    Args:
        path: The file. It is mapped when it is first read, and must not be cut short meanwhile,
            which the operating system answers by ending the process (SIGBUS).

    Raises:
        OSError: There is no such file, or it can't be read.
    """

    is_remote = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        self.path = os.path.abspath(path)  # For another process, which may work elsewhere.
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise IsADirectoryError(f"{self.name} is not a file")
        self.size = status.st_size
        self.changed_ns = status.st_mtime_ns
        self.version = self.size, self.changed_ns  # Of the file itself, where it is compressed.
        self._view: memoryview | None = None
        # That of the view, or one that was to be unmapped while somebody held a part of it.
        self._map: weakref.ref[Mapping | Reserved] | None = None
        # Of which blocks pages may be mapped.
        self._seen = self._none_seen()
        self._all_seen = False

    def read(self, offset: int, size: int) -> memoryview:
        """These bytes, without a copy; fewer where the file ends before."""
        try:
            return self.covering(offset, size)[offset : offset + size]
        except NoMapError:
            return self._copied(offset, size)

    def covering(self, offset: int, size: int) -> memoryview:
        """All of the file, of which these bytes are going to be read.

        Raises:
            NoMapError: There is no room for a map.
        """
        block, seen = offset >> _BLOCK_BITS, self._seen
        if size > _BLOCK_BYTES or not (block < len(seen) and seen[block]):
            self._see([block], size)
        view = self._view
        return self._open() if view is None else view

    def will_touch(
        self, offsets: NDArray[np.int64], size: int, numbers: NDArray[np.int64] | None = None
    ) -> memoryview:
        """All of the file, of which so many bytes are going to be read at each of these places.

        Args:
            offsets: The places.
            size: In bytes.
            numbers: Which of ``offsets`` it is about; None for all.

        Raises:
            NoMapError: There is no room for a map.
        """
        if not (self._all_seen and size <= _BLOCK_BYTES):
            offsets = offsets if numbers is None else offsets[numbers]
            blocks, seen = offsets >> _BLOCK_BITS, np.frombuffer(self._seen, np.uint8)
            if size > _BLOCK_BYTES:
                self._see(blocks.tolist(), size * len(offsets))
            elif not seen[blocks].all():
                self._see(np.unique(blocks[seen[blocks] == 0]).tolist(), 0)
        view = self._view
        return self._open() if view is None else view

    def will_read(self, offset: int, size: int) -> None:
        """Have the system read these bytes ahead; nothing is waited for."""
        AHEAD.read(self.path, offset, size)

    def _none_seen(self) -> bytearray:
        return bytearray((self.size >> _BLOCK_BITS) + 1)

    def _see(self, blocks: list[int], size: int) -> None:
        """Note that these blocks are read, and so many bytes in one go."""
        for block in blocks:
            if block < len(self._seen):
                self._seen[block] = 1
        # Worth it in files that are small: `will_touch` ends at once, and an image of 28x28 takes
        # 0.45 instead of 0.50 us. Where a file ends, no record may begin.
        self._all_seen = len(self._seen) < _MOST_BLOCKS and 0 not in self._seen[:-1]
        _read[self] = None
        _touched(size + len(blocks) * _BLOCK_BYTES)

    def close(self) -> None:
        """Unmap the file as soon as nobody holds a part of it."""
        AHEAD.forget(self.path)
        self._forget_map()

    def _forget_map(self) -> None:
        with _opening:
            self._unmap()
            self._map = None

    def _unmap(self) -> None:
        self._view = None
        _open.pop(self, None)

    def _open(self) -> memoryview:
        if not self.size:
            return memoryview(b"")
        with _opening:
            # Another thread may have been first.
            return self._mapped() if self._view is None else self._view

    def _mapped(self) -> memoryview:
        held = None if self._map is None else self._map()
        if held is not None:
            return self._keep(held)
        with self._opened() as file:
            self._check(file)
            return self._keep(_map_of(file, self.size))

    def _keep(self, mapping: Mapping | Reserved) -> memoryview:
        self._map, self._view = weakref.ref(mapping), mapping.view()
        view = self._view
        self._list()
        while living() > _MOST_MAPPED and _open:
            next(iter(_open))._unmap()
        return view

    def _list(self) -> None:
        """As one that may be unmapped whenever there are too many."""
        _open[self] = None

    def _copied(self, offset: int, size: int) -> memoryview:
        """These bytes, where there is no room for a map."""
        with self._opened() as file:
            self._check(file)
            file.seek(offset)
            return memoryview(file.read(size))

    def _opened(self) -> IO[bytes]:
        return open(self.path, "rb")

    def _check(self, file: IO[bytes]) -> None:
        status = os.fstat(file.fileno())
        if (status.st_size, status.st_mtime_ns) != (self.size, self.changed_ns):
            raise RecordError(
                self.name,
                None,
                0,
                f"the file that was opened, of {self.size} bytes",
                f"one that was changed since, of {status.st_size} bytes; open it anew",
            )

    def _let_go(self) -> None:
        mapping = None if self._map is None else self._map()
        self._seen, self._all_seen = self._none_seen(), False
        if mapping is not None:
            mapping.let_go()

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_view": None,
            "_map": None,
            "_seen": self._none_seen(),
            "_all_seen": False,
        }


class InflatedFile(MappedFile):
    """What a GZIP or ZLIB file holds, in an unnamed temporary file, which is there while mapped.

    Args:
        path: The compressed file. Another process inflates it once more.

    Raises:
        RecordError: The compressed data are damaged, so that none can be inflated.
    """

    damage: RecordError | None = None
    """What is wrong with the compressed data; those before it were inflated."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._begin(self.size)

    def _begin(self, compressed_bytes: int) -> None:
        """Inflate the file, if there is anything in it."""
        self.size = compressed_bytes
        self._view = self._map = None
        self._all_seen = False
        with _opening, self._opened() as file:
            if self.size:
                self._keep(_map_of(file, self.size))
        self._seen = self._none_seen()

    def will_read(self, offset: int, size: int) -> None:
        """The inflated bytes are at hand."""

    def close(self) -> None:
        """Remove what was inflated as soon as nobody holds a part of it."""
        self._forget_map()

    def _list(self) -> None:
        """As one that is unmapped when there is no room for another map, and not sooner."""
        _inflated[self] = None

    def _unmap(self) -> None:
        super()._unmap()
        _inflated.pop(self, None)

    def _opened(self) -> IO[bytes]:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it is the caller's to close.
        try:
            with open(self.path, "rb") as compressed:
                status = os.fstat(compressed.fileno())
                if (status.st_size, status.st_mtime_ns) != self.version:
                    expected = "the file that was opened"
                    raise RecordError(self.name, None, 0, expected, "a changed one")
                self.damage = inflate(self.name, compressed, file)
            return self._inflated(file)
        except BaseException:
            file.close()
            raise

    def _inflated(self, file: IO[bytes]) -> IO[bytes]:
        file.flush()
        status = os.fstat(file.fileno())
        self.size, self.changed_ns = status.st_size, status.st_mtime_ns
        return file


def with_room(mapped: Callable[[], _Map]) -> _Map:
    """What ``mapped`` returns, for which other files are unmapped if need be.

    Raises:
        NoMapError: That isn't enough.
    """
    with contextlib.suppress(NoMapError):
        return mapped()
    for other in [*_open, *_inflated]:
        other._unmap()
    return mapped()


def _map_of(file: IO[bytes], size: int) -> Mapping:
    return with_room(lambda: Mapping(file.fileno(), size))


# That are mapped, oldest first. Whoever holds a part of one keeps its map when it leaves this.
_open: weakref.WeakKeyDictionary[MappedFile, None] = weakref.WeakKeyDictionary()
_inflated: weakref.WeakKeyDictionary[MappedFile, None] = weakref.WeakKeyDictionary()
# Of which pages may be in memory.
_read: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()
_opening = threading.RLock()
_else_bytes = 0
# Of all files, since it was last looked up how much of them is mapped.
_touched_bytes = 0


def account(file: Any, size: int) -> None:
    """Note that so many bytes of a map are read; ``file._let_go`` is called when it is too much."""
    _read[file] = None
    _touched(size)


def _touched(size: int) -> None:
    global _touched_bytes
    _touched_bytes += size  # Threads may lose some of it, which does little harm.
    if _touched_bytes > _LOOK_BYTES:
        _touched_bytes = 0
        _let_go_if_many()


def _let_go_if_many() -> None:
    """Drop the files' pages from this process's memory; who holds some gets them back."""
    global _else_bytes
    with _opening:
        shared = _shared_bytes()
        if shared is None or shared - _else_bytes > _KEPT_BYTES:
            for reference in _read.keyrefs():  # A copy, as others add to it without the lock.
                file = reference()
                if file is not None:
                    _read.pop(file, None)
                    file._let_go()
            shared = _else_bytes = _shared_bytes() or 0
        _else_bytes = min(_else_bytes, shared)


def _shared_bytes() -> int | None:
    """Of this process's memory what belongs to files, libraries too; None where nobody says."""
    try:
        status = os.open(_STATUS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return int(os.read(status, 1000).split()[2]) * mmap.PAGESIZE
    finally:
        os.close(status)


def _reset_lock() -> None:
    global _opening
    _opening = threading.RLock()


os.register_at_fork(after_in_child=_reset_lock)
