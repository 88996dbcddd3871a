"""The lock of a checkpoint folder: only rank 0 of one training writes to it at a time.

Rank 0 holds ``flock`` on the file ``.lock`` in the folder from the start of a training to its end;
the other ranks only read the folder. The system releases the lock however the process ends, and
the file stays. Forked worker processes don't hold the lock.

A ``Lock`` belongs to one ``Resume``; only the training thread calls its methods.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from adapters.resuming.checkpoint_dir import make

log = logging.getLogger("adapters")


class Lock:
    """Keeps a second training out of a folder.

    Args:
        path: The folder; rank 0 creates it if necessary.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._name = self._path / ".lock"
        self._file: int | None = None
        self._thread = 0
        self._awaits_rank_0 = False
        self.rank = 0
        """The rank of this process in its job."""
        self.writes = False
        """True if this process writes checkpoints."""
        _locks.add(self)

    def take(self, rank: int, over: bool = False) -> None:
        """Lock the folder if this is rank 0; don't lock it within ``read_only``.

        Args:
            rank: The rank of this process in its job.
            over: Take the lock over from an abandoned training of this thread.

        Raises:
            RuntimeError: Another training uses the folder.
        """
        self.release()
        self.rank = rank
        if _readers:
            return
        self._awaits_rank_0 = rank > 0
        if rank:
            return
        if over:
            for other in list(_locks):
                if other._thread == threading.get_ident() and other._path == self._path:
                    other.release()
        self._thread = threading.get_ident()
        try:
            make(self._path)
            self._file = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        except BlockingIOError:
            holder = self._name.read_text() or "another process"
            self._close()
            raise RuntimeError(
                f"folder must be used by one training at a time, got {self._path}, which "
                f"{holder} uses: end that one, or give Resume another folder. Processes of one job "
                "share a folder if the data of each has its own shard=(rank, count)"
            ) from None
        except OSError as error:  # For example, the file system has no locks.
            log.warning(
                "%s can't be locked (%s): a second training there would not be noticed",
                self._path,
                error,
            )
        self.writes = True

    def check_writer(self) -> None:
        """Warn, after the first batch of another rank, if rank 0 doesn't use this folder."""
        if self._awaits_rank_0 and not self._name.exists():
            log.warning(
                "rank %d has found no rank 0 in %s: rank 0 alone saves a training, so give Resume "
                "of all ranks the same folder",
                self.rank,
                self._path,
            )
        self._awaits_rank_0 = False

    def release(self) -> None:
        """Release the lock."""
        self.writes = self._awaits_rank_0 = False
        if self._file is not None:
            with contextlib.suppress(OSError):  # The file system has no locks.
                fcntl.flock(self._file, fcntl.LOCK_UN)  # A child may have the file for a moment.
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    __del__ = _close


@contextlib.contextmanager
def read_only() -> Iterator[None]:
    """Neither lock nor write folders in the ``with`` block: a training is only examined."""
    global _readers
    _readers += 1
    try:
        yield
    finally:
        _readers -= 1


_readers = 0
_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _forget_in_child() -> None:
    for lock in list(_locks):
        lock._close()
        lock.writes = False


os.register_at_fork(after_in_child=_forget_in_child)
