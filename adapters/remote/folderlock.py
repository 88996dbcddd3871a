"""Lock of a folder: a file that one process of a host locks at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from adapters.remote.cachefiles import make_private, opened

# A forked child inherits these and would keep them locked.
_open: set[int] = set()


@contextlib.contextmanager
def held(folder: str, wait: bool) -> Iterator[bool]:
    """Lock a folder, creating it if needed; yield True if locked. Ends with the process.

    Args:
        folder: Folder of the file ``lock``.
        wait: True to wait for another holder.
    """
    try:
        make_private(folder)
        place = os.path.join(folder, "lock")
        descriptor = opened(place, os.O_RDWR | os.O_CREAT)
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
            # Unlock explicitly: if a child has a copy, closing doesn't unlock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        _open.discard(descriptor)
        os.close(descriptor)


def _in_child() -> None:
    while _open:
        with contextlib.suppress(OSError):
            os.close(_open.pop())


os.register_at_fork(after_in_child=_in_child)
