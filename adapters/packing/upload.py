"""Record files packed for a store: made on the local disk, then put, the manifest last.

Who finds the manifest finds all files that it names. An object appears whole or not at all. What an
earlier manifest of that name and format names, and this one doesn't, goes at last.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable

from adapters.packing.manifest import Manifest
from adapters.records.sidecar import MANIFEST_SUFFIX, SUFFIX
from adapters.remote import clean, client_of
from adapters.remote.fetching import side_by_side
from adapters.remote.retrying import persistently
from adapters.remote.urls import beside, split

log = logging.getLogger("adapters")


def packed_to(url: str, pack: Callable[[str], Manifest]) -> Manifest:
    """Pack into a temporary folder, and put what comes out beside each other where a URL says.

    Args:
        url: As ``out`` of ``pack``.
        pack: Packs into files of this local name.

    Raises:
        ConnectionError: The store doesn't answer.
        PermissionError: It may not be written to.
        ValueError: The URL names no file, or has a query.
    """
    if url.lower().startswith(("http://", "https://")) and ("?" in url or "#" in url):
        raise ValueError(
            f"out must be a URL without a query, as several files are put, got {clean(url)!r} and "
            "one; give a URL that needs none"
        )
    name = split(url)[1].rpartition("/")[2]
    if not name:
        raise ValueError(f'out must end in a name, like "s3://bucket/train", got {clean(url)!r}')
    target = url[: len(url) - len(name)]
    client_of(url)  # What isn't installed is said before hours of work.
    with tempfile.TemporaryDirectory(prefix="adapters-pack-") as folder:
        manifest = pack(os.path.join(folder, name))

        def put(each: str) -> None:
            client, key = client_of(target + each)
            persistently(lambda: client.put(key, os.path.join(folder, each)), clean(target + each))

        names = sorted(os.listdir(folder))
        side_by_side(put, [each for each in names if not each.endswith(MANIFEST_SUFFIX)])
        for each in names:
            if each.endswith(MANIFEST_SUFFIX):
                before = _named_by(target + each, manifest.format)
                put(each)
                old = [other for other in before if other not in names]
                side_by_side(_remove, [target + other for other in old])
    return manifest


def _named_by(url: str, format: str) -> list[str]:
    """The files that a manifest names which is there already, and their indexes."""
    client, key = client_of(url)
    try:
        text, _ = persistently(lambda: client.get_all(key), clean(url))
        earlier = Manifest.parse(text, clean(url))
    except (FileNotFoundError, PermissionError, ValueError):  # S3 says "not allowed" of nothing.
        return []
    if earlier.format != format:
        return []
    names = [packed.name for packed in earlier.files]
    return names + [beside(name, SUFFIX, replace) for name in names for replace in (True, False)]


def _remove(url: str) -> None:
    client, key = client_of(url)
    try:
        with contextlib.suppress(FileNotFoundError):
            persistently(lambda: client.delete(key), clean(url))
    except (OSError, NotImplementedError) as error:
        log.warning("%s is of an earlier run, and can't be removed: %s", clean(url), error)
