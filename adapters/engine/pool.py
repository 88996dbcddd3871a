"""Pool of worker processes, shared by all sequences and loaders of the interpreter.

    idle --lease--> leased --open--> ready for its executor --send--> ... --answer--> ...
      ^                |                                                               |
      +-- give_back ---+---------------------------------------------------------------+

An executor leases workers and gives them back. A worker that is still computing then is drained
first, and idle after its last answer. Idle workers are kept for a while, so that the next ``fit``,
``evaluate`` or loader starts none.

A worker is a fresh interpreter, which doesn't import ``__main__`` and inherits no locks and no
devices. Of the trainer's descriptors it gets standard output, standard error, and one end of a
socket. If the front end allows it, it is a fork of the trainer instead, which has imported
everything already.

``lease``, ``give_back`` and ``Worker.send`` may be called from any thread and don't block, except
for the system call that starts a process. Each worker has a thread here, which reads its answers
and calls its executor, without a lock. The end of a process shows its death, if Linux has a
descriptor of it, not the end of its socket, which a child may hold open.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

from adapters.engine.memory import FileName
from adapters.engine.tasks import InterpreterEndsError
from adapters.engine.workermain import NAME, receive, send, serve_fork

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
# Time after which a worker's thread notices that the worker was given back.
_POLL_SECONDS = 0.5
_INSTALLED = sys.prefix, sys.base_prefix
# Folder of this package; the trainer may have found it by a path that has changed since.
_FOLDER = str(Path(__file__).parents[2])
_PROGRAM = """\
import sys
sys.path[:] = [place for place in sys.path if place]  # Not modules of the working directory.
import pickle
sys.path[:] = pickle.load(sys.stdin.buffer)
from adapters.engine.workermain import serve
serve(*pickle.load(sys.stdin.buffer))
"""
# Pytest changes it for each phase of a test.
_VOLATILE = {"PYTEST_CURRENT_TEST"}


class SentMessage(NamedTuple):
    """A message to a worker that it will answer."""

    task: Any
    """None if a plan is to be opened."""
    plan: FileName
    """Name of the ``SerializedPlan``."""


class Worker:
    """One process, with the environment at the time of its start.

    Args:
        lessee: The executor that leases it. Its ``answered`` and ``died`` are called.
        others: The other workers, whose descriptors a fork closes.
    """

    _process: subprocess.Popen[bytes] | _Fork | None = None

    def __init__(self, lessee: Any, others: Iterable[Worker]) -> None:
        self.lessee: Any = lessee
        """None if it isn't leased."""
        self.environment, self.tracker = environment(), resource_tracker_descriptor()
        self.started_at = time.time()
        self.sentinel: list[int] = []
        """Descriptor of the process, unless this Python, or Linux before 5.3, has none."""
        self.opened_plans: set[FileName] = set()
        """Plans that it has opened; if there are any, its start is over."""
        self.unanswered: collections.deque[SentMessage] = collections.deque()
        """Messages that it will answer, oldest first."""
        self.deadline = 0.0
        """Time at which a worker that isn't leased is ended."""
        self.killed = False
        """True if its end was requested; it can't be leased any more."""
        self.cause = ""
        """Cause of its death; empty while it isn't known to be dead."""
        self._lock = threading.Lock()
        self.channel, there = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self.channel.setblocking(False)
        there.setblocking(True)  # The program may have set another default.
        try:
            self._start(there, others)
        except BaseException:
            if self._process is not None:  # Ctrl-C came during the start.
                self._process.kill()
                self._process.wait()
            self.close()
            raise
        finally:
            there.close()

    def _start(self, there: socket.socket, others: Iterable[Worker]) -> None:
        # See ``workermain.take_over``. Plain, as the worker has no places of modules yet.
        arguments = list(map(str, sys.argv))
        key = bytes(multiprocessing.current_process().authkey)
        facts = there.fileno(), os.getpid(), arguments, key, self.tracker
        if self.lessee.may_fork():
            try:
                self._process = _Fork()
                self._process.start(functools.partial(self._serve, facts, others))
            except OSError:  # There is too little memory for a copy of this process.
                self._process = None
        if self._process is None:
            self._process = _spawn(facts)
        self.pid = self._process.pid
        with contextlib.suppress(AttributeError, OSError):
            self.sentinel.append(os.pidfd_open(self.pid))

    def _serve(self, facts: tuple[Any, ...], others: Iterable[Worker]) -> None:
        """Run the worker, in the forked process."""
        for worker in (self, *others):
            worker.close()
        serve_fork(*facts)

    @property
    def dead(self) -> bool:
        """True if its death has been noticed."""
        return bool(self.cause)

    @property
    def is_busy(self) -> bool:
        """True if it has a task."""
        return any(sent.task is not None for sent in tuple(self.unanswered))

    @property
    def is_idle(self) -> bool:
        """True if it can be leased."""
        return self.lessee is None and not (self.is_busy or self.killed or self.dead)

    def send(self, sent: SentMessage, *message: Any) -> bool:
        """Send the worker a message; ``sent`` comes back with the answer.

        Returns:
            True if it was sent. If the worker is dead, it isn't, and ``sent`` isn't passed to
            ``died`` then.
        """
        data = pickle.dumps(message, 5)
        with self._lock:
            if self.dead:
                return False
            self.unanswered.append(sent)
            try:
                send(self.channel, data)
            except (BlockingIOError, ConnectionError):  # It hasn't read for long, or has ended.
                self.unanswered.pop()
                self.kill()
                return False
            except OSError:
                self.unanswered.pop()
                raise
            return True

    def kill(self) -> None:
        """End the process now; its thread notices its end."""
        with contextlib.suppress(ProcessLookupError):
            if not self.dead:
                os.kill(self.pid, signal.SIGKILL)
        self.killed = True  # Not before, as Ctrl-C may come in between.

    def bury(self) -> list[SentMessage]:
        """Record the process's end; returns the unanswered messages."""
        assert self._process is not None
        with contextlib.suppress(OSError):  # Processes that user code has started.
            os.killpg(self.pid, signal.SIGTERM)
        exitcode = self._process.wait()  # It has ended already.
        with self._lock:
            self.cause = _cause(exitcode)
            left, self.unanswered = list(self.unanswered), collections.deque()
        self.close()
        return left

    def close(self) -> None:
        """Close its descriptors."""
        self.channel.close()
        while self.sentinel:
            os.close(self.sentinel.pop())


