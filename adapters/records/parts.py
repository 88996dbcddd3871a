"""Output folders of Spark and Hadoop: record files, called parts, and other files.

::

    out/_SUCCESS              written last; empty
    out/part-r-00000          a part; empty if it has no records
    out/.part-r-00000.crc     a checksum of Hadoop's
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from adapters.records.sidecar import record_files

_MARKERS = ("_SUCCESS", "_committed_", "_started_", "_temporary", "_metadata", "_common_metadata")


def without_markers(names: Iterable[str]) -> list[str]:
    """Filter out hidden files and job markers."""
    hidden = (".", *_MARKERS)
    return [name for name in names if not os.path.basename(name).startswith(hidden)]


def parts_of(folder: str) -> list[str]:
    """Return the record files of a local folder, sorted by name.

    Raises:
        FileNotFoundError: There are none.
    """
    with os.scandir(folder) as entries:
        found = sorted((entry.path, entry.is_dir()) for entry in entries)
    shown = set(without_markers(path for path, _ in found))
    parts = record_files([path for path, is_folder in found if path in shown and not is_folder])
    if not parts:
        folders = [path for path, is_folder in found if is_folder and path in shown]
        there = (
            f"one of folders alone: {os.path.join(folder, '*', 'part-*')!r} names the files in "
            "them, and open_images opens folders of images"
            if folders
            else "an empty one"
        )
        raise FileNotFoundError(f"paths must name record files, got the folder {folder!r}, {there}")
    return parts
