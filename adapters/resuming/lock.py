"""Who may use a folder: one training at a time, whose processes share it by their ranks.

::

    .lock               one process alone holds it; ranks of one job hold it together
    .lock-rank3-of-8    each rank holds its own, so that no rank is there twice
    .lock-writer        the rank that writes

Locks are those of ``flock``: whatever ends a process releases them. The files are removed by who
holds them last, and what killed processes have left by who comes next; one that was removed
meanwhile is made anew. Worker processes that are forked off don't hold what their parent holds.

Rank 0 writes. In a folder that rank 0 doesn't use, as each rank may have one of its own, one of
those that do writes, which is settled when all of a job that trains in step must have begun: after
the first batch. Where a file system has no locks, nobody but rank 0 writes.

A lock belongs to one ``Resume``, and its methods are called by the thread that trains.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from adapters.resuming.folder import make

log = logging.getLogger("adapters")

_TOGETHER, _RANK, _WRITER = ".lock", ".lock-rank{}-of-{}", ".lock-writer"
# Others look whether a lock is held by holding it themselves for an instant.
_PATIENCE_SECONDS, _PAUSE_SECONDS = 1.0, 0.02


class _Held(Exception):
    """By somebody else."""


class Lock:
    """Of a folder.

    Args:
        path: Of the folder; is made if need be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._files: dict[str, int] = {}
        self._made = False
        self._thread = 0
        self._count = 1
        self.rank = 0
        """Which process of the job this is."""
        self.writes: bool | None = False
        """Whether this process writes; None as long as that isn't known."""
        _locks.add(self)

    def take(self, shard: tuple[int, int], over: bool = False) -> None:
        """Begin to use the folder.

        Args:
            shard: ``(rank, count)``: processes with the same count and other ranks may use it, too.
            over: Take it over from a training of this thread that was left without a word.

        Raises:
            RuntimeError: Another training uses it.
        """
        self.release()
        self.rank, self._count = shard
        if _looks:
            return
        if over:
            for other in list(_locks):
                if other._thread == threading.get_ident() and other._path == self._path:
                    other.release()
        self._thread = threading.get_ident()
        try:
            self._made = make(self._path)
            self._hold(_TOGETHER, exclusively=self._count == 1)
            if self._count > 1:
                self._hold(_RANK.format(*shard))
            self._clear()
        except _Held as held:
            self.release()
            raise RuntimeError(
                f"folder must be used by one training at a time, got {self._path}, which "
                f"{held} uses: end that one, or give Resume another folder. Processes of one job "
                "share a folder where the data of each has its own shard=(rank, count)"
            ) from None
        except OSError as error:  # Such as a file system without locks.
            log.warning(
                "%s can't be locked (%s): nothing would notice a second training there",
                self._path,
                error,
            )
        self.writes = True if self._count == 1 else None
        if not self.rank:
            self.settle()

    def settle(self) -> None:
        """Find out who writes, after a batch."""
        if self.writes is not None:
            return
        try:
            if self.rank and self._is_held(_RANK.format(0, self._count)):
                self.writes = False
            else:
                self._hold(_WRITER, patience_seconds=0.0)
                self.writes = True
        except _Held:
            self.writes = False
        except OSError:  # Which ``take`` has warned of.
            self.writes = not self.rank

    def release(self) -> None:
        """Let others use the folder."""
        self.writes = False
        for name in list(self._files):
            self._drop(name)
        if self._made:
            self._made = False
            with contextlib.suppress(OSError):  # Something is in it.
                self._path.rmdir()

    def _clear(self) -> None:
        """Remove what killed processes have left.

        Raises:
            _Held: By a rank of another number of them.
        """
        for path in self._path.glob(f"{_TOGETHER}-*"):
            if path.name in self._files:
                continue
            own = path.name == _WRITER or path.name.endswith(f"-of-{self._count}")
            try:
                self._hold(path.name, patience_seconds=0.0 if own else _PATIENCE_SECONDS)
                self._drop(path.name)
            except _Held:
                if not own:
                    raise

    def _drop(self, name: str) -> None:
        file = self._files.pop(name)
        with contextlib.suppress(OSError):
            # Nobody else may hold what is removed.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self._path / name).unlink()
        os.close(file)

    def _hold(
        self, name: str, exclusively: bool = True, patience_seconds: float = _PATIENCE_SECONDS
    ) -> None:
        path, until = self._path / name, time.monotonic() + patience_seconds
        kind = fcntl.LOCK_EX if exclusively else fcntl.LOCK_SH
        while True:
            file, is_new = _opened(path)
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                if _is_there(file, path):
                    os.ftruncate(file, 0)
                    os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
                    self._files[name], file = file, -1
                    return
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise _Held(os.pread(file, 300, 0).decode() or "another process") from None
                time.sleep(_PAUSE_SECONDS)
            except OSError:  # There are no locks.
                if is_new:
                    path.unlink(missing_ok=True)
                raise
            finally:
                if file >= 0:
                    os.close(file)

    def _is_held(self, name: str) -> bool:
        try:
            file = os.open(self._path / name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def __del__(self) -> None:
        for file in self._files.values():
            os.close(file)


@contextlib.contextmanager
def looking() -> Iterator[None]:
    """Within, folders are neither held nor written to: a training is looked at, not continued."""
    global _looks
    _looks += 1
    try:
        yield
    finally:
        _looks -= 1


_looks = 0
_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _opened(path: Path) -> tuple[int, bool]:
    """A file, and whether it was made for that."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_EXCL, 0o666), True
    except FileExistsError:
        return os.open(path, flags, 0o666), False


def _is_there(file: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _forget() -> None:
    """In a child that was forked off: the parent holds them."""
    for lock in list(_locks):
        for file in lock._files.values():
            os.close(file)
        lock._files, lock.writes = {}, False


os.register_at_fork(after_in_child=_forget)
