"""Index of a remote file: the index object next to it, or a scan of the whole file.

The index of ``train.rec`` is ``train.idx`` or ``train.rec.idx``, as ``sidecar`` defines it; each
costs one small request. Only the first and the last record are compared with it, not 64, because
each takes a request. If an outdated index leaves out a record elsewhere, reading the record before
it reports that. The result of a scan is stored in the cache, if there is one. Nothing is written
next to the object; ``adapters verify --write-index`` does that.
"""

from __future__ import annotations

import logging

import numpy as np

from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.formats import codec_of
from adapters.records.index import Index, misfit, parse, resembles, text_of
from adapters.records.recovery import searched
from adapters.records.remotefile import RemoteFile
from adapters.records.sidecar import SUFFIX, warn_of_what_is_behind, without_gaps
from adapters.remote.clients import client_of
from adapters.remote.fetch import side_by_side
from adapters.remote.retry import persistently
from adapters.remote.urls import beside, clean

log = logging.getLogger("adapters")

_LOOKED_AT = 2


def remote_index_of(storage: RemoteFile, codec: Codec, verify: bool) -> Index:
    """Return the index of a remote file: read if one fits, else built.

    Raises:
        ConnectionError: The store doesn't answer.
        RecordError: The file holds no record.
    """
    names = [beside(storage.url, SUFFIX, replace) for replace in (True, False)]
    for name, found in zip(names, side_by_side(text_of_object, names)):
        if found is None:
            continue
        text, changed_ns = found
        try:
            index = parse(text, codec)
        except ValueError as error:
            level = logging.WARNING if resembles(text, codec) else logging.INFO
            log.log(level, "%s is not the index of %s: %s", clean(name), storage.name, error)
            continue
        newer = changed_ns > storage.changed_ns
        _announce(storage, codec, index)
        obstacle = misfit(index, storage, codec, newer=newer, looked_at=_LOOKED_AT)
        if obstacle is None:
            warn_of_what_is_behind(clean(name), index, storage, codec)
            return index if newer or index.sizes is not None else without_gaps(index, storage)
        log.warning("%s is not used, as it doesn't fit %s: %s", clean(name), storage.name, obstacle)
    return _kept(storage, codec) or _built(storage, codec, verify)


def put_index(url: str, text: bytes) -> str:
    """Write an index next to an object, under the shared name if the suffix tells the format.

    Returns:
        Name of the index, for messages.

    Raises:
        ConnectionError: The store doesn't answer.
        PermissionError: The store refuses to write.
    """
    name = beside(url, SUFFIX, replace=codec_of(clean(url)) is not None)
    client, key = client_of(name)
    persistently(lambda: client.put(key, text), clean(name))
    return clean(name)


def text_of_object(url: str) -> tuple[bytes, int] | None:
    """Return a small object and its modification time; None if there is none."""
    client, key = client_of(url)
    try:
        text, head = persistently(lambda: client.get_all(key), clean(url))
    except (FileNotFoundError, PermissionError):  # S3 denies access if listing is denied.
        return None
    return text, head.changed_ns


def _announce(storage: RemoteFile, codec: Codec, index: Index) -> None:
    """Fetch both places that ``misfit`` compares at once."""
    if len(index.offsets):
        ends = np.array([index.offsets.min(), index.offsets.max()])
        storage.touch(ends, np.full(2, codec.header_bytes + 4))


def _kept(storage: RemoteFile, codec: Codec) -> Index | None:
    """Return the index that the cache stores for this version of the object."""
    text = storage.cached().index() if storage.has_cache else None
    if text is None:
        return None
    try:
        index = parse(text, codec)
        fits = misfit(index, storage, codec, newer=False, looked_at=_LOOKED_AT) is None
    except (ValueError, RecordError):
        return None
    return index if fits else None


def _built(storage: RemoteFile, codec: Codec, verify: bool) -> Index:
    index = searched(storage.stream(), codec, verify)
    if storage.has_cache and len(index.offsets) and not index.damage:
        storage.cached().keep_index(text_of(index, codec))
    return index
