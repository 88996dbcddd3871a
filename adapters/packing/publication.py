"""Finished files get their names, with their indexes; nobody else's file or index is touched.

Each step can be done again after an interrupt.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from adapters.records import sidecar


class FolderInUseError(FileExistsError):
    """Another run works in the folder."""


def locked_folder(folder: Path) -> int:
    """Make a folder, and lock it for as long as the descriptor that is returned is open.

    Raises:
        FolderInUseError: Another run has locked it.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # Who had it has just removed it.
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
    """Give a file its name; what has it now is replaced. The index follows."""
    if file.exists():
        sidecar.remove(name)
        os.replace(file, name)
    sidecar.follow(file, name)


def remove(file: Path) -> None:
    """Remove a file that was published, with its index."""
    sidecar.remove(file)
    file.unlink(missing_ok=True)
