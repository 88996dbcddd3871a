"""What a cache has on the disk, and nobody else: names, and the files and folders that have them.

    objects/<32 hexadecimal digits>/object.json, index, *.seg

A folder that somebody else uses, too, or that was never a cache, has other names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from typing import Any

INDEX, SUFFIX = "index", ".seg"
_DESCRIPTION = "object.json"
_OBJECT = re.compile("[0-9a-f]{32}")
_OF_OBJECTS = re.compile(r"(index|object\.json)(\.[0-9a-f]{32}\.tmp)?|[0-9a-f]+\.seg")


def describe(folder: str, url: str, version: str, size: int) -> None:
    """Write down what a folder of the cache is of, unless that was done."""
    place = os.path.join(folder, _DESCRIPTION)
    if not os.path.exists(place):
        os.makedirs(folder, exist_ok=True)
        about = {"url": url, "version": version, "size": size}
        write_atomically(place, json.dumps(about).encode())


def description_of(folder: str) -> dict[str, Any] | None:
    """What a folder of the cache is of; None where nobody says."""
    try:
        with open(os.path.join(folder, _DESCRIPTION), encoding="utf-8") as file:
            found = json.load(file)
        return {"url": str(found["url"]), "size": int(found["size"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def files_in(folder: str) -> list[tuple[int, int, str]]:
    """When each file was last used, in ns; how many bytes of the disk it takes; its path.

    An index counts as used when the last of its object was: without it, all is read anew.
    """
    found: list[tuple[int, int, str]] = []
    indexes: list[tuple[int, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_index = entry.name == INDEX
            if is_index or entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    file = status.st_mtime_ns, status.st_blocks * 512, entry.path
                    (indexes if is_index else found).append(file)
    latest = max((used + 1 for used, _, _ in found), default=0)
    return found + [(max(used, latest), size, path) for used, size, path in indexes]


def is_of_an_object(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder of the cache."""
    return bool(_OBJECT.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)


def made_in(folder: str) -> list[str]:
    """The files there that a cache has made of an object."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [
            each.path
            for each in entries
            if _OF_OBJECTS.fullmatch(each.name) and not each.is_dir(follow_symlinks=False)
        ]
    return []


def remove(paths: list[str]) -> None:
    """Remove files, and the folders that have nothing else in them then."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)
    for folder in {os.path.dirname(path) for path in paths}:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def write_atomically(path: str, content: bytes) -> None:
    """Write a file that is there whole, or not at all."""
    hidden = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(hidden, "wb") as file:
            file.write(content)
        os.replace(hidden, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
        raise
