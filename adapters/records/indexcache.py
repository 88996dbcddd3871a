"""Indexes built when files were opened, stored in the user's cache folder.

::

    $XDG_CACHE_HOME/loader-adapters/indexes/<hash of the record file's path or URL>
    one line of JSON: size, version, format, records, crc | offsets, int64 | sizes, int64

Nothing is written next to the record files, where other programs' globs would find it. An index is
used only for a file with the same path, size and version (time or ETag), and only if it matches
the file's content. The index of an object without a version isn't stored.
Files are private to the user and replaced atomically, so any process may read and write at any
time. The least recently used ones are evicted. If the folder isn't writable, nothing is stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import zlib

import numpy as np
import platformdirs

from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.index import LOOKED_AT, LOOKED_AT_OF_OBJECT, Index, misfit
from adapters.records.remotefile import RemoteFile
from adapters.records.storage import MappedFile
from adapters.remote import is_url
from adapters.remote.privatefiles import write_private

log = logging.getLogger("adapters")

# Limit for all indexes: enough for 60 million records.
_MOST_BYTES = 1 << 30
_MOST_FILES = 100_000
# Stored by this process between two checks of the folder's size, which take at most 0.1 s.
_LOOK_BYTES = 64 << 20
_LOOK_FILES = 1000
_kept_bytes = _LOOK_BYTES
_kept_files = 0


def load(storage: MappedFile | RemoteFile, codec: Codec) -> Index | None:
    """Load the stored index of this file; None if there is none that matches.

    Raises:
        ConnectionError: The store doesn't answer.
    """
    path = _path_of(storage)
    try:
        with open(path, "rb") as file:
            about = json.loads(file.readline(4096))
            body = file.read()
        if about != _about(storage, codec, body):
            return None
        offsets, sizes = np.frombuffer(body, "<i8").astype(np.int64, copy=False).reshape(2, -1)
        index = Index(offsets, sizes)
        # An object of the same size and time may be another.
        has_etag = isinstance(storage, RemoteFile) and storage.head.is_etag
        looked_at = LOOKED_AT_OF_OBJECT if has_etag else LOOKED_AT
        if misfit(index, storage, codec, False, looked_at) is not None:
            return None
        os.utime(path)
    except FileNotFoundError:
        return None
    except ConnectionError:
        raise
    except (OSError, RecordError, ValueError) as error:
        log.debug("%s is not used: %s", path, error)
        return None
    return index


def keep(index: Index, storage: MappedFile | RemoteFile, codec: Codec) -> None:
    """Store the index that was built for a file, if possible."""
    path, sizes = _path_of(storage), index.sizes
    if (
        index.damage
        or sizes is None
        or not _version_of(storage)
        or not 0 < 16 * len(sizes) <= _MOST_BYTES
    ):
        return
    body = np.concatenate([index.offsets, sizes]).astype("<i8").tobytes()
    content = json.dumps(_about(storage, codec, body)).encode() + b"\n" + body
    try:
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _make_room(folder, len(content))
        write_private(path, content)
    except OSError as error:
        log.debug("%s can't be written: %s", path, error)


def _path_of(storage: MappedFile | RemoteFile) -> str:
    if isinstance(storage, RemoteFile) and is_url(storage.name):
        # An ETag identifies an object, whatever its URL's current signature.
        name = storage.name if storage.head.is_etag else storage.url
    else:
        name = os.path.abspath(storage.name)
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()
    return os.path.join(platformdirs.user_cache_dir("loader-adapters"), "indexes", digest)


def _version_of(storage: MappedFile | RemoteFile) -> str:
    """Return the object's version or the file's time; "" if a store tells no version."""
    return storage.head.version if isinstance(storage, RemoteFile) else str(storage.changed_ns)


def _about(storage: MappedFile | RemoteFile, codec: Codec, body: bytes) -> dict[str, object]:
    """Header that a stored index must have."""
    return {
        "size": storage.size,
        "version": _version_of(storage),
        "format": codec.name,
        "records": len(body) // 16,
        "crc": zlib.crc32(body),
    }


def _make_room(folder: str, size: int) -> None:
    """Check the folder's size now and then; above the limit, evict the least recently used."""
    global _kept_bytes, _kept_files
    _kept_bytes, _kept_files = _kept_bytes + size, _kept_files + 1
    if _kept_bytes < _LOOK_BYTES and _kept_files < _LOOK_FILES:
        return
    _kept_bytes = _kept_files = 0
    found: list[tuple[float, int, str]] = []
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            status = entry.stat()
            found.append((status.st_mtime, status.st_size, entry.path))
    total, files = size + sum(each for _, each, _ in found), 1 + len(found)
    for _, each, path in sorted(found):
        if total <= _MOST_BYTES and files <= _MOST_FILES:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        total, files = total - each, files - 1
