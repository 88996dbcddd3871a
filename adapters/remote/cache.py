"""``Cache``: a folder on a local disk that stores data read from objects, up to a size limit.

::

    <folder>/objects/<name>/object.json     URL without secrets, version, size
                            00000000.seg    its first part, see ``segments``
                            00000001.seg
                            ...             or small objects, each whole, see ``wholes``
    <folder>/lock                           held during eviction

``name`` is derived from URL, version and size, so another version is another object. An object
without a known version isn't stored.

All processes and ranks of a host may share a folder. A process that has written a 64th of the limit
checks the total. Above seven eighths of the limit, the least recently used segments are evicted. So
with up to eight processes the folder stays below its limit, unless that is only a few megabytes. An
evicted file is unlinked: processes that have it mapped can still read it, and its disk space is
freed when they unmap it.

A segment counts as used when a process maps it, and once a minute while it is read.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from adapters.remote.cachefiles import (
    SUFFIX,
    describe,
    description_of,
    files_in,
    is_of_an_object,
    made_in,
    problem_of,
    remove,
)
from adapters.remote.client import Head
from adapters.remote.folderlock import held
from adapters.remote.limit import bytes_of
from adapters.remote.segments import Segment
from adapters.remote.urls import clean

log = logging.getLogger("adapters")

# Few files and small evictions: 200 GB take 12,800 files. Sizes from 4 to 64 MiB read equally fast,
# measured on a virtual machine's disk, 2026-11.
SEGMENT_BYTES = 16 << 20
_LEAST_SEGMENT_BYTES = 64 << 10
DEFAULT_LIMIT_BYTES = 100 * 10**9
# Evicted if the disk is full.
_ROOM_BYTES = 64 << 20


class Kept(NamedTuple):
    """Entry of one object in a cache."""

    url: str
    size: int
    """Size of the object in bytes; 0 for a folder of small objects that are each stored whole."""
    kept: int
    """Bytes of it on disk."""
    folder: str


class Cache:
    """Folder that stores data read from remote or slow files, up to a size limit.

    Reading fills it. All processes of a host that use the same folder share it. Data are checked by
    CRC when a process first reads them. The least recently used data are evicted first. A full disk
    or ``kill -9`` of any process does no harm: missing data are fetched again.

    Args:
        folder: Folder on a local disk. It is created when something is stored, for its user alone.
            An existing one must be the user's, and writable by no one else.
        limit: Size limit in bytes, or as ``"200GB"``, ``"64 GiB"``. At least 1 MiB; 100 GB by
            default.

    Raises:
        TypeError: ``folder`` is not a path, or ``limit`` is neither a number nor text.
        ValueError: ``limit`` can't be parsed or is below 1 MiB; the folder belongs to another user,
            or others may write to it; or ``decoded``, which was replaced by ``materialize``.

    Example:
        >>> from adapters import Cache
        >>> Cache("/tmp/records", "200GB").limit
        200000000000
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        limit: int | str = DEFAULT_LIMIT_BYTES,
        *,
        decoded: bool = False,
    ) -> None:
        if decoded:
            raise ValueError(
                "a cache keeps what is read, got decoded=True: materialize(source, folder) writes "
                "decoded samples once, and returns a source that reads them"
            )
        try:
            self.folder = os.path.abspath(os.fspath(folder))
        except TypeError:
            raise TypeError(f"folder must be a path, got {folder!r}") from None
        if not isinstance(self.folder, str):
            raise TypeError(f"folder must be a path as text, got {folder!r}")
        self.limit = bytes_of(limit)
        if problem := problem_of(self.folder):
            raise ValueError(problem)
        self._forget()

    def __repr__(self) -> str:
        return f"Cache({self.folder!r}, {self.limit})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cache) and other.__getstate__() == self.__getstate__()

    def __hash__(self) -> int:
        return hash((self.folder, self.limit))

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "limit": self.limit}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _forget(self) -> None:
        self._written = self.limit // 64  # The first write checks, even in a short process.
        self.looks = 0
        self._told = self._told_of_versions = False
        self._begin_process()

    def _begin_process(self) -> None:
        self._process, self._evicting = os.getpid(), threading.Lock()

    # --- for users ---

    def objects(self) -> list[Kept]:
        """List the stored objects, sorted by URL."""
        found = []
        for folder in self._folders():
            description = description_of(folder)
            if description is not None:
                files = files_in(folder)
                kept = sum(size for _, size, path in files if path.endswith(SUFFIX))
                found.append(Kept(description["url"], description["size"], kept, folder))
        return sorted(found)

    @property
    def used(self) -> int:
        """Disk space of all stored data in bytes."""
        return sum(size for folder in self._folders() for _, size, _ in files_in(folder))

    def clear(self) -> int:
        """Remove everything that is stored; files that are mapped can still be read.

        Files that a cache didn't create are left alone, whatever folder this is.

        Returns:
            Number of bytes removed.

        Raises:
            PermissionError: The folder can't be written to.
        """
        made = [path for folder in self._folders() for path in made_in(folder)]
        if not made:
            return 0
        used = self.used
        with self.locked(wait=True) as is_held:
            if used and not is_held:
                raise PermissionError(
                    f"{self.folder} must be writable to be emptied, and its file lock can't be "
                    "opened; do it as the user whose cache it is"
                )
            remove(made)
        return max(0, used - self.used)

    # --- for files ---

    def for_version(self, url: str, head: Head) -> Cache | None:
        """Return the cache itself, or None with a warning if the object has no version."""
        if head.version:
            return self
        if not self._told_of_versions:
            self._told_of_versions = True
            log.warning("%s isn't kept in a cache, as the store tells no version of it", clean(url))
        return None

    def object_of(self, url: str, head: Head) -> CachedObject:
        """Return the entry of this version of an object; it may be empty.

        An ETag identifies the object, whatever its URL's current signature. Without one, the query
        is part of the identity.
        """
        url = clean(url) if head.is_etag else url
        named = json.dumps([url, head.version, head.size, self.segment_bytes])
        name = hashlib.sha256(named.encode()).hexdigest()[:32]
        return CachedObject(self, os.path.join(self._objects, name), clean(url), head)

    @property
    def segment_bytes(self) -> int:
        """Size of an object's segments: less than a 16th of the limit."""
        size = SEGMENT_BYTES
        while size > _LEAST_SEGMENT_BYTES and size * 16 > self.limit:
            size //= 2
        return size

    def wrote(self, size: int) -> None:
        """Count written bytes, and evict if there are too many."""
        self._written += size  # Threads may lose updates, which is harmless.
        if self._written > self.limit // 64:
            self._written = 0
            self.evict()
            self.looks += 1

    def evict(self, least: int = 0) -> int:
        """Unlink the least recently used files, down to seven eighths of the limit.

        Args:
            least: Number of bytes to free, whatever the limit.

        Returns:
            Number of bytes unlinked.
        """
        if self._process != os.getpid():  # Forked: another thread may hold it.
            self._begin_process()
        evicting = self._evicting
        if not evicting.acquire(blocking=False):
            return 0
        try:
            with self.locked(wait=False) as is_held:
                return self._evicted(least) if is_held else 0
        finally:
            evicting.release()

    def with_room(self, write: Callable[[], None]) -> None:
        """Call ``write``; if the disk is full, evict some files and call it again.

        Raises:
            OSError: It failed again, or for another reason.
        """
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            freed = self.evict(_ROOM_BYTES)
            try:
                write()
            except FileNotFoundError:  # Evicted itself, for room if there was any.
                if freed:
                    raise
                raise error from None

    def failed(self, error: BaseException | None) -> None:
        """Warn once that data can't be stored."""
        if not self._told:
            self._told = True
            log.warning(
                "the cache in %s can't be written to, and reading goes on without it: %s",
                self.folder,
                error,
            )

    @property
    def has_failed(self) -> bool:
        """True if data couldn't be stored; a warning was logged."""
        return self._told

    def _evicted(self, least: int) -> int:
        files = [each for folder in self._folders() for each in files_in(folder)]
        total, gone = sum(size for _, size, _ in files), 0
        aim = min(self.limit - self.limit // 8, total - least)
        for _, size, path in sorted(files):
            if total - gone <= aim:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                gone += size
        return gone

    @property
    def _objects(self) -> str:
        return os.path.join(self.folder, "objects")

    def _folders(self) -> list[str]:
        try:
            with os.scandir(self._objects) as entries:
                return [entry.path for entry in entries if is_of_an_object(entry)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def locked(self, wait: bool) -> contextlib.AbstractContextManager[bool]:
        """Lock the folder, until the process ends at the latest; yields True if locked."""
        return held(self.folder, wait)


class CachedObject:
    """One version of an object in a cache, for any number of threads and processes.

    Args:
        cache: The cache.
        folder: The object's folder.
        url: URL of the object, without secrets.
        head: Size and version of the object.
    """

    def __init__(self, cache: Cache, folder: str, url: str, head: Head) -> None:
        self.cache = cache
        self._folder = folder
        self._url = url
        self._head = head
        self.segment_bytes = cache.segment_bytes

    def segment(self, number: int) -> Segment:
        """Open a segment, counted from 0.

        Raises:
            OSError: It can't be created or read.
        """
        size = min(self.segment_bytes, self._head.size - number * self.segment_bytes)
        path = os.path.join(self._folder, f"{number:08}{SUFFIX}")
        if not os.path.exists(path):
            self._describe()
        segment = Segment(path, size)
        segment.used()
        return segment

    def _describe(self) -> None:
        describe(self._folder, self._url, self._head.version, self._head.size)


def cache_of(given: Any) -> Cache | None:
    """Convert the ``cache=`` argument to a ``Cache`` or None.

    Raises:
        TypeError: Neither None, nor a folder, nor a ``Cache``.
    """
    if given is None or isinstance(given, Cache):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Cache(given)
    raise TypeError(f"cache must be a folder, a Cache or None, got {given!r}")
