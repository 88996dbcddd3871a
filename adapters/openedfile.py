"""Files that stay the ones that were opened, though another may take their name."""

from __future__ import annotations

import os


class FileChangedError(OSError):
    """Another file has taken the name of an opened one, or none has it any more."""


def identity_of(file: str | int) -> tuple[str, int, int]:
    """Machine, device and inode of a path or descriptor; zeros if there is no such file."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return os.uname().nodename, 0, 0
    return os.uname().nodename, status.st_dev, status.st_ino


def check_unchanged(path: str, identity: tuple[str, int, int]) -> None:
    """Raise ``FileChangedError`` if this machine has another file of that name now, or none."""
    now = identity_of(path)
    if now[0] == identity[0] and (now != identity or not any(now[1:])):
        raise FileChangedError(f"{path} has changed since it was opened: open it again")
