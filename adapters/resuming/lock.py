"""The lock of a checkpoint folder: only rank 0 of one training writes to it at a time.

Rank 0 holds ``flock`` on the file ``.lock`` in the folder from the start of a training to its end;
the other ranks only read the folder. The system releases the lock however the process ends; a file
that a killed process has left is locked again. Forked worker processes don't hold the lock.

A ``Lock`` belongs to one ``CheckpointDir``; only the training thread calls its methods.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger("adapters")

# A forked child inherits the lock, and holds it until its at-fork handler has run.
_PATIENCE_SECONDS, _PAUSE_SECONDS = 1.0, 0.02
# Errors of file systems that can't fsync a folder: some network and FUSE file systems.
_NO_FSYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP)


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
            self._acquire()
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
            with contextlib.suppress(OSError):
                self._name.unlink()
            os.close(self._file)
            self._file = None

    def _acquire(self) -> None:
        """Open and lock the lock file; if locks aren't supported, the file only marks rank 0."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while self._file is None:
            file = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _has_name(file, self._name):
                    self._file = file
                    os.ftruncate(file, 0)
                    os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
            except BlockingIOError:
                if time.monotonic() >= until:
                    holder = os.pread(file, 300, 0).decode() or "another process"
                    raise RuntimeError(
                        f"folder must be used by one training at a time, got {self._path}, which "
                        f"{holder} uses: end that one, or give Resume another folder. Processes of "
                        "one job share a folder if the data of each has its own shard=(rank, count)"
                    ) from None
                time.sleep(_PAUSE_SECONDS)
            except OSError:
                self._file = file
                raise
            finally:
                if self._file != file:
                    os.close(file)

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)


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


def _has_name(file: int, path: Path) -> bool:
    """True if ``path`` still names the open file."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def make(path: Path) -> None:
    """Create a folder and its parents, and sync their names to disk."""
    path = path.absolute()
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in missing:
        force_names(each.parent)


def force_names(path: Path) -> None:
    """Sync a folder's entries to disk, if the file system supports that."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
    finally:
        os.close(folder)


def _forget_in_child() -> None:
    for lock in list(_locks):
        if lock._file is not None:
            os.close(lock._file)
        lock._file, lock.writes = None, False


os.register_at_fork(after_in_child=_forget_in_child)
