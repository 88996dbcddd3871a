"""Record files checked: every header, every CRC, every image, the index, the manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adapters.errors import ContentError, RecordError
from adapters.images import decode as decode_image
from adapters.packing.manifest import Manifest, sha256_of
from adapters.records import index_paths
from adapters.records.files import Paths, expanded
from adapters.records.index import misfit, parse
from adapters.records.shard import Shard
from adapters.sources import Images, guessed


def verify(
    paths: Paths, progress: Callable[[int, int], Any] | None = None
) -> tuple[int, list[str]]:
    """Read record files whole, and find what is wrong with them.

    Args:
        paths: Files, globs, or manifests (``.json``), whose files are compared with the checksums.
        progress: Called with the records that were read and all there are, file by file.

    Returns:
        How many records are right, and a line for each thing that is wrong.

    Raises:
        FileNotFoundError: No such file.
    """
    good, wrong = 0, []
    for path in expanded(paths):
        if path.endswith(".json"):
            files, problems = _listed(Path(path))
            wrong += problems
        else:
            files = [path]
        for file in files:
            for problem in _problems(file, progress):
                if problem is None:
                    good += 1
                else:
                    wrong.append(problem)
    return good, wrong


def _listed(path: Path) -> tuple[list[str], list[str]]:
    """The files of a manifest, and what is wrong with them as files."""
    try:
        manifest = Manifest.load(path)
    except ValueError as error:
        return [], [str(error)]
    files, wrong = [], []
    if manifest.read != manifest.packed + len(manifest.skipped):
        wrong.append(
            f"{path}: {manifest.read} read, but {manifest.packed} packed and "
            f"{len(manifest.skipped)} skipped"
        )
    for packed in manifest.files:
        file = path.with_name(packed.name)
        if not file.exists():
            wrong.append(f"{file}: missing")
            continue
        files.append(os.fspath(file))
        found = sha256_of(file)
        if found != packed.sha256:
            wrong.append(f"{file}: SHA-256 {packed.sha256} expected, {found} found")
    return files, wrong


def _problems(path: str, progress: Callable[[int, int], Any] | None) -> Iterator[str | None]:
    """None for each record that is right, and a line for what is wrong."""
    try:
        shard = Shard(path, "auto", True, use_index=False)
    except RecordError as error:
        yield str(error)
        return
    yield from _index_problems(shard, path)
    content = None
    for number in range(len(shard)):
        if progress is not None:
            progress(number + 1, len(shard))
        try:
            payload = shard.read(number)
            if number == 0 and guessed(payload, shard.format) == "image":
                content = Images(None, {})
            if content is not None:
                decode_image(content.split(payload, shard.format)[0])
            yield None
        except RecordError as error:
            yield str(error)
        except ContentError as error:
            offset = int(shard.offsets[number])
            yield str(RecordError(path, number, offset, error.expected, error.found))


def _index_problems(shard: Shard, path: str) -> Iterator[str]:
    for file in dict.fromkeys(index_paths(path)):
        try:
            index = parse(file.read_bytes(), shard.codec)
        except FileNotFoundError:
            continue
        except ValueError:  # Another file's of that stem.
            continue
        if (obstacle := misfit(index, shard.storage, shard.codec, newer=False)) is not None:
            yield f"{file}: doesn't fit {path}: {obstacle}"
