"""Record files packed for a store: made on the local disk, then put, the manifest last.

Who finds the manifest finds all files that it names. An object appears whole or not at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from adapters.packing.manifest import Manifest
from adapters.records.sidecar import MANIFEST_SUFFIX
from adapters.remote import clean, client_of
from adapters.remote.fetching import side_by_side
from adapters.remote.retrying import persistently
from adapters.remote.urls import split


def packed_to(url: str, pack: Callable[[str], Manifest]) -> Manifest:
    """Pack into a temporary folder, and put what comes out beside each other where a URL says.

    Args:
        url: As ``out`` of ``pack``.
        pack: Packs into files of this local name.

    Raises:
        ConnectionError: The store doesn't answer.
        PermissionError: It may not be written to.
        ValueError: The URL names no file.
    """
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
                put(each)
    return manifest
