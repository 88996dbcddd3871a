"""Which file is the index of a record file: its name and its place, whoever asks.

``train.idx`` is what MXNet and DALI call the index of ``train.rec`` and of ``train.tfrecord``: the
**shared** name. It is only believed where what it says fits the file, and only taken where it is
free or the file's already; ``train.rec.idx`` is the file's **own** name.

============================  ====================================================================
who reads                     the shared one if it fits, else the own one if it does; else one that
                              was kept, or is built and kept, in the user's cache folder, see
                              ``indexcache`` (``index_of``)
who writes the file           the shared one where it is free, or that of the file that is replaced;
                              else the own one (``place_of_writer``)
who renames or removes it     as who writes; indexes of the file that is replaced go (``follow``,
                              ``remove``)
``adapters index``            the shared one, unless another record file has that stem
                              (``place_of_command``)
who has the offsets           they are given to ``Shard(index=...)``, and no file is looked at:
                              MXNet's reader says itself which index it has read
============================  ====================================================================
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from adapters.errors import RecordError
from adapters.records import indexcache
from adapters.records.codec import Codec
from adapters.records.formats import CODECS, codec_of
from adapters.records.index import Index, misfit, parse, resembles
from adapters.records.recovery import searched
from adapters.records.storage import MappedFile, MappedStorage, Storage

log = logging.getLogger("adapters")

SUFFIX = ".idx"
# What ``pack`` writes beside the files is no record file, either.
MANIFEST_SUFFIX = ".json"


def index_paths(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Where the index of a file may be: the shared name, and the file's own; they may be one."""
    file = Path(path)
    own = file.with_name(file.name + SUFFIX)
    return own if codec_of(file) is None else file.with_suffix(SUFFIX), own


def candidates(path: str | os.PathLike[str]) -> list[Path]:
    """The same, each once, in the order in which they are looked at."""
    return list(dict.fromkeys(index_paths(path)))


def record_files(names: Sequence[str], manifests: bool = False) -> list[str]:
    """Without the indexes that a glob like ``train*`` finds, too, and without manifests.

    Args:
        names: Of files.
        manifests: Whether these are wanted.
    """
    beside = (SUFFIX,) if manifests else (SUFFIX, MANIFEST_SUFFIX)
    return [name for name in names if not name.endswith(beside)]


def index_of(storage: MappedStorage, codec: Codec, verify: bool) -> Index:
    """The index of a file: read if there is one that fits, else built and kept.

    Raises:
        RecordError: The file holds no record.
    """
    for path in candidates(storage.name):
        text = b""
        try:
            text, modified_ns = path.read_bytes(), path.stat().st_mtime_ns
            index = parse(text, codec)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            # Another file's of that stem, as a rule.
            level = logging.WARNING if resembles(text, codec) else logging.INFO
            log.log(level, "%s is not the index of %s: %s", path, storage.name, error)
            continue
        newer = modified_ns > storage.changed_ns
        obstacle = misfit(index, storage, codec, newer=newer)
        if obstacle is None:
            warn_of_what_is_behind(path, index, storage, codec)
            return index if newer or index.sizes is not None else without_gaps(index, storage)
        log.warning("%s is not used, as it doesn't fit %s: %s", path, storage.name, obstacle)
    kept = indexcache.load(storage, codec)
    if kept is not None:
        return kept
    index = searched(storage, codec, verify)
    indexcache.keep(index, storage, codec)
    return index


def place_of_writer(path: Path, codec: Codec) -> Path | None:
    """Where the index goes of a file that is about to be replaced, or that isn't there yet.

    Returns:
        None where its only name is another file's index.
    """
    shared, own = index_paths(path)
    if not shared.exists() or belongs(shared, path, codec):
        return shared
    return own if own != shared else None


def place_of_command(path: str | os.PathLike[str]) -> Path:
    """Where an index goes that somebody asks for, in the place of what is there."""
    file = Path(path)
    shared, own = index_paths(file)
    others = [
        each
        for each in shared.parent.glob(f"{file.stem}.*")
        if each not in (shared, own, file) and codec_of(each) is not None
    ]
    return own if others else shared


def follow(file: Path, name: Path) -> None:
    """Give the index of ``file`` the name that it has beside ``name``, if there is an index."""
    index, shared, own = index_paths(file)[0], *index_paths(name)
    if index.exists():
        os.replace(index, own if shared.exists() else shared)


def remove(file: Path) -> None:
    """Remove a file's indexes; that of the shared name only where it fits."""
    shared, own = index_paths(file)
    own.unlink(missing_ok=True)
    if any(belongs(shared, file, codec) for codec in CODECS.values()):
        shared.unlink(missing_ok=True)


def belongs(index: Path, file: str | os.PathLike[str], codec: Codec) -> bool:
    """Whether the index at ``index`` is that of ``file``, perhaps of a part of its records."""
    try:
        return misfit(parse(index.read_bytes(), codec), MappedFile(file), codec, newer=True) is None
    except (OSError, RecordError, ValueError):
        return False


def warn_of_what_is_behind(
    path: str | Path, index: Index, storage: MappedStorage, codec: Codec
) -> None:
    """An index may leave out records on purpose, but those at the end were perhaps appended."""
    if not len(index.offsets):
        return
    last = codec.end(storage, int(index.offsets.max()))
    if last < storage.size:
        log.warning(
            "%s lists %d records of %s, and %d bytes lie behind the last of them, which are left "
            "out; if records were appended since, delete the index, and it is built anew; if it is "
            "a choice, open_records(...).select(numbers) makes one without an index",
            path,
            len(index.offsets),
            storage.name,
            storage.size - last,
        )


def without_gaps(index: Index, storage: Storage) -> Index:
    """With the sizes that records have where each ends at the next, for ``Shard`` to compare."""
    order = np.argsort(index.offsets, kind="stable")
    sizes = np.empty_like(index.offsets)
    sizes[order] = np.diff(index.offsets[order], append=storage.size)
    return Index(index.offsets, sizes)
