"""Publication of finished files and indexes under their names; other files are left alone.

Each step can be repeated after an interrupt.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from adapters.records import sidecar


class FolderInUseError(FileExistsError):
    """Another run works in the folder."""


def locked_folder(folder: Path) -> int:
    """Make a folder, and lock it until the returned descriptor is closed.

    Raises:
        FolderInUseError: Another run has locked it.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # The run that had locked it has just removed it.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                return descriptor
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(descriptor)
            raise FolderInUseError(
                f"another run packs into {folder}: wait for its end, or give out another name"
            ) from None
        os.close(descriptor)


def publish(file: Path, name: Path) -> None:
    """Give a file and its index their names, replacing earlier files."""
    if file.exists():
        sidecar.remove(name)
        os.replace(file, name)
    sidecar.follow(file, name)


def remove(file: Path) -> None:
    """Remove a published file and its index."""
    sidecar.remove(file)
    file.unlink(missing_ok=True)
