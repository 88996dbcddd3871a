"""Whether a peer is installed, and which version of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util


def is_installed(module: str) -> bool:
    """Whether a module, or the package around it, is there."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def version_of(distribution: str) -> str:
    """Name and version of what is installed, or of that with "-cpu" behind its name."""
    for name in (distribution, f"{distribution}-cpu"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return distribution
