"""The lock of a folder: a file of which one process of a host holds the whole at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

# Of which a child that is forked meanwhile has a copy, and so would hold what is locked.
_open: set[int] = set()


@contextlib.contextmanager
def held(folder: str, wait: bool) -> Iterator[bool]:
    """Hold the lock of a folder, which is made; it ends with the process. Whether it is held.

    Args:
        folder: It has the file ``lock``.
        wait: Whether to wait for who holds it.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        place = os.path.join(folder, "lock")
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        yield False
        return
    _open.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            # Before it is closed, which ends it not yet where a child has a copy.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        _open.discard(descriptor)
        os.close(descriptor)


def _in_child() -> None:
    while _open:
        with contextlib.suppress(OSError):
            os.close(_open.pop())


os.register_at_fork(after_in_child=_in_child)
