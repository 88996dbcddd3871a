"""The cache folder: data that are made once, and are never half there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """Where they lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loader-adapters"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name in the cache; made under another name first, so never half there.

    Args:
        name: With a number that is a new one whenever `make` would make something else.
        make: Fills the folder that it is given; called only where there is none yet.
    """
    cache = cache_folder()
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cache))
    try:
        make(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:
            # Another session was first; its files are the same. Anything else is an error.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder
