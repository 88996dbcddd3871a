"""Small objects that a cache stores whole, usually images, each in a file of its own.

::

    <cache>/objects/<name>/object.json       the URL of a folder, without secrets
                           <identity>.seg    an object | u64 its CRC | u64 its size

``name`` is derived from the folder's URL, ``identity`` from the object's URL, version and size. A
file is used only if its CRC and size are right, and it is written in one go. So a process that is
killed leaves at worst a file that is written again, never a wrong one. Processes that write the
same object write the same bytes, so they need no lock. Eviction treats these files like the
segments of large objects. All numbers are little-endian.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
import time

from adapters.remote.cache import Cache, describe
from adapters.remote.client import Head
from adapters.remote.privatefiles import opened
from adapters.remote.segments import SUFFIX, crc_of
from adapters.remote.urls import clean

log = logging.getLogger("adapters")

IDENTITY_BYTES = 16
_END = struct.Struct("<QQ")
# Interval for recording a use, so that not every use writes to the disk.
_USED_EVERY_SECONDS = 60.0


def identity_of(url: str, head: Head) -> bytes:
    """Return 16 bytes that identify one version of one object; never only zeros.

    An ETag identifies the object, whatever its URL's current signature. Without one, the query is
    part of the identity.
    """
    url = clean(url) if head.is_etag else url
    named = f"{url}\0{head.version}\0{head.size}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(named, digest_size=IDENTITY_BYTES).digest()


class Wholes:
    """Whole objects in a cache, for any number of threads and processes.

    Args:
        cache: The cache.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._folders: dict[str, str] = {}
        self._urls: dict[str, str] = {}
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
            content = _read(descriptor, status.st_size)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        data = memoryview(content)[: -_END.size]
        if not _is_right(content, data):
            if not self._has_warned:
                self._has_warned = True
                log.warning("%s is damaged, or was not written whole; it is fetched again", path)
            return None
        if time.time() - status.st_mtime > _USED_EVERY_SECONDS:
            with contextlib.suppress(OSError):  # Evicted, or not writable.
                os.utime(path)
        return data

    def keep(self, url: str, identity: bytes, data: bytes | memoryview) -> None:
        """Store an object; if that is impossible, warn once and continue."""
        path = self._path(url, identity)
        try:
            self.cache.with_room(lambda: self._write(path, data))
        except OSError as error:
            self.cache.failed(error)
            return
        self.cache.wrote(len(data))

    def _write(self, path: str, data: bytes | memoryview) -> None:
        folder = os.path.dirname(path)
        describe(folder, self._urls[folder], "", 0)
        descriptor = opened(path, os.O_WRONLY | os.O_CREAT)
        try:
            content = memoryview(b"".join((data, _END.pack(crc_of(memoryview(data)), len(data)))))
            whole = len(content)
            while len(content):
                content = content[os.write(descriptor, content) :]
            # A damaged file may have been longer.
            os.ftruncate(descriptor, whole)
        finally:
            os.close(descriptor)

    def _path(self, url: str, identity: bytes) -> str:
        parent = clean(url).rpartition("/")[0] + "/"
        folder = self._folders.get(parent)
        if folder is None:
            folder = self.cache.folder_of(["folder", parent])
            self._urls[folder] = parent  # First: another thread may find the folder.
            self._folders[parent] = folder
        return os.path.join(folder, identity.hex() + SUFFIX)

    def __reduce__(self) -> tuple[object, ...]:
        return Wholes, (self.cache,)


def _read(descriptor: int, size: int) -> bytes:
    content = os.read(descriptor, size)
    while len(content) < size and (more := os.read(descriptor, size - len(content))):
        content += more
    return content


def _is_right(content: bytes, data: memoryview) -> bool:
    if len(content) < _END.size:
        return False
    crc, size = _END.unpack(content[-_END.size :])
    return bool(size == len(data) and crc == crc_of(data))
