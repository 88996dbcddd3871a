"""A file of decoded samples: an entry for each sample, and slots, filled as samples come.

::

    file:    header of 4,096 bytes | an entry for each sample, up to a whole page | slots
    header:  "ADSLOTS1" | u64 where room is left | u64 of samples | u64 | text about them
    entry:   u64 where the slot begins | u64 its bytes | u64 CRC | u64 stamp | u64 CRC of these
    slot:    u32 bytes of each part | padding to 8 | part | padding to 8 | part | ...

All numbers are little-endian. Behind the last slot the file is sparse. Slots are read where they
are mapped, and written by ``pwritev``, which a full disk makes an error of and no signal.

A slot is written before its entry, and believed only where both CRCs are right, which a process
looks at when it first reads the sample. So a process that is killed leaves a sample unfilled. Room
is handed out some MiB at a time under the cache's lock, each to one process, so no two ever write
to the same place; two that decode the same sample write it twice. What a killed process had room
for is used again by the next one that finds itself alone with the file.

Whoever has the file open holds a shared lock on it, which ends with the process. Where there is no
room, the files that nobody holds go, the one first that was opened longest ago. Who reads from a
file that was removed reads on, and writes no more.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.records.mapping import Mapping
from adapters.records.storage import account
from adapters.remote.cache import Cache
from adapters.remote.cachefiles import SAMPLES_SUFFIX
from adapters.remote.segments import crc_of
from adapters.sources.slotparts import padded, slot_bytes, slot_of

log = logging.getLogger("adapters")

_MAGIC = b"ADSLOTS1"
_PAGE_BYTES = 4096
_HEADER = struct.Struct("<8sQQQ")
_NUMBERS = struct.Struct("<QQQQ")
_ENTRY = np.dtype([(name, "<u8") for name in ("begin", "size", "crc", "stamp", "check")])
# Of room that a process is given at once: seven pictures of 500x375, and 30 us under the lock.
_ROOM_BYTES = 4 << 20
_TRIES = 100
_MOST_PARTS = 1024  # IOV_MAX of Linux.
NOT_THERE = -1


class SlotFile:
    """Decoded samples of one source, by number. Any thread may ask; a process opens its own.

    Args:
        cache: Where it is, and how much room there is.
        name: Of the source, the decoder and the version: other ones have other names.
        about: The same for people; may be cut.
        count: Samples of the source.

    Raises:
        OSError: It can't be made or read.
    """

    def __init__(self, cache: Cache, name: str, about: str, count: int) -> None:
        self._cache, self._count = cache, count
        self._path = os.path.join(cache.samples_folder, name + SAMPLES_SUFFIX)
        self._first = -(-(_PAGE_BYTES + count * _ENTRY.itemsize) // _PAGE_BYTES) * _PAGE_BYTES
        self._descriptor = self._opened(about)
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        with contextlib.suppress(OSError):
            os.utime(self._path)
        self._mapping, self._view = self._mapped()
        # Of samples whose CRCs were right once, where their slots begin; 0 of others.
        self._begins = np.zeros(count, np.int64)
        self.is_full = False
        """Whether nothing is kept any more, of whatever size."""
        # Bytes of the smallest slot for which there was no room.
        self._refused = sys.maxsize
        self._begin_process()
        _files[self] = None

    def _begin_process(self) -> None:
        """Have no room of another process, by which this one was forked."""
        self._lock = threading.Lock()
        self._room = (0, 0)

    # --- reading ---

    def find(
        self,
        numbers: NDArray[np.int64],
        stamps_of: Callable[[Sequence[int]], list[int | None]] | None = None,
    ) -> NDArray[np.int64]:
        """Where the slots of samples begin; ``NOT_THERE`` of those that aren't, or aren't right.

        Args:
            numbers: Of the samples.
            stamps_of: What must be in the entries of samples, None where nothing will do; None for
                zeros.
        """
        begins = self._begins[numbers]
        unknown = np.flatnonzero(begins == 0)
        if len(unknown):
            entries = self._entries()[numbers[unknown]]
            begins[unknown] = NOT_THERE
            filled = np.flatnonzero(entries["size"])
            own = numbers[unknown[filled]].tolist()
            stamps = [0] * len(own) if stamps_of is None or not own else stamps_of(own)
            for at, number, stamp in zip(filled.tolist(), own, stamps):
                if stamp is not None and self._is_right(entries[at], stamp):
                    begins[unknown[at]] = self._begins[number] = int(entries[at]["begin"])
        return begins

    def are_filled(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples have an entry, right or not; no slot is read."""
        filled: NDArray[np.bool_] = self._entries()["size"][numbers] > 0
        return filled

    def view(self) -> memoryview:
        """The file, of which found slots may be read."""
        return self._view

    def parts(
        self, begins: NDArray[np.int64], count: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the parts of found slots begin, and how many bytes these are.

        Args:
            begins: Of the slots.
            count: Parts of each.

        Returns:
            Two arrays, int64 ``(slots, count)``.
        """
        view = self._view
        words = np.frombuffer(view, "<u4", len(view) // 4)
        sizes = words[(begins >> 2)[:, np.newaxis] + np.arange(count)].astype(np.int64)
        taken = (sizes + 7) & ~7
        ends = np.cumsum(taken, axis=1)
        starts = begins[:, np.newaxis] + padded(4 * count) + ends - taken
        account(self, int(ends[:, -1].sum()))
        return starts, sizes

    def _let_go(self) -> None:
        self._mapping.let_go()

    def _is_right(self, entry: np.void, stamp: int) -> bool:
        begin, size = int(entry["begin"]), int(entry["size"])
        if not _is_whole(entry) or int(entry["stamp"]) != stamp:
            return False
        end = begin + size
        if begin < self._first or begin % 8 or not self._covers(end):
            return False
        return crc_of(self._view[begin:end]) == int(entry["crc"])

    def _covers(self, end: int) -> bool:
        """Have the file mapped up to there; whether it is so long."""
        if end > len(self._view):
            with self._lock, contextlib.suppress(OSError):
                if end > len(self._view):
                    self._mapping, self._view = self._mapped()
        return end <= len(self._view)

    def _mapped(self) -> tuple[Mapping, memoryview]:
        mapping = Mapping(self._descriptor, os.fstat(self._descriptor).st_size)
        return mapping, mapping.view()

    def _entries(self) -> NDArray[np.void]:
        return np.frombuffer(self._view, _ENTRY, self._count, _PAGE_BYTES)

    # --- writing ---

    def has_room(self, parts: Sequence[bytes]) -> bool:
        """Whether a sample of these parts may find room; without looking at the disk."""
        return not self.is_full and slot_bytes(parts) < self._refused

    def put(self, number: int, stamp: int, parts: Sequence[bytes]) -> bool:
        """Keep a sample, if there is room; whether there was."""
        if not self.has_room(parts):
            return False
        slot, size = slot_of(parts), slot_bytes(parts)
        try:
            begin = self._room_for(size)
            if begin is None:
                self._refused = min(self._refused, size)
                return False
            _write(self._descriptor, slot, begin)
            entry = _NUMBERS.pack(begin, size, crc_of(*slot), stamp)
            entry += zlib.crc32(entry).to_bytes(8, "little")
            _write(self._descriptor, [entry], _PAGE_BYTES + number * _ENTRY.itemsize)
        except OSError as error:
            self.is_full = True
            self._cache.failed(error)
            return False
        return True

    def _room_for(self, size: int) -> int | None:
        """Where so many bytes may be written; None where there is no room."""
        with self._lock:
            begin, end = self._room
            if begin + size > end:
                granted = self._granted(max(size, min(_ROOM_BYTES, self._cache.limit // 64)))
                if granted is None:
                    return None
                # What is left of the last one is joined, where it lies before this.
                begin, end = (begin, granted[1]) if end == granted[0] else granted
            self._room = begin + size, end
            return begin

    def _granted(self, size: int) -> tuple[int, int] | None:
        size = padded(size)
        with self._cache.locked(wait=True) as held:
            if not held:
                raise OSError(f"{self._cache.folder}: the folder's lock can't be had")
            if not self._is_there:
                log.info("%s: it was removed, so samples are decoded each time", self._path)
                self.is_full = True
                return None
            begin = self._end()
            if begin + size + self._beside(begin + size) > self._cache.limit:
                if self._refused == sys.maxsize:
                    log.info(
                        "%s: the limit of %d bytes is reached, so the samples that aren't kept are "
                        "decoded each time",
                        self._cache.folder,
                        self._cache.limit,
                    )
                return None
            if os.fstat(self._descriptor).st_size < begin + size:
                # By much, as each length is mapped anew.
                os.ftruncate(self._descriptor, begin + size + max(begin, 16 * _ROOM_BYTES))
            self._set_end(begin + size)
            return begin, begin + size

    def _beside(self, own: int) -> int:
        """Bytes of the other files, of which unused ones are removed where it takes that."""
        files = [file for file in self._cache.samples() if file[2] != self._path]
        others = sum(size for _, size, _ in files)
        for _, size, path in files:
            if own + others <= self._cache.limit:
                break
            if _removed(path):
                others -= size
        return others

    def _end(self) -> int:
        end = os.pread(self._descriptor, 8, len(_MAGIC))
        return padded(max(self._first, int.from_bytes(end, "little")))

    def _set_end(self, end: int) -> None:
        _write(self._descriptor, [end.to_bytes(8, "little")], len(_MAGIC))

    @property
    def _is_there(self) -> bool:
        try:
            return os.stat(self._path).st_ino == os.fstat(self._descriptor).st_ino
        except OSError:
            return False

    # --- opening ---

    def _opened(self, about: str) -> int:
        """The file, with a shared lock on it."""
        for _ in range(_TRIES):
            # The folder may go at any moment, by who clears the cache.
            with contextlib.suppress(FileExistsError):
                os.makedirs(self._cache.samples_folder, exist_ok=True)
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                continue
            try:
                if self._prepared(descriptor, about):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            time.sleep(0.01)
        raise OSError(f"{self._path} is removed again and again")

    def _prepared(self, descriptor: int, about: str) -> bool:
        """Lock the file, and write or mend its header; whether it is still there."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            alone = False
        self._descriptor = descriptor
        if not self._is_there:
            return False
        magic, _, count, _ = _HEADER.unpack(os.pread(descriptor, 32, 0).ljust(32, b"\0"))
        is_right = magic == _MAGIC and count == self._count
        is_right = is_right and os.fstat(descriptor).st_size >= self._first
        if alone:
            if not is_right:
                self._make_room()
                os.ftruncate(descriptor, 0)
                os.ftruncate(descriptor, self._first)
                if hasattr(os, "posix_fallocate"):
                    # Entries are read where they are mapped, and on some file systems a page that
                    # isn't there, of a disk that is full, ends the process.
                    os.posix_fallocate(descriptor, 0, self._first)
                text = about.encode()[: _PAGE_BYTES - _HEADER.size]
                header = _HEADER.pack(_MAGIC, self._first, self._count, len(text))
                _write(descriptor, [header + text], 0)
            else:
                self._mend()
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # For a moment there is none.
        return (alone or is_right) and self._is_there

    def _make_room(self) -> None:
        """Have room for the entries, which unused files leave, or don't make the file."""
        with self._cache.locked(wait=True) as held:
            if held and self._first + self._beside(self._first) <= self._cache.limit:
                return
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        raise OSError(
            errno.EDQUOT,
            f"the table of {self._count:,} samples takes {self._first:,} bytes, for which the "
            f"limit of {self._cache.limit:,} bytes has no room",
        )

    def _mend(self) -> None:
        """Take back the room that killed processes had; nobody else has the file open."""
        size = self._count * _ENTRY.itemsize
        entries = np.frombuffer(os.pread(self._descriptor, size, _PAGE_BYTES), _ENTRY)
        ends = entries["begin"] + entries["size"]
        ends[ends > os.fstat(self._descriptor).st_size] = 0
        whole = (int(ends[at]) for at in ends.argsort()[::-1] if _is_whole(entries[at]))
        self._set_end(max(next(whole, 0), self._first))


def about_of(path: str) -> str | None:
    """What a file has samples of, for people; None where it is none."""
    try:
        with open(path, "rb") as file:
            magic, _, _, size = _HEADER.unpack(file.read(_HEADER.size))
            text = file.read(min(size, _PAGE_BYTES)).decode("utf-8", "replace")
            return text if magic == _MAGIC else None
    except (OSError, struct.error):
        return None


def _removed(path: str) -> bool:
    """Remove a file that no process has open."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _is_whole(entry: np.void) -> bool:
    """Whether nothing of it is damaged."""
    return int(entry["check"]) == zlib.crc32(entry.tobytes()[: _NUMBERS.size])


def _write(descriptor: int, parts: Sequence[bytes], offset: int) -> None:
    left = [memoryview(part) for part in parts if part]
    while left:
        count = os.pwritev(descriptor, left[:_MOST_PARTS], offset)
        offset += count
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if left:
            left[0] = left[0][count:]


_files: weakref.WeakKeyDictionary[SlotFile, None] = weakref.WeakKeyDictionary()


def _in_child() -> None:
    for reference in _files.keyrefs():
        if (file := reference()) is not None:
            file._begin_process()


os.register_at_fork(after_in_child=_in_child)
