"""Files that appear whole, and private ones, in which only the user can change what is stored."""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator


def problem_of(folder: str) -> str:
    """Describe why others could change what is stored in a folder; empty if they can't."""
    try:
        status = os.stat(folder)
    except OSError:  # It doesn't exist yet, or using it will say why not.
        return ""
    is_own = status.st_uid == os.geteuid()
    if is_own and not status.st_mode & 0o022:
        return ""
    remedy = f"run chmod go-w {folder}, or give" if is_own else "give"
    return (
        f"folder must belong to this user (number {os.geteuid()}) and be writable by no one else, "
        f"got {folder}, of user {status.st_uid} with mode {status.st_mode & 0o7777:o}: "
        f"{remedy} a folder of your own"
    )


def make_private(folder: str) -> None:
    """Create a folder and its missing parents for the user alone.

    Raises:
        OSError: It can't be created.
    """
    if not os.path.isdir(folder):
        make_private(os.path.dirname(folder))
        os.makedirs(folder, mode=0o700, exist_ok=True)


def opened(path: str, flags: int) -> int:
    """Open a file for its user alone; a symbolic link is an error."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name this file in an ``OSError``, not a temporary one, or none if the disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)
        raise


def write_whole(path: str | os.PathLike[str], content: bytes, private: bool = False) -> None:
    """Write a file so that it appears complete or not at all; perhaps for the user alone."""
    folder, name = os.path.split(path)
    hidden = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with naming(path):
            with open(os.open(hidden, flags, 0o600 if private else 0o666), "wb") as file:
                file.write(content)
            os.replace(hidden, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(hidden)
        raise


@contextlib.contextmanager
def locked(folder: str, wait: bool) -> Iterator[bool]:
    """Lock a folder against other processes by the file ``lock`` in it; yield True if locked.

    With ``wait``, wait for another holder. The lock ends with the process; a fork doesn't have it.
    """
    try:
        make_private(folder)
        descriptor = opened(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT)
    except OSError:
        yield False
        return
    with open(descriptor, "rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:  # Held by another process, or not supported here.
            yield False
        else:
            yield True
