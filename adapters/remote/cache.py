"""``Cache``: a folder on a local disk that keeps what was read of objects, up to a limit in bytes.

::

    <folder>/objects/<name>/object.json     URL without secrets, version, size
                            index           where its records are, if it had to be found out
                            00000000.seg    its first part, see ``segments``
                            00000001.seg
                            ...             or small objects, each whole, see ``wholes``
    <folder>/lock                           held by who evicts

``name`` is made of the URL, the version and the size, so that another version is another object. An
object of which nobody tells a version isn't kept.
All processes and ranks of a host may share a folder. Whoever has written a 64th of the limit looks
how much there is; above seven eighths of the limit, the segments that were used longest ago go.
With up to eight processes the folder so stays below its limit, unless that is a few megabytes. An
evicted file is unlinked: who has it mapped reads on, and the disk is free when they let go of it.

A segment counts as used when a process maps it, and once a minute while it reads from it. An index
counts as much as segments do, and goes after those of its object.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
from typing import Any, NamedTuple

from adapters.remote.answers import Head
from adapters.remote.cachefiles import (
    INDEX,
    SUFFIX,
    describe,
    description_of,
    files_in,
    is_of_an_object,
    made_in,
    remove,
    write_atomically,
)
from adapters.remote.folderlock import held
from adapters.remote.limit import bytes_of
from adapters.remote.segments import Segment
from adapters.remote.urls import clean

log = logging.getLogger("adapters")

# Few files, and little that goes at once: 200 GB are 12,800 of them. Measured on a disk of a
# virtual machine, 2026-11: from 4 to 64 MiB it makes no difference to reading.
SEGMENT_BYTES = 16 << 20
_LEAST_SEGMENT_BYTES = 64 << 10
DEFAULT_LIMIT_BYTES = 100 * 10**9


class Kept(NamedTuple):
    """What a cache has of one object."""

    url: str
    size: int
    """Of the object, in bytes; 0 for a folder of small ones, each of which is kept whole."""
    kept: int
    """Of it, on the disk, in bytes."""
    folder: str


class Cache:
    """A folder that keeps what is read of remote or slow files, up to a limit.

    It is filled by what is read, and shared by all processes of a host that name the same folder.
    What was kept is checked, by a CRC, when a process first reads it. What was used longest ago
    goes first. A full disk, or ``kill -9`` of any process, harms nobody: what isn't kept is made.

    Args:
        folder: On a local disk. It is made when something is kept.
        limit: In bytes, or ``"200GB"``, ``"64 GiB"``. At least 1 MiB; 100 GB by default.

    Raises:
        TypeError: A folder that is no path, or a limit that is no number and no text.
        ValueError: A limit that isn't such a text, or is below 1 MiB; or ``decoded``, which was
            replaced by ``materialize``.

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
        self._written = self.limit // 64  # Who writes first looks, however short a process lives.
        self.looks = 0
        self._told = self._told_of_versions = False
        self._begin_process()

    def _begin_process(self) -> None:
        self._process, self._evicting = os.getpid(), threading.Lock()

    # --- what users ask ---

    def objects(self) -> list[Kept]:
        """What there is, by URL."""
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
        """Bytes of the disk that all in the folder takes."""
        return sum(size for folder in self._folders() for _, size, _ in files_in(folder))

    def clear(self) -> int:
        """Remove everything that is kept; who reads from it reads on.

        What no cache has made stays, whatever folder this is.

        Returns:
            How many bytes were removed.

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
        """Itself, if it could tell this object from another version; else None, and it says so."""
        if head.version:
            return self
        if not self._told_of_versions:
            self._told_of_versions = True
            log.warning("%s isn't kept in a cache, as the store tells no version of it", clean(url))
        return None

    def object_of(self, url: str, head: Head) -> CachedObject:
        """What it has, or will have, of this version of an object.

        An ETag tells it, whatever signature its URL has today; else a query may tell objects apart.
        """
        url = clean(url) if head.is_etag else url
        named = json.dumps([url, head.version, head.size, self.segment_bytes])
        name = hashlib.sha256(named.encode()).hexdigest()[:32]
        return CachedObject(self, os.path.join(self._objects, name), clean(url), head)

    @property
    def segment_bytes(self) -> int:
        """Of an object in one file: less than a 16th of the limit."""
        size = SEGMENT_BYTES
        while size > _LEAST_SEGMENT_BYTES and size * 16 > self.limit:
            size //= 2
        return size

    def wrote(self, size: int) -> None:
        """Take note of so many bytes, and evict where there are too many."""
        self._written += size  # Threads may lose some of it, which does little harm.
        if self._written > self.limit // 64:
            self._written = 0
            self.evict()
            self.looks += 1

    def evict(self, least: int = 0) -> int:
        """Unlink what was used longest ago, down to seven eighths of the limit.

        Args:
            least: Bytes that shall be free, whatever the limit says.

        Returns:
            How many bytes were unlinked.
        """
        if self._process != os.getpid():  # Forked while another thread held the lock, perhaps.
            self._begin_process()
        evicting = self._evicting
        if not evicting.acquire(blocking=False):
            return 0
        try:
            with self.locked(wait=False) as is_held:
                return self._evicted(least) if is_held else 0
        finally:
            evicting.release()

    def failed(self, error: OSError) -> None:
        """Say once that something can't be kept."""
        if not self._told:
            self._told = True
            log.warning(
                "the cache in %s can't be written to, and reading goes on without it: %s",
                self.folder,
                error,
            )

    @property
    def has_failed(self) -> bool:
        """Whether something couldn't be kept, which was said."""
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
        """Hold the folder's lock, which ends with the process; whether it is held."""
        return held(self.folder, wait)


class CachedObject:
    """One version of an object in a cache; any thread and any process may ask.

    Args:
        cache: It is in there.
        folder: Its own.
        url: Of the object, without secrets.
        head: Of the object.
    """

    def __init__(self, cache: Cache, folder: str, url: str, head: Head) -> None:
        self.cache = cache
        self._folder = folder
        self._url = url
        self._head = head
        self.segment_bytes = cache.segment_bytes

    def segment(self, number: int) -> Segment:
        """One part, from 0.

        Raises:
            OSError: It can't be made or read.
        """
        size = min(self.segment_bytes, self._head.size - number * self.segment_bytes)
        path = os.path.join(self._folder, f"{number:08}{SUFFIX}")
        if not os.path.exists(path):
            self._describe()
        segment = Segment(path, size)
        segment.used()
        return segment

    def index(self) -> bytes | None:
        """The index that was kept, if one was."""
        place = os.path.join(self._folder, INDEX)
        try:
            with open(place, "rb") as file:
                text = file.read()
        except OSError:
            return None
        with contextlib.suppress(OSError):  # Evicted, or of a folder nobody may write to.
            os.utime(place)
        return text

    def keep_index(self, text: bytes) -> None:
        """Keep an index that had to be found out."""
        try:
            self._describe()
            write_atomically(os.path.join(self._folder, INDEX), text)
        except OSError as error:
            self.cache.failed(error)
            return
        self.cache.wrote(len(text))

    def _describe(self) -> None:
        describe(self._folder, self._url, self._head.version, self._head.size)


def cache_of(given: Any) -> Cache | None:
    """What ``cache=`` asks for.

    Raises:
        TypeError: Neither None, nor a folder, nor a ``Cache``.
    """
    if given is None or isinstance(given, Cache):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Cache(given)
    raise TypeError(f"cache must be a folder, a Cache or None, got {given!r}")
