"""Finished files get their names, with their indexes; nobody else's file or index is touched.

Each step can be done again after an interrupt. The index of ``train.rec`` is ``train.idx``, which
may as well be that of ``train.tfrecord``: it is only replaced or removed where it fits the file.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from adapters.records import CODECS, index_paths
from adapters.records.index import belongs


def locked_folder(folder: Path) -> int:
    """Make a folder, and lock it for as long as the descriptor that is returned is open.

    Raises:
        FileExistsError: Another run has locked it.
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
            raise FileExistsError(
                f"another run packs into {folder}: wait for its end, or give out another name"
            ) from None
        os.close(descriptor)


def publish(file: Path, name: Path) -> None:
    """Give a file its name; what has it now is replaced. The index follows."""
    index, shared, own = index_paths(file)[0], *index_paths(name)
    if file.exists():
        _remove_indexes(name)
        os.replace(file, name)
    if index.exists():
        os.replace(index, own if shared.exists() else shared)


def remove(file: Path) -> None:
    """Remove a file that was published, with its index."""
    _remove_indexes(file)
    file.unlink(missing_ok=True)


def _remove_indexes(file: Path) -> None:
    shared, own = index_paths(file)
    own.unlink(missing_ok=True)
    if any(belongs(shared, file, codec) for codec in CODECS.values()):
        shared.unlink(missing_ok=True)
