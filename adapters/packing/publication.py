"""Finished files get their names, with their indexes; nobody else's file or index is touched.

Each step can be done again after an interrupt. The index of ``train.rec`` is ``train.idx``, which
may as well be that of ``train.tfrecord``: it is only replaced or removed where it fits the file.
"""

from __future__ import annotations

import os
from pathlib import Path

from adapters.records import CODECS, index_paths
from adapters.records.index import belongs


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
