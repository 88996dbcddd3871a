"""Pool of worker processes, shared by all sequences and loaders of the interpreter.

    idle --lease--> leased --open--> ready for its executor --send--> ... --answer--> ...
      ^                |                                                               |
      +-- give_back ---+---------------------------------------------------------------+

An executor leases workers and gives them back. A worker that is still computing then is drained
first, and idle after its last answer. Idle workers are kept for a while, so that the next ``fit``,
``evaluate`` or loader starts none. See ``workerprocess`` for how they start.

``lease``, ``give_back`` and ``Worker.send`` may be called from any thread and don't block, except
for the system call that starts a process. One thread of the pool reads the workers' messages and
calls their executors, without a lock; it ends with the last worker. The end of a process shows its
death, if Linux has a descriptor of it, not the end of its socket, which a child may hold open.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from multiprocessing import connection
from typing import Any

from adapters.engine.memory import FileName
from adapters.engine.tasks import InterpreterEndsError
from adapters.engine.workerprocess import Lessee, Worker, environment, resource_tracker_descriptor

log = logging.getLogger("adapters")

# Lifetime of an idle worker: short if no sequence or loader with worker processes is open, long if
# one is, such as a loader between two passes.
_LINGER_SECONDS = 2.0
_KEPT_SECONDS = 60.0
# Time for a worker that was given back to finish its task.
_DRAIN_SECONDS = 0.8
# Time that the next executor waits for such workers.
_AWAITED_SECONDS = 0.1
# Time for a worker that has closed its end of the socket to end.
_EXIT_SECONDS = 0.2
# Time that ``close`` waits for killed processes.
_END_SECONDS = 10.0
_INSTALLED = sys.prefix, sys.base_prefix


class Pool:
    """Worker processes of this interpreter."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._one_is_idle = threading.Condition(self._lock)
        self._workers: set[Worker] = set()
        self._lessees: set[int] = set()
        self._ended = False
        self._thread: threading.Thread | None = None
        self._wake = -1, -1
        """Pipe that wakes the thread."""
        self.start_seconds = 0.0
        """Time from the latest process's start until it could be given work; 0 if none started."""

    @property
    def idle(self) -> list[Worker]:
        """Workers that can be leased."""
        return [worker for worker in list(self._workers) if worker.is_idle]

    def lease(self, lessee: Lessee, count: int, plan: FileName) -> list[Worker]:
        """Lease workers to an executor, preferably ones that have opened this plan before.

        Raises:
            OSError: No process could be started; those that were are idle.
            InterpreterEndsError: The interpreter is shutting down.
        """
        with self._lock:
            if self._ended:
                raise InterpreterEndsError("cannot start worker processes")
            self._lessees.add(id(lessee))
            self._await_draining(count)
            self._end_the_outdated(plan)
            leased = sorted(
                self.idle,
                key=lambda worker: (plan in worker.opened_plans, bool(worker.opened_plans)),
                reverse=True,
            )[:count]
            for worker in leased:
                worker.lessee = lessee
            try:
                while len(leased) < count:
                    leased.append(self._start(lessee))
            except BaseException:
                self.give_back(lessee, leased)
                raise
            return leased

    def give_back(
        self, lessee: Lessee, workers: list[Worker] | None = None, for_good: bool = False
    ) -> None:
        """Take back these workers, or all; one that has a task gets some time to finish it.

        Idle workers are kept longer while there are lessees that haven't given back for good.
        """
        with self._lock:
            if for_good:
                self._lessees.discard(id(lessee))
            for worker in list(self._workers) if workers is None else workers:
                if worker.lessee is lessee:
                    worker.deadline = time.monotonic() + _DRAIN_SECONDS
                    worker.lessee = None
            self._put_off(self.idle)
            self._notify()

    def close(self) -> None:
        """End all workers for good, and return when they are gone."""
        with self._lock:
            self._ended = True
            thread = self._thread
            for worker in self._workers:
                worker.kill()
            self._notify()
        if thread is not None and thread.ident != threading.get_ident():
            thread.join(_END_SECONDS)

    # --- with the lock held ---

    def _start(self, lessee: Lessee) -> Worker:
        if self._thread is None:  # First: a system without another thread gets no process.
            self._wake = os.pipe()
            os.set_blocking(self._wake[1], False)
            self._thread = threading.Thread(target=self._watch, name="adapters-pool", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._end()
                raise
        worker = Worker(self._close_in_fork if lessee.may_fork() else None)
        worker.lessee = lessee
        self._workers.add(worker)
        self._notify()
        return worker

    def _close_in_fork(self) -> None:
        """Close the pool's descriptors in a forked worker."""
        for worker in self._workers:
            worker.close()
        self._end()

    def _end(self) -> None:
        """Clean up after the last worker."""
        for descriptor in self._wake:
            os.close(descriptor)
        self._wake = -1, -1
        self._thread = None

    def _await_draining(self, count: int) -> None:
        """Wait for draining workers: most tasks end in milliseconds, and a start takes longer."""
        deadline = time.monotonic() + _AWAITED_SECONDS
        while sum(bool(worker.opened_plans) for worker in self.idle) < count and any(
            worker.lessee is None and worker.is_busy for worker in self._workers
        ):
            if not self._one_is_idle.wait(max(0.0, deadline - time.monotonic())):
                return

    def _end_the_outdated(self, plan: FileName) -> None:
        """End idle workers that differ from new ones in environment, resource tracker or modules.

        One that has opened the plan keeps its modules.
        """
        now = environment(), resource_tracker_descriptor()
        idle = self.idle
        others = [worker for worker in idle if plan not in worker.opened_plans]
        edited = _last_edit() if others else 0.0
        for worker in idle:
            stale = worker in others and worker.started_at < edited
            if stale or (worker.environment, worker.tracker) != now:
                worker.kill()

    def _put_off(self, workers: list[Worker]) -> None:
        wait = _KEPT_SECONDS if self._lessees else _LINGER_SECONDS
        for worker in workers:
            worker.deadline = time.monotonic() + wait

    def _notify(self) -> None:
        if self._thread is not None and self._thread.ident != threading.get_ident():
            with contextlib.suppress(OSError):  # The pipe is full, or the thread has ended.
                os.write(self._wake[1], b".")

    # --- in the pool's thread ---

    def _watch(self) -> None:
        while True:
            with self._lock:
                now, workers = time.monotonic(), list(self._workers)
                unused = [each for each in workers if each.lessee is None and not each.killed]
                for worker in unused:
                    if worker.deadline <= now:
                        worker.kill()
                if not workers:
                    self._end()
                    return
            late = [worker.deadline - now for worker in unused if not worker.killed]
            sources: list[Any] = [self._wake[0]]
            for worker in workers:
                sources += [each for each in (worker.socket, worker.sentinel) if each is not None]
            ready = connection.wait(sources, min(late, default=None))
            if self._wake[0] in ready:
                os.read(self._wake[0], 4096)
            for worker in workers:
                try:
                    if worker.socket in ready or worker.sentinel in ready:
                        self._look_at(worker, worker.sentinel in ready)
                except BaseException:
                    log.exception("a worker process could not be attended to")

    def _look_at(self, worker: Worker, dead: bool) -> None:
        try:
            while answers := worker.take():
                for answer in answers:
                    self._hear(worker, answer)
                if not dead:
                    break
        except (EOFError, OSError):
            if not dead:
                # Its end follows, unless the worker has only closed the socket. The cause of its
                # death is its own if it ends by itself.
                connection.wait([] if worker.sentinel is None else [worker.sentinel], _EXIT_SECONDS)
                worker.kill()
                dead = worker.sentinel is None
        if dead:
            with self._lock:
                left = worker.bury()
                self._workers.discard(worker)
                lessee, worker.lessee = worker.lessee, None
            if lessee is not None:
                lessee.died(worker, left)

    def _hear(self, worker: Worker, answer: bytes) -> None:
        with self._lock:
            sent = worker.unanswered.popleft()
            if sent.task is None:
                if not worker.opened_plans:
                    self.start_seconds = time.time() - worker.started_at
                worker.opened_plans.add(sent.plan)
            lessee = worker.lessee
            if worker.is_idle:
                self._put_off([worker])
                self._one_is_idle.notify_all()
        if lessee is not None:
            lessee.answered(sent, answer)


def _last_edit() -> float:
    """Time of the latest change of a module's file, except for installed ones and the script."""
    latest = 0.0
    for name, module in list(sys.modules.items()):
        # Not getattr, which would import some lazy modules.
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and name != "__main__" and not file.startswith(_INSTALLED):
            with contextlib.suppress(OSError):
                latest = max(latest, os.stat(file).st_ctime)
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
