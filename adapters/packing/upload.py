"""Upload of record files to a store: made on the local disk, then put, the manifest last.

The store has all files that its manifest names. An object appears whole or not at all. Files that
only an earlier manifest of that name and format lists are removed last. A manifest and an index get
the names that they would have in a folder, and replace nothing of another format.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from adapters.packing.manifest import Manifest
from adapters.records.formats import CODECS, codec_of
from adapters.records.sidecar import MANIFEST_SUFFIX, SUFFIX, text_of_object
from adapters.remote import clean, client_of
from adapters.remote.clients import request
from adapters.remote.fetch import side_by_side
from adapters.remote.urls import beside, split

log = logging.getLogger("adapters")


def packed_to(url: str, pack: Callable[[str], Manifest]) -> Manifest:
    """Let ``pack`` write files of a local name, and put them in parallel at a URL."""
    if url.lower().startswith(("http://", "https://")) and ("?" in url or "#" in url):
        raise ValueError(
            f"out must be a URL without a query, as several files are put, got {clean(url)!r} and "
            "one; give a URL that needs none"
        )
    name = split(url)[1].rpartition("/")[2]
    if not name:
        raise ValueError(f'out must end in a name, like "s3://bucket/train", got {clean(url)!r}')
    target = url[: len(url) - len(name)]
    client_of(url)  # Report a missing package before hours of work.
    with tempfile.TemporaryDirectory(prefix="adapters-pack-") as folder:
        # Copy manifests from the store, so that names are chosen as in a folder.
        there = _manifests(target, name)
        for each, text in there.items():
            Path(folder, each).write_bytes(text)
        try:
            manifest = pack(os.path.join(folder, name))
        except FileExistsError as error:
            raise FileExistsError(str(error).replace(folder + os.sep, clean(target))) from None

        def put(each: str, name: str | None = None) -> None:
            path = os.path.join(folder, each)
            request(target + (name or each), lambda client, key: client.put(key, path))

        def put_index(packed: str) -> None:
            each = beside(packed, SUFFIX, replace=True)
            if os.path.exists(os.path.join(folder, each)):
                put(each, _index_name(target, packed, packed in before))

        before = _named_by(there, manifest.format)
        names = [packed.name for packed in manifest.files]
        side_by_side(put, names)
        side_by_side(put_index, names)
        for each in os.listdir(folder):
            is_manifest = each.endswith(MANIFEST_SUFFIX)
            if is_manifest and Path(folder, each).read_bytes() != there.get(each):
                put(each)
        old = [each for each in before if each not in names]
        indexes = side_by_side(lambda each: _index_name(target, each, True), old)
        side_by_side(_remove, [target + each for each in [*old, *indexes]])
    return manifest


def _manifests(target: str, name: str) -> dict[str, bytes]:
    """Fetch the objects that have one of the names that the manifest may get."""
    stem, suffix = os.path.splitext(name)
    suffixes = [suffix] if codec_of(name) else [each.suffix for each in CODECS.values()]
    stem = stem if codec_of(name) else name
    names = [stem + each + MANIFEST_SUFFIX for each in ("", *suffixes)]

    texts = side_by_side(lambda each: text_of_object(target + each), names)
    return {each: found[0] for each, found in zip(names, texts) if found is not None}


def _named_by(manifests: dict[str, bytes], format: str) -> list[str]:
    """List the files that a manifest of this format names."""
    for name, text in manifests.items():
        with contextlib.suppress(ValueError):
            earlier = Manifest.parse(text, name)
            if earlier.format == format:
                return [packed.name for packed in earlier.files]
    return []


def _index_name(target: str, packed: str, is_ours: bool) -> str:
    """Choose the name of a file's index: the shared one, unless that is another file's."""
    shared, own = (beside(packed, SUFFIX, replace) for replace in (True, False))
    if _is_there(target + shared) and not (is_ours and not _is_there(target + own)):
        return own
    return shared


def _is_there(url: str) -> bool:
    try:
        request(url, lambda client, key: client.head(key))
    except (FileNotFoundError, PermissionError):
        return False
    return True


def _remove(url: str) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):
            request(url, lambda client, key: client.delete(key))
    except (OSError, NotImplementedError) as error:
        log.warning("%s is of an earlier run, and can't be removed: %s", clean(url), error)