def _spawn(facts: tuple[Any, ...]) -> subprocess.Popen[bytes]:
    """Start a worker process, which gets these facts, the descriptor of its socket first."""
    # As multiprocessing has it: -O, -W, -X, -I and others hold for its processes, too.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, "-c", _PROGRAM, NAME]
    descriptors = [each for each in (facts[0], facts[-1]) if each is not None]
    # The worker starts with Ctrl-C blocked, until ``serve`` ignores it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with open(os.memfd_create("loader-adapters"), "w+b") as file:
            pickle.dump([*sys.path, _FOLDER], file)
            pickle.dump(facts, file)
            file.seek(0)
            return subprocess.Popen(command, stdin=file, pass_fds=descriptors)  # noqa: S603
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Fork:
    """Fork of this process, with the methods of ``Popen`` that a worker needs."""

    def __init__(self) -> None:
        self._pids: list[int] = []

    def start(self, run: Callable[[], None]) -> None:
        """Fork this process, and call ``run`` in the fork, which ends afterwards."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()  # Otherwise, the fork would write the same text again.
        # The trainer's signal handlers and finalizers must not run in the fork.
        collects = gc.isenabled()
        gc.disable()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            # One C call, because Ctrl-C may interrupt between any two Python steps.
            self._pids.extend(itertools.starmap(os.fork, [()]))
            if not self.pid:
                try:
                    run()
                finally:
                    os._exit(1)
        finally:
            if collects:
                gc.enable()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._pids[0]

    def kill(self) -> None:
        """End the process now, if it has started."""
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait(self) -> int | None:
        """Wait for the process's end, and return its exit code; None if it can't be known."""
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except (ChildProcessError, IndexError):  # Waited for by the user's code, or not started.
            return None


def _cause(exitcode: int | None) -> str:
    """Describe how a process ended."""
    if exitcode is None:
        return "ended, in an unknown way"
    if exitcode >= 0:
        return f"exited with code {exitcode}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exitcode).name} (signal {-exitcode})"
    return f"was killed by signal {-exitcode}"


def resource_tracker_descriptor() -> int | None:
    """Return the descriptor of Python's resource tracker; None if it doesn't run.

    Otherwise, a worker would start its own, which removes the trainer's shared memory when the
    worker ends. The only public way to the descriptor starts the tracker.
    """
    found = getattr(getattr(resource_tracker, "_resource_tracker", None), "_fd", None)
    return found if isinstance(found, int) else None


def environment() -> dict[str, str]:
    """Environment that a new process would start with, without volatile variables."""
    return {name: value for name, value in os.environ.items() if name not in _VOLATILE}


class Pool:
    """Worker processes of this interpreter."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._one_is_idle = threading.Condition(self._lock)
        self._workers: dict[Worker, threading.Thread] = {}
        """Workers, and the threads that attend to them."""
        self._lessees: set[int] = set()
        self._ended = False
        self.start_seconds = 0.0
        """Time from the latest process's start until it could be given work; 0 if none started."""

    @property
    def idle(self) -> list[Worker]:
        """Workers that can be leased."""
        return [worker for worker in list(self._workers) if worker.is_idle]

    def lease(self, lessee: Any, count: int, plan: FileName) -> list[Worker]:
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
        self, lessee: Any, workers: list[Worker] | None = None, for_good: bool = False
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

    def close(self) -> None:
        """End all workers for good, and return when they are gone."""
        with self._lock:
            self._ended = True
            threads = list(self._workers.values())
            for worker in self._workers:
                worker.kill()
        deadline = time.monotonic() + _END_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # --- with the lock held ---

    def _start(self, lessee: Any) -> Worker:
        worker = Worker(lessee, self._workers)
        thread = threading.Thread(
            target=self._attend, args=(worker,), name="adapters-pool", daemon=True
        )
        try:
            self._workers[worker] = thread
            thread.start()
        except BaseException:
            if not thread.is_alive():  # The system has no more threads.
                worker.kill()
                self._remove(worker)
            raise
        return worker

    def _remove(self, worker: Worker) -> list[SentMessage]:
        """Remove a worker that has ended; returns the messages that it hasn't answered."""
        self._workers.pop(worker, None)
        return worker.bury()

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

    # --- in the worker's thread ---

    def _attend(self, worker: Worker) -> None:
        """Pass on the worker's answers until it ends; end it if it isn't leased for long."""
        while True:
            with self._lock:
                left = _POLL_SECONDS
                if worker.lessee is None:
                    left = min(left, worker.deadline - time.monotonic())
                    if left <= 0 and not worker.killed:
                        worker.kill()
            sources: list[Any] = [worker.channel, *worker.sentinel]
            ready = connection.wait(sources, None if worker.killed else left)
            try:
                if worker.channel in ready:
                    self._hear(worker, receive(worker.channel))
                elif ready:
                    break
            except Exception:  # Its end of the socket is closed.
                break
        # Its end follows, unless it has only closed the socket. The cause of its death is its own
        # if it ends by itself.
        connection.wait(worker.sentinel, _EXIT_SECONDS)
        worker.kill()
        with self._lock:
            unanswered = self._remove(worker)
            lessee, worker.lessee = worker.lessee, None
        if lessee is not None:
            lessee.died(worker, unanswered)

    def _hear(self, worker: Worker, answer: Any) -> None:
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
            try:
                lessee.answered(sent, answer)
            except BaseException:
                log.exception("the answer of a worker process could not be taken")


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
