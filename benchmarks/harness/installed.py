"""Whether a peer is installed, and which version of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """Whom a ratio compares with.

    Args:
        framework: For the table.
        module: What is imported.
        distribution: What is installed for that; or that with "-cpu" behind it.
        absent: Tells whether it isn't there, where that isn't whether a module can be found.
    """

    framework: str
    module: str
    distribution: str
    absent: Callable[[], bool] | None = None

    @property
    def missing(self) -> bool:
        """Whether it isn't installed."""
        return is_missing(self.module, self.absent)

    @property
    def version(self) -> str:
        """For the table: name and version of what is installed."""
        return version_of(self.distribution)


def is_missing(module: str, absent: Callable[[], bool] | None) -> bool:
    """Whether a module, or the package around it, isn't there; or what `absent` says, if given."""
    if absent is not None:
        return absent()
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:
        return True


def version_of(distribution: str) -> str:
    """Name and version of what is installed, or of that with "-cpu" behind its name."""
    for name in (distribution, f"{distribution}-cpu"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return distribution
