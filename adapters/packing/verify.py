"""Verification of record files: every header, every CRC, every image, the index, the manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adapters.errors import ContentError, RecordError
from adapters.images import stored as decode_stored
from adapters.packing.manifest import Manifest, sha256_of
from adapters.records.files import Paths, RecordFiles, expanded
from adapters.records.index import misfit, parse, text_of
from adapters.records.remotefile import RemoteFile
from adapters.records.shard import Shard
from adapters.records.sidecar import (
    MANIFEST_SUFFIX,
    indexes_beside,
    place_of_command,
    put_index,
)
from adapters.records.storage import InflatedFile
from adapters.remote import clean, is_url
from adapters.remote.client import NoAnswer
from adapters.remote.clients import request
from adapters.remote.privatefiles import write_whole
from adapters.remote.urls import escaped, folder_url
from adapters.sources.decoders import Images, guessed

# Records of a remote file that are fetched at once: 6 MB, if they have 100 kB each.
_AT_ONCE = 64
_READ_BYTES = 4 << 20


def verify(
    paths: Paths,
    progress: Callable[[int, int], Any] | None = None,
    *,
    on_index: Callable[[str, int], Any] | None = None,
) -> tuple[int, list[str]]:
    """Read record files completely, and report their faults.

    Args:
        paths: Files, globs, or manifests (``.json``), whose files are compared with the checksums.
        progress: Called with the number of records read and the total, file by file.
        on_index: Called with the place of each index that is written, and the number of whole
            records that it lists; None writes no indexes. A file whose records have no offsets
            (compressed), or none of them whole, gets no index, and counts as faulty.

    Returns:
        Number of good records, and a line for each fault.

    Raises:
        FileNotFoundError: A glob matches nothing, or a folder has no files.
    """
    good, wrong = 0, []
    named = expanded(paths)
    files: dict[str, str] = {}  # By place: a manifest may name one, too.
    for path in named:
        listed = [path]
        if path.endswith(MANIFEST_SUFFIX):
            listed, problems = _listed(path)
            wrong += problems
        files.update((each if is_url(each) else os.path.abspath(each), each) for each in listed)
    for file in files.values():
        for problem in _problems(file, progress, on_index, len(named) > 1):
            if problem is None:
                good += 1
            else:
                wrong.append(problem)
    return good, wrong


def _listed(place: str) -> tuple[list[str], list[str]]:
    """List the files of a manifest, and their faults as files."""
    path, files, wrong = clean(place), [], []
    try:
        manifest = _manifest(place)
    except (OSError, ValueError) as error:
        return [], [_fault(path, error)]
    if manifest.read != manifest.packed + len(manifest.skipped):
        wrong.append(
            f"{path}: {manifest.read} read, but {manifest.packed} packed and "
            f"{len(manifest.skipped)} skipped"
        )
    if manifest.packed != (records := sum(packed.records for packed in manifest.files)):
        wrong.append(f"{path}: {manifest.packed} packed, but {records} in its files")
    for packed in manifest.files:
        named = os.path.join(os.path.dirname(place), packed.name)
        if is_url(place):
            named = folder_url(place) + escaped(place, packed.name)
        file = clean(named)
        try:
            found, size = _content_of(named)
        except NoAnswer:  # The next file's request would fail as slowly.
            raise
        except (OSError, RecordError) as error:
            wrong.append(_fault(file, error))
            continue
        files.append(named)
        if found != packed.sha256:
            wrong.append(f"{file}: SHA-256 {packed.sha256} expected, {found} found")
        elif size != packed.bytes:
            wrong.append(f"{file}: {packed.bytes} bytes expected, {size} found")
    return files, wrong


def _fault(name: str, error: Exception) -> str:
    """A line about a file that can't be read; other errors than the system's name it themselves."""
    return f"{name}: {error.strerror or error}" if isinstance(error, OSError) else str(error)


def _manifest(place: str) -> Manifest:
    if not is_url(place):
        return Manifest.load(place)
    text, _ = request(place, lambda client, key: client.get_all(key))
    return Manifest.parse(text, clean(place))


def _content_of(place: str) -> tuple[str, int]:
    """Compute SHA-256 and size in bytes of a file."""
    if not is_url(place):
        return sha256_of(place), os.path.getsize(place)
    file, digest, done = RemoteFile(place), hashlib.sha256(), 0
    content = file.stream()
    while piece := content.read(done, _READ_BYTES):
        digest.update(piece)
        done += len(piece)
    file.close()
    return digest.hexdigest(), done


def _problems(
    path: str,
    progress: Callable[[int, int], Any] | None,
    on_index: Callable[[str, int], Any] | None,
    is_part: bool,
) -> Iterator[str | None]:
    """Yield None for each good record, and a line for each fault; parts may be empty."""
    try:
        shard = Shard(path, "auto", True, index="search")
    except (OSError, RecordError) as error:
        yield _fault(clean(path), error)
        return
    yield from map(str, shard.damage.values())
    if not len(shard) and not is_part:
        yield f"{clean(path)}: no records"
    files, images, holds_images = RecordFiles.of([shard]), Images(None, {}), False
    failed = set(shard.damage)
    others: list[int] = []  # They are wrong if any other record is an image.
    for number in range(len(shard)):
        if progress is not None:
            progress(number + 1, len(shard))
        if number % _AT_ONCE == 0:
            following = np.arange(number, min(number + 2 * _AT_ONCE, len(shard)))
            files.fetch(following[:_AT_ONCE])
            files.prefetch(following[_AT_ONCE:], elsewhere=False)
        if number in shard.damage:
            continue
        try:
            payload = shard.read(number)
        except RecordError as error:
            failed.add(number)
            yield str(error)
            continue
        if guessed(payload, shard.format) == "image":
            holds_images = True
            yield _image_problem(shard, number, images)
        else:
            others.append(number)
    for number in others:
        yield _image_problem(shard, number, images) if holds_images else None
    if on_index is not None:
        if isinstance(shard.storage, InflatedFile):
            yield f"{clean(path)}: compressed, so that its records have no offsets for an index"
        elif len(failed) < len(shard):
            text = text_of(shard.without(failed), shard.codec)
            if is_url(path):
                place = put_index(path, text)
            else:
                place = str(place_of_command(path))
                write_whole(place, text)
            on_index(place, len(shard) - len(failed))
    if not failed:
        yield from _index_problems(shard, path)


def _image_problem(shard: Shard, number: int, images: Images) -> str | None:
    try:
        decode_stored(images.split(shard.read(number), shard.format)[0])
    except ContentError as error:
        offset, name = int(shard.offsets[number]), shard.storage.name
        return str(RecordError(name, number, offset, error.expected, error.found))
    return None


def _index_problems(shard: Shard, path: str) -> Iterator[str]:
    for name, text, _ in indexes_beside(path, skip_unreadable=False):
        try:
            index = parse(text, shard.codec)
        except ValueError:  # Index of another file with that stem.
            continue
        if not is_url(path):
            obstacle = misfit(index, shard.storage, shard.codec, newer=False)
        elif np.array_equal(np.sort(index.offsets), np.sort(shard.offsets)):
            obstacle = None
        else:  # Finding out more would take a request for each record.
            obstacle = f"it lists other records than the {len(shard)} that there are"
        if obstacle is not None:
            yield f"{name}: doesn't fit {clean(path)}: {obstacle}"
