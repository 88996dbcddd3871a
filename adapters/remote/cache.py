"""``Cache``: a folder on a local disk that stores data read from objects, up to a size limit.

::

    <folder>/objects/<name>/object.json     URL without secrets, version, size
                            00000000.seg    its first part, see ``segments``
                            00000001.seg
                            ...             or small objects, each whole, see ``ObjectCache``
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

import collections
import contextlib
import errno
import hashlib
import json
import logging
import operator
import os
import re
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from adapters.remote.client import Head
from adapters.remote.privatefiles import locked, make_private, opened, problem_of, write_whole
from adapters.remote.segments import SUFFIX, crc_of
from adapters.remote.urls import clean, folder_url, local_path

log = logging.getLogger("adapters")

# Few files and small evictions: 200 GB take 12,800 files. Sizes from 4 to 64 MiB read equally fast,
# measured on a virtual machine's disk, 2026-11.
SEGMENT_BYTES = 16 << 20
_LEAST_SEGMENT_BYTES = 64 << 10
DEFAULT_LIMIT_BYTES = 100 * 10**9
# Evicted if the disk is full.
_ROOM_BYTES = 64 << 20
_LEAST_LIMIT_BYTES = 1 << 20
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?i?B)?\s*", re.IGNORECASE)
_DESCRIPTION = "object.json"
_OBJECT = re.compile("[0-9a-f]{32}")
# Files that a cache creates in an object's folder.
_MADE = re.compile(r"\.?(object\.json|[0-9a-f]+\.seg)(\.[0-9a-f]{32}\.tmp)?")

IDENTITY_BYTES = 16
# The end of a small object's file: its CRC and its size.
_END = struct.Struct("<QQ")
# Interval for recording a use, so that not every use writes to the disk.
USED_EVERY_SECONDS = 60.0


class CachedObject(NamedTuple):
    """Entry of one object in a cache."""

    url: str
    size: int
    """Size of the object in bytes; 0 for a folder of small objects that are each stored whole."""
    cached_bytes: int
    """Bytes of it on disk."""
    folder: str


class Cache:
    """Folder that stores data read from remote or slow files, up to a size limit.

    Reading fills it. All processes of a host that use the same folder share it. Data are checked by
    CRC when a process first reads them. The least recently used data are evicted first. A full disk
    or ``kill -9`` of any process does no harm: missing data are fetched again.

    Args:
        folder: Folder on a local disk. A new one is created for its user alone; an existing one
            must be the user's, and writable by no one else.
        limit: Size limit in bytes, or as ``"200GB"`` (200 * 10^9) or ``"64 GiB"`` (64 * 2^30). At
            least 1 MiB; 100 GB by default.

    Raises:
        TypeError: ``folder`` is not a path, or ``limit`` is neither a number nor text.
        ValueError: ``limit`` can't be parsed or is below 1 MiB; the folder is a URL, belongs to
            another user, or others may write to it; or ``decoded``, which was replaced by
            ``materialize``.

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
        self.folder = os.path.abspath(local_path(folder, "folder"))
        self.limit = _bytes_of(limit)
        with contextlib.suppress(OSError):  # Storing something will say why not.
            make_private(self.folder)  # Now, lest another user does.
        if problem := problem_of(self.folder):
            raise ValueError(problem)
        self._written = self.limit // 64  # The first write checks, even in a short process.
        self.looks = 0
        """Number of evictions that this process has tried."""
        self.has_failed = False
        """True if data couldn't be stored; a warning was logged."""
        self._has_warned_of_versions = False

    def __repr__(self) -> str:
        return f"Cache({self.folder!r}, {self.limit})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self.folder, self.limit)

    def objects(self) -> list[CachedObject]:
        """List the stored objects, sorted by URL."""
        cached = collections.Counter[str]()
        for _, size, path in self._data():
            cached[os.path.dirname(path)] += size
        found = []
        for path in self._files():
            folder, name = os.path.split(path)
            if name == _DESCRIPTION:
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    with open(path, encoding="utf-8") as file:
                        about = json.load(file)
                    url, size = str(about["url"]), int(about["size"])
                    found.append(CachedObject(url, size, cached[folder], folder))
        return sorted(found)

    @property
    def used(self) -> int:
        """Disk space of all stored data in bytes."""
        return sum(size for _, size, _ in self._data())

    def clear(self) -> int:
        """Remove everything that is stored; files that are mapped can still be read.

        Files that a cache didn't create are left alone, whatever folder this is.

        Returns:
            Number of bytes removed.

        Raises:
            PermissionError: The folder can't be written to.
        """
        paths, used = [*self._files()], self.used
        if not paths:
            return 0
        with locked(self.folder, wait=True) as is_held:
            if used and not is_held:
                raise PermissionError(
                    f"{self.folder} must be writable to be emptied, and its file lock can't be "
                    "opened; do it as the user whose cache it is"
                )
            for path in paths:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            for folder in {os.path.dirname(path) for path in paths}:
                with contextlib.suppress(OSError):  # Others' files lie in it.
                    os.rmdir(folder)
        return max(0, used - self.used)

    def for_version(self, url: str, head: Head) -> Cache | None:
        """Return the cache itself, or None with a warning if the object has no version."""
        if head.version:
            return self
        if not self._has_warned_of_versions:
            self._has_warned_of_versions = True
            log.warning("%s isn't kept in a cache, as the store tells no version of it", clean(url))
        return None

    def segment(self, url: str, head: Head, number: int) -> str:
        """Return the path of a segment of this version of an object; its folder is created.

        An ETag identifies the object, whatever its URL's current signature. Without one, the query
        is part of the identity.

        Raises:
            OSError: The folder can't be created.
        """
        size, name = self.segment_bytes, clean(url)
        folder = self.folder_of([name if head.is_etag else url, head.version, head.size, size])
        _describe(folder, name, head.version, head.size)
        return os.path.join(folder, f"{number:08}{SUFFIX}")

    @property
    def segment_bytes(self) -> int:
        """Size of an object's segments: less than a 16th of the limit."""
        most = 1 << (self.limit // 16).bit_length() - 1
        return max(_LEAST_SEGMENT_BYTES, min(SEGMENT_BYTES, most))

    def evict(self, least: int = 0) -> None:
        """Unlink the least recently used files: ``least`` bytes, and down to 7/8 of the limit.

        Nothing happens while another process does that.
        """
        with locked(self.folder, wait=False) as is_held:
            files = [*self._data()]
            excess = max(least, sum(size for _, size, _ in files) - self.limit * 7 // 8)
            for _, size, path in sorted(files) if is_held else ():
                if excess <= 0:
                    break
                excess -= size
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def store(self, write: Callable[[], None], size: int) -> None:
        """Call ``write``, which stores ``size`` bytes, and evict files if there are too many.

        If the disk is full, some files are evicted, and it is called again.
        """
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.evict(_ROOM_BYTES)
            write()
        self._written += size  # Threads may lose updates, which is harmless.
        if self._written > self.limit // 64:
            self._written = 0
            self.evict()
            self.looks += 1

    def failed(self, error: OSError) -> None:
        """Warn once that data can't be stored."""
        if not self.has_failed:
            self.has_failed = True
            log.warning(
                "the cache in %s can't be written to, and reading continues without it: %s",
                self.folder,
                error,
            )

    def folder_of(self, named: list[Any]) -> str:
        """Return the folder of what these values identify."""
        name = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:32]
        return os.path.join(self.folder, "objects", name)

    def _files(self) -> Iterator[str]:
        """Yield the paths of all files that a cache created; symbolic links aren't followed."""
        objects = os.path.join(self.folder, "objects")
        for folder, folders, names in os.walk(objects):
            if folder == objects:
                folders[:] = filter(_OBJECT.fullmatch, folders)
            else:
                folders.clear()
                yield from (os.path.join(folder, name) for name in names if _MADE.fullmatch(name))

    def _data(self) -> Iterator[tuple[int, int, str]]:
        """Yield each data file's last use in ns, its size on disk in bytes, and its path."""
        for path in self._files():
            if _DESCRIPTION not in os.path.basename(path):
                with contextlib.suppress(OSError):
                    status = os.lstat(path)
                    yield status.st_mtime_ns, status.st_blocks * 512, path


def identity_of(url: str, head: Head) -> bytes:
    """Return 16 bytes that identify one version of one object; never only zeros.

    An ETag identifies the object, whatever its URL's current signature. Without one, the query is
    part of the identity.
    """
    url = clean(url) if head.is_etag else url
    named = f"{url}\0{head.version}\0{head.size}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(named, digest_size=IDENTITY_BYTES).digest()


class ObjectCache:
    """Small objects that a cache stores whole, usually images, each in a file of its own.

    ::

        <cache>/objects/<name>/object.json       the URL of a folder, without secrets
                               <identity>.seg    an object | u64 its CRC | u64 its size

    ``name`` is derived from the folder's URL. A file is used only if its CRC and size are right,
    and it is written in one go. So a process that is killed leaves at worst a file that is written
    again, never a wrong one. Processes that write the same object write the same bytes, so they
    need no lock. All numbers are little-endian.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._has_warned = False

    def has(self, url: str, identity: bytes) -> bool:
        """True if the object has a file; it may turn out to be damaged."""
        return os.path.exists(self._path(url, identity))

    def get(self, url: str, identity: bytes) -> memoryview | None:
        """Return the object if it is stored and undamaged."""
        path = self._path(url, identity)
        try:
            descriptor = opened(path, os.O_RDONLY)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            content = memoryview(os.read(descriptor, status.st_size))
        except OSError:
            return None
        finally:
            os.close(descriptor)
        data, end = content[: -_END.size], content[-_END.size :]
        if len(end) < _END.size or _END.unpack(end) != (crc_of(data), len(data)):
            if not self._has_warned:
                self._has_warned = True
                log.warning("%s is damaged, or was not written whole; it is replaced", path)
            return None
        if time.time() - status.st_mtime > USED_EVERY_SECONDS:
            with contextlib.suppress(OSError):  # Evicted, or not writable.
                os.utime(path)
        return data

    def keep(self, url: str, identity: bytes, data: bytes | memoryview) -> None:
        """Store an object; if that is impossible, warn once and continue."""
        path = self._path(url, identity)
        content = b"".join((data, _END.pack(crc_of(data), len(data))))

        def write() -> None:
            _describe(os.path.dirname(path), folder_url(clean(url)), "", 0)
            write_whole(path, content, private=True)

        try:
            self.cache.store(write, len(data))
        except OSError as error:
            self.cache.failed(error)

    def _path(self, url: str, identity: bytes) -> str:
        folder = self.cache.folder_of(["folder", folder_url(clean(url))])
        return os.path.join(folder, identity.hex() + SUFFIX)


def _describe(folder: str, url: str, version: str, size: int) -> None:
    """Write an object folder's description, unless it exists."""
    place = os.path.join(folder, _DESCRIPTION)
    if not os.path.exists(place):
        make_private(folder)
        about = {"url": url, "version": version, "size": size}
        write_whole(place, json.dumps(about).encode(), private=True)


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


def _bytes_of(limit: Any) -> int:
    """Parse a limit in bytes."""
    if isinstance(limit, str):
        match = _TEXT.fullmatch(limit)
        if match is None:
            raise ValueError(f'limit must be bytes, or a text like "200GB", got {limit!r}')
        number, unit = match.groups()
        limit = int(float(number) * _UNITS[(unit or "").lower()])
    if isinstance(limit, bool) or not hasattr(limit, "__index__"):
        raise TypeError(f'limit must be bytes, or a text like "200GB", got {limit!r}')
    if operator.index(limit) < _LEAST_LIMIT_BYTES:
        raise ValueError(f"limit must be >= {_LEAST_LIMIT_BYTES} bytes (1 MiB), got {limit}")
    return operator.index(limit)
