"""Index files: their names and places, and the search for the index of a record file.

``train.idx`` is the **shared** name: MXNet and DALI use it for the index of ``train.rec`` and of
``train.tfrecord``. It is only trusted if it fits the file, and only written if it is free or
already this file's. ``train.rec.idx`` is the file's **own** name.

============================  ====================================================================
reading                       shared if it fits, else own if it fits; else stored in or built for
                              the user's cache folder (``index_of``)
writing a file                shared if it is free or belongs to the replaced file; else own
renaming or removing a file   as for writing; the replaced file's indexes are removed
``verify --write-index``      shared, unless another record file has the same stem
object behind a URL           as for reading; each name costs a small request, and only the first
                              and the last record are compared with an index
offsets are known             they are passed to ``Shard(index=...)`` and no index file is read
============================  ====================================================================

Indexes that were built lie in the user's cache folder, where no other program's glob finds them::

    $XDG_CACHE_HOME/loader-adapters/indexes    a ``Cache``, each index as a whole object of it
    an index                                   offsets, int64 | sizes, int64

Such an index is used only for a file with the same path, size, version (time or ETag) and format,
and only if it matches the file's content. The index of an object without a version isn't stored.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import platformdirs

from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.formats import CODECS, codec_of
from adapters.records.index import (
    LOOKED_AT,
    LOOKED_AT_OF_OBJECT,
    Index,
    OtherIndexError,
    misfit,
    parse,
    searched,
)
from adapters.records.remotefile import RemoteFile
from adapters.records.storage import MappedFile
from adapters.remote import Cache
from adapters.remote.cache import ObjectCache, identity_of
from adapters.remote.clients import request
from adapters.remote.fetch import side_by_side
from adapters.remote.urls import beside, clean, is_url

log = logging.getLogger("adapters")

SUFFIX = ".idx"
# Manifests written by ``pack`` are not record files either.
MANIFEST_SUFFIX = ".json"
# Limit of the user's cache folder: enough for 60 million records.
_MOST_BYTES = 1 << 30


def index_paths(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return a file's shared and own index paths, which may be equal."""
    file = Path(path)
    own = file.with_name(file.name + SUFFIX)
    return own if codec_of(file) is None else file.with_suffix(SUFFIX), own


def record_files(names: Sequence[str], manifests: bool = False) -> list[str]:
    """Filter out indexes, which globs like ``train*`` match, and manifests, unless kept."""
    beside = (SUFFIX,) if manifests else (SUFFIX, MANIFEST_SUFFIX)
    return [name for name in names if not name.endswith(beside)]


def index_of(storage: MappedFile | RemoteFile, codec: Codec, verify: bool) -> Index:
    """Return the index of a file: read if one fits, else built and stored."""
    path, looked_at = storage.name, LOOKED_AT
    if is_url(storage.path):
        path, looked_at = storage.path, LOOKED_AT_OF_OBJECT
    for name, text, modified_ns in indexes_beside(path, skip_unreadable=True):
        try:
            index = parse(text, codec)
        except ValueError as error:
            # Usually the index of another file with this stem.
            level = logging.INFO if isinstance(error, OtherIndexError) else logging.WARNING
            log.log(level, "%s is not the index of %s: %s", name, storage.name, error)
            continue
        newer = modified_ns > storage.head.changed_ns
        obstacle = misfit(index, storage, codec, newer=newer, looked_at=looked_at)
        if obstacle is None:
            if len(index.offsets):
                _warn_of_more(name, index, storage, codec)
            if not newer and index.sizes is None:
                # It should have all records. Not all were looked at, so add the sizes to check:
                # if one is missing, reading the record before it is an error.
                order = np.argsort(index.offsets, kind="stable")
                sizes = np.empty_like(index.offsets)
                sizes[order] = np.diff(index.offsets[order], append=storage.size)
                index = Index(index.offsets, sizes)
            return index
        log.warning("%s is not used, as it doesn't fit %s: %s", name, storage.name, obstacle)
    return _stored(storage, codec, verify)


def indexes_beside(path: str, skip_unreadable: bool) -> Iterator[tuple[str, bytes, int]]:
    """Yield name, text and modification time in ns of each file or object named like an index.

    Raises:
        OSError: One can't be read; local ones may be skipped instead.
    """
    if is_url(path):
        urls = [beside(path, SUFFIX, replace) for replace in (True, False)]
        for url, found in zip(urls, side_by_side(text_of_object, urls)):
            if found is not None:
                yield clean(url), *found
        return
    for file in dict.fromkeys(index_paths(path)):
        try:
            yield str(file), file.read_bytes(), file.stat().st_mtime_ns
        except FileNotFoundError:
            continue
        except OSError as error:
            if not skip_unreadable:
                raise
            log.info("%s is not the index of %s: %s", file, path, error)


