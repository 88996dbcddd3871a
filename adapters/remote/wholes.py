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
from adapters.remote.segments import SUFFIX, crc_of, write_all
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
    """Whole objects in a cache, for any number of threads and processes."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._folders: dict[str, str] = {}
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
        if time.time() - status.st_mtime > _USED_EVERY_SECONDS:
            with contextlib.suppress(OSError):  # Evicted, or not writable.
                os.utime(path)
        return data

    def keep(self, url: str, identity: bytes, data: bytes | memoryview) -> None:
        """Store an object; if that is impossible, warn once and continue."""
        path = self._path(url, identity)
        content = b"".join((data, _END.pack(crc_of(data), len(data))))

        def write() -> None:
            describe(os.path.dirname(path), _parent(url), "", 0)
            descriptor = opened(path, os.O_WRONLY | os.O_CREAT)
            try:
                write_all(descriptor, content, 0)
                os.ftruncate(descriptor, len(content))  # A damaged file may have been longer.
            finally:
                os.close(descriptor)

        try:
            self.cache.store(write, len(data))
        except OSError as error:
            self.cache.failed(error)

    def _path(self, url: str, identity: bytes) -> str:
        parent = _parent(url)
        folder = self._folders.get(parent)
        if folder is None:
            folder = self._folders[parent] = self.cache.folder_of(["folder", parent])
        return os.path.join(folder, identity.hex() + SUFFIX)

    def __reduce__(self) -> tuple[object, ...]:
        return Wholes, (self.cache,)


def _parent(url: str) -> str:
    return clean(url).rpartition("/")[0] + "/"
