"""Pool of worker processes, shared by all sequences and loaders of the interpreter.

    idle --lease--> leased --its executor sends and receives--> ...
      ^                |
      +-- give_back ---+

An executor leases workers and gives them back. A worker that still computes then is draining: its
thread of the executor gives it back after its last answer. Idle workers are kept for a while, so
that the next ``fit``, ``evaluate`` or loader starts none. See ``process`` for how they start.

Any thread may call these functions. They don't block, except for the system call that starts a
process, and a short wait for draining workers. One thread of the pool ends idle workers; it ends
with the last of them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from adapters.engine.jobs import InterpreterEndsError
from adapters.engine.process import Worker
from adapters.engine.serialization import open_plans
from adapters.engine.worker import Origin

# Lifetime of an idle worker: short if no sequence or loader with worker processes is open, long if
# one is, such as a loader between two passes.
_LINGER_SECONDS = 2.0
_KEPT_SECONDS = 60.0
# Time for a worker that was given back to finish its job.
_DRAIN_SECONDS = 0.8
# Time that the next executor waits for such workers.
_AWAITED_SECONDS = 0.1
_INSTALLED = sys.prefix, sys.base_prefix
_NAME = "adapters-pool"


class Pool:
    """Worker processes of this interpreter."""

    def __init__(self) -> None:
        # Reentrant, as the garbage collector may give workers back at any moment.
        self._changed = threading.Condition(threading.RLock())
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._open_executors = 0
        self._ended = False
        self._thread: threading.Thread | None = None
        self.start_seconds = 0.0
        """Time from the latest process's start until it could be given work; 0 if none started."""

    @property
    def idle(self) -> int:
        """Number of workers that can be leased without starting one."""
        return sum(not worker.has_ended for worker in list(self._idle))

    @property
    def idle_pids(self) -> set[int]:
        """Processes that are not leased; some of them may still be finishing their last job."""
        with self._changed:
            return {each.pid for each in self._workers if each.lease is None or each.draining}

    def register(self, executors: int) -> None:
        """Count an executor that is open, or -1 for one no longer; idle workers stay longer."""
        with self._changed:
            self._open_executors += executors
            self._put_off(self._idle)

    def lease(
        self,
        lease: Any,
        count: int,
        plan_number: int,
        origin: Origin,
        may_fork: Callable[[], bool],
    ) -> list[Worker]:
        """Lease workers, preferably ones that have opened this plan before.

        Args:
            lease: Identity of the lease.
            count: Number of workers.
            plan_number: Number of the plan that they will open.
            origin: Settings that they must have taken over.
            may_fork: Returns True if a new worker may be a fork made in the calling thread.

        Raises:
            OSError: No process could be started; those that were are idle.
            InterpreterEndsError: The interpreter is shutting down.
        """
        with self._changed:
            if self._ended:
                raise InterpreterEndsError("cannot start worker processes")
            self._await_draining(count)
            self._end_outdated(plan_number, origin)
            # A sorted copy: the garbage collector may return other workers during the sort.
            ordered = sorted(
                self._idle,
                key=lambda worker: (plan_number not in worker.opened_plans, not worker.used),
            )
            leased = ordered[:count]
            for worker in leased:
                self._idle.remove(worker)
                worker.lease = lease
            try:
                while len(leased) < count:
                    worker = Worker(origin, self._close_in_fork if may_fork() else None)
                    worker.lease = lease
                    self._workers.add(worker)
                    leased.append(worker)
            except BaseException:
                for worker in leased:
                    self.give_back(worker, lease)
                raise
            return leased

    def drain(self, worker: Worker) -> None:
        """Note that an executor needs a computing worker no more; its thread gives it back."""
        with self._changed:
            worker.draining, worker.deadline = True, time.monotonic() + _DRAIN_SECONDS

    def give_back(self, worker: Worker, lease: Any) -> None:
        """Make a worker idle, if it still has this lease."""
        with self._changed:
            if worker.lease is not lease:
                return
            worker.lease, worker.draining = None, False
            self._idle.append(worker)
            self._put_off([worker])
            if self._thread is None:
                self._thread = threading.Thread(target=self._tend, name=_NAME, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def bury(self, worker: Worker) -> str:
        """End a worker that only the caller uses; returns the cause of its end, for people."""
        cause = worker.end()
        with self._changed:
            self._workers.discard(worker)
            worker.lease = None
            worker.close()
            self._changed.notify_all()
        return cause

    def forget_closed_plans(self) -> None:
        """Have idle workers free the memory of plans that were closed.

        The pool's thread tells them, because the garbage collector may call this within a frame
        that is sending.
        """
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End all workers for good, and return when they are gone."""
        with self._changed:
            self._ended = True
            self._idle.clear()
            workers = list(self._workers)
        for worker in workers:
            worker.end()

    # --- with the lock held ---

    def _close_in_fork(self) -> None:
        """Close the trainer's ends of the other workers' sockets in a forked worker."""
        for worker in self._workers:
            worker.close()

    def _await_draining(self, count: int) -> None:
        """Wait for draining workers: most jobs end in milliseconds, and a start takes longer."""
        deadline = time.monotonic() + _AWAITED_SECONDS
        while len(self._idle) < count and any(worker.draining for worker in self._workers):
            if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                return

    def _end_outdated(self, plan_number: int, origin: Origin) -> None:
        """End idle workers that have died, differ from new ones, or may have edited modules."""
        new_to_it = {each for each in self._idle if plan_number not in each.opened_plans}
        edited = _latest_edit() if new_to_it else 0.0
        for worker in list(self._idle):
            fits = worker.origin == origin and not worker.has_ended
            if not fits or (worker in new_to_it and worker.started_at < edited):
                self._idle.remove(worker)
                self.bury(worker)

    def _put_off(self, workers: list[Worker]) -> None:
        wait = _KEPT_SECONDS if self._open_executors else _LINGER_SECONDS
        for worker in workers:
            worker.deadline = time.monotonic() + wait
        self._changed.notify_all()

    # --- in the pool's thread ---

    def _tend(self) -> None:
        """End idle workers whose time is up, and have the others forget closed plans."""
        while True:
            with self._changed:
                now = time.monotonic()
                for worker in list(self._idle):
                    if worker.opened_plans - open_plans:
                        worker.request(None)
                late = [worker for worker in self._idle if worker.deadline <= now]
                for worker in late:
                    self._idle.remove(worker)
                if not late:
                    if not self._idle:
                        self._thread = None
                        return
                    self._changed.wait(min(worker.deadline for worker in self._idle) - now)
            for worker in late:
                self.bury(worker)


def _latest_edit() -> float:
    """Return the time of the latest change of a module's file, installed ones excepted."""
    modules = [each for each in list(sys.modules.values()) if isinstance(each, types.ModuleType)]
    files = {vars(module).get("__file__") for module in modules}
    latest = 0.0
    for file in files:
        if isinstance(file, str) and not file.startswith(_INSTALLED):
            with contextlib.suppress(OSError):
                latest = max(latest, os.stat(file).st_mtime)
    return latest


_of_other_processes: list[Pool] = []
_pool = Pool()


def shared_pool() -> Pool:
    """Return the pool of this interpreter."""
    return _pool


def _forget() -> None:
    """Start over in a forked process: the workers belong to the parent."""
    global _pool
    _of_other_processes.append(_pool)
    _pool = Pool()


os.register_at_fork(after_in_child=_forget)