def text_of_object(url: str) -> tuple[bytes, int] | None:
    """Return a small object and its modification time; None if there is none."""
    try:
        text, head = request(url, lambda client, key: client.get_all(key))
    except (FileNotFoundError, PermissionError):  # S3 denies access if listing is denied.
        return None
    return text, head.changed_ns


@functools.lru_cache(maxsize=1)
def _indexes(folder: str) -> ObjectCache:
    """Return the stored indexes; a ValueError if others may write to the folder."""
    cache = Cache(folder, _MOST_BYTES)
    cache.has_failed = True  # Without a warning: an index that can't be stored is built again.
    return ObjectCache(cache)


def _stored(storage: MappedFile | RemoteFile, codec: Codec, verify: bool) -> Index:
    """Return the stored index of a file; else search its records and store their index."""
    name, head = storage.path, storage.head
    identity = identity_of(name, head._replace(version=f"{codec.name} {head.version}"))
    # Without an ETag, an object of the same size and time may be another.
    looked_at = LOOKED_AT_OF_OBJECT if head.is_etag else LOOKED_AT
    indexes = None
    try:
        indexes = _indexes(os.path.join(platformdirs.user_cache_dir("loader-adapters"), "indexes"))
        if (body := indexes.get(name, identity)) is not None:
            index = Index(*np.frombuffer(body, "<i8").astype(np.int64, copy=False).reshape(2, -1))
            if misfit(index, storage, codec, False, looked_at) is None:
                return index
    except ValueError as error:
        log.debug("the stored index of %s is not used: %s", storage.name, error)
    index = searched(storage.stream(), codec, verify)
    if indexes and head.version and not index.damage and index.sizes is not None:
        found = np.concatenate([index.offsets, index.sizes]).astype("<i8").tobytes()
        if 0 < len(found) <= _MOST_BYTES:
            indexes.keep(name, identity, found)
    return index


def put_index(url: str, text: bytes) -> str:
    """Write an index next to an object; return its name, for messages.

    It has the shared name if the suffix tells the format.
    """
    name = beside(url, SUFFIX, replace=codec_of(clean(url)) is not None)
    request(name, lambda client, key: client.put(key, text))
    return clean(name)


def place_of_writer(path: Path, codec: Codec) -> Path:
    """Return where to write the index of a new or replaced file."""
    shared, own = index_paths(path)
    return shared if not shared.exists() or belongs(shared, path, codec) else own


def place_of_command(path: str | os.PathLike[str]) -> Path:
    """Return where ``adapters verify --write-index`` writes; an index there is replaced."""
    file = Path(path)
    shared, own = index_paths(file)
    others = [
        each
        for each in shared.parent.glob(f"{file.stem}.*")
        if each not in (shared, own, file) and codec_of(each) is not None
    ]
    return own if others else shared


def follow(file: Path, name: Path) -> None:
    """Rename the index of ``file``, if it has one, to fit the record file ``name``."""
    index, shared, own = index_paths(file)[0], *index_paths(name)
    if index.exists():
        os.replace(index, own if shared.exists() else shared)


def remove(file: Path) -> None:
    """Remove a file's indexes; the shared one only if it fits."""
    shared, own = index_paths(file)
    own.unlink(missing_ok=True)
    if any(belongs(shared, file, codec) for codec in CODECS.values()):
        shared.unlink(missing_ok=True)


def belongs(index: Path, file: str | os.PathLike[str], codec: Codec) -> bool:
    """True if ``index`` fits ``file``; it may list only some of the records."""
    try:
        return misfit(parse(index.read_bytes(), codec), MappedFile(file), codec, newer=True) is None
    except (OSError, RecordError, ValueError):
        return False


def _warn_of_more(path: str, index: Index, storage: MappedFile | RemoteFile, codec: Codec) -> None:
    """Warn if data follow the last listed record, as they may have been appended since."""
    behind = storage.size - codec.end(storage, int(index.offsets.max()))
    if behind:
        log.warning(
            "%s lists %d records of %s, and %d bytes lie behind the last of them, which are left "
            "out; if records were appended since, delete the index, and it is rebuilt; if it is "
            "a choice, open_records(...).select(numbers) makes one without an index",
            path,
            len(index.offsets),
            storage.name,
            behind,
        )
