"""What a process holds of files, and what another one prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_LIMIT_SECONDS = 60


def mapped(folder) -> int:
    """How many files of a folder this process has mapped."""
    return sum(f"{folder}/" in line for line in _maps())


def unnamed() -> set[str]:
    """The temporary files without a name that this process holds, by their inodes."""
    files = {line.split()[4] for line in _maps() if line.endswith(" (deleted)")}
    return files | {target for target in _targets() if target.endswith(" (deleted)")}


def _maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


def _targets() -> list[str]:
    targets = []
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # The descriptor of this very listing.
            continue
    return targets


def run(script: str, *arguments: str) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.check_output(command, text=True, timeout=_LIMIT_SECONDS)
