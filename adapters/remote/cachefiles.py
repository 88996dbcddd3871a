"""Names of a cache's files and folders, and functions that read and write them.

    objects/<32 hexadecimal digits>/object.json, *.seg

Other files in the folder don't match these names and are left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from typing import Any

SUFFIX = ".seg"
_DESCRIPTION = "object.json"
_OBJECT = re.compile("[0-9a-f]{32}")
# Earlier versions stored indexes as well.
_OF_OBJECTS = re.compile(r"(index|object\.json)(\.[0-9a-f]{32}\.tmp)?|[0-9a-f]+\.seg")


def problem_of(folder: str) -> str:
    """Describe why others could change what is stored in a folder; empty if they can't."""
    try:
        status = os.stat(folder)
    except OSError:  # It doesn't exist yet, or using it will say why not.
        return ""
    if status.st_uid == os.geteuid() and not status.st_mode & 0o022:
        return ""
    return (
        f"folder must belong to this user (number {os.geteuid()}) and be writable by no one else, "
        f"got {folder}, of user {status.st_uid} with mode {status.st_mode & 0o7777:o}: run "
        f"chmod go-w {folder}, or give a folder of your own"
    )


def make_private(folder: str) -> None:
    """Create a folder and its missing parents for the user alone.

    Raises:
        OSError: It can't be created.
    """
    if not os.path.isdir(folder):
        make_private(os.path.dirname(folder))
        os.makedirs(folder, mode=0o700, exist_ok=True)


def opened(path: str, flags: int) -> int:
    """Open a file of the cache for its user alone; a symbolic link is an error."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def describe(folder: str, url: str, version: str, size: int) -> None:
    """Write an object folder's description, unless it exists."""
    place = os.path.join(folder, _DESCRIPTION)
    if not os.path.exists(place):
        make_private(folder)
        about = {"url": url, "version": version, "size": size}
        write_atomically(place, json.dumps(about).encode())


def description_of(folder: str) -> dict[str, Any] | None:
    """Read an object folder's description; None if it has none."""
    try:
        with open(os.path.join(folder, _DESCRIPTION), encoding="utf-8") as file:
            found = json.load(file)
        return {"url": str(found["url"]), "size": int(found["size"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def files_in(folder: str) -> list[tuple[int, int, str]]:
    """List each file's last use in ns, its size on disk in bytes, and its path."""
    found: list[tuple[int, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, status.st_blocks * 512, entry.path))
    return found


def is_of_an_object(entry: os.DirEntry[str]) -> bool:
    """True if it is an object folder of the cache."""
    return bool(_OBJECT.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)


def made_in(folder: str) -> list[str]:
    """List the files in an object folder that a cache created."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [
            each.path
            for each in entries
            if _OF_OBJECTS.fullmatch(each.name) and not each.is_dir(follow_symlinks=False)
        ]
    return []


def remove(paths: list[str]) -> None:
    """Remove files, and their folders if these are then empty."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)
    for folder in {os.path.dirname(path) for path in paths}:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def write_atomically(path: str, content: bytes) -> None:
    """Write a file so that it appears complete or not at all."""
    hidden = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(hidden, "wb") as file:
            file.write(content)
        os.replace(hidden, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
        raise
