"""One worker process, as seen by the pool and the executor that leases it.

It is a fresh interpreter, which doesn't import ``__main__`` and inherits no locks and no devices.
Of the trainer's descriptors it gets standard output, standard error, and one end of a socket, which
carries everything else. If the front end allows it, it is a fork of the trainer instead, which has
imported everything already. Only the executor that has the lease sends and receives.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import multiprocessing
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from adapters.engine.channel import Channel
from adapters.engine.serialization import Address, open_plans
from adapters.engine.worker import NAME, Origin, serve_fork
from adapters.failure import exit_cause

# Folder of this package; the trainer may have found it by a path that has changed since.
_FOLDER = str(Path(__file__).parents[2])
# ``sys.path`` first, as Python also looks for modules in the working directory until then.
_PROGRAM = """\
import sys
sys.path[:] = {path!r}
from adapters.engine.worker import serve
serve({socket})
"""
# Pytest changes it for each phase of a test.
_VOLATILE = {"PYTEST_CURRENT_TEST"}
# Time that ``end`` waits for a killed process.
_END_SECONDS = 10.0


def origin() -> Origin:
    """Return what a worker takes over from this process now."""
    key = bytes(multiprocessing.current_process().authkey)
    variables = {name: value for name, value in os.environ.items() if name not in _VOLATILE}
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    tracker = _resource_tracker_descriptor()
    return Origin(os.getpid(), [*sys.argv], key, variables, [*sys.path], folder, tracker)


class Worker:
    """One process.

    Args:
        origin: Settings that the process takes over.
        leave: Makes the worker a fork of this process, and is called there, to close descriptors
            that belong to the trainer. None starts a fresh interpreter.
    """

    def __init__(self, origin: Origin, leave: Callable[[], None] | None = None) -> None:
        self.origin = origin
        self.started_at = time.time()
        self._socket, there = socket.socketpair()
        # Used if the system or Python has no process descriptors: it is closed when the worker and
        # everything it forked have ended.
        self._sentinel, held = os.pipe()
        self._lock = threading.Lock()
        self._cause = ""
        self.pid = 0
        self._wait: Callable[[], int]
        try:
            try:
                self._start(there, held, leave)
            finally:
                there.close()
                os.close(held)
            with contextlib.suppress(AttributeError, OSError):  # Some builds of Python lack it.
                certain = os.pidfd_open(self.pid)
                os.close(self._sentinel)
                self._sentinel = certain
            self._channel = Channel(self._socket.fileno(), self._sentinel)
            with contextlib.suppress(OSError):  # Whoever sends it a job will notice.
                self._channel.send(pickle.dumps(origin))
        except BaseException:
            if self.pid:  # Ctrl-C came during the start.
                self.end()
            self.close()
            raise
        self.used = False
        """True if it has answered a request."""
        self.opened_plans: set[int] = set()
        """Numbers of the plans that it has opened, or will have at its next answer."""
        self.unanswered: collections.deque[Any] = collections.deque()
        """Tasks that it will answer, oldest first; None for one that only opens the plan."""
        self.lease: Any = None
        """Identity of the present lease; None if it is idle."""
        self.draining = False
        """True if its executor needs it no more, but it still computes."""
        self.deadline = 0.0
        """Time at which it is ended, if it is idle or draining."""

    def _start(self, there: socket.socket, held: int, leave: Callable[[], None] | None) -> None:
        """Start the process; sets its id, and a function to wait for its exit code."""
        if leave is not None:
            with contextlib.suppress(OSError):  # Too little memory for a copy of this process.
                self._fork(there.fileno(), leave)
                return
        # As multiprocessing has it: -O, -W, -X, -I and others hold for its processes, too.
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        path = [*map(str, self.origin.path), _FOLDER]
        program = _PROGRAM.format(path=path, socket=there.fileno())
        tracker = self.origin.tracker
        passed = [there.fileno(), held, *([] if tracker is None else [tracker])]
        with _ctrl_c_later():
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, *flags, "-c", program, NAME],
                stdin=subprocess.DEVNULL,
                env=self.origin.environment,
                pass_fds=passed,
            )
        self.pid, self._wait = process.pid, process.wait

    def _fork(self, there: int, leave: Callable[[], None]) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()  # Otherwise, the fork would write the same text again.
        # The trainer's signal handlers and finalizers must not run in the fork.
        collects = gc.isenabled()
        gc.disable()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if not self.pid:
                try:
                    self.close()
                    leave()
                    serve_fork(there)
                finally:
                    os._exit(1)
        finally:
            self._wait = functools.partial(_exit_code_of, self.pid)
            if collects:
                gc.enable()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # --- for the executor that has the lease ---

    def request(self, address: Address | None, task: bytes = b"") -> None:
        """Have the worker open a plan and do a task; without a plan, it only closes old ones.

        The caller adds to ``unanswered`` what identifies the task. A dead worker is noticed by who
        waits for the answer.
        """
        gone = self.opened_plans - open_plans
        self.opened_plans -= gone
        if address is not None:
            self.opened_plans.add(address.plan_number)
        with contextlib.suppress(OSError):
            self._channel.send(pickle.dumps((gone, address, task), 5))

    def receive(self, timeout_seconds: float) -> tuple[Any, bytes] | None:
        """Return the oldest unanswered task, and its answer; None if it isn't there in time.

        Raises:
            EOFError: The process has ended.
            OSError: The connection broke.
        """
        answer = self._channel.receive(timeout_seconds)
        return None if answer is None else (self.unanswered.popleft(), answer)

    # --- its end ---

    @property
    def has_ended(self) -> bool:
        """True if the process has ended, known or not."""
        return bool(self._cause) or _is_readable(self._sentinel, 0)

    def end(self) -> str:
        """End the process now, if it hasn't ended; returns the cause of its end, for people."""
        with self._lock:
            if not self._cause:
                with contextlib.suppress(ProcessLookupError):  # Waited for by the user's code.
                    os.kill(self.pid, signal.SIGKILL)
                ended = _is_readable(self._sentinel, _END_SECONDS)
                self._cause = exit_cause(self._wait() if ended else None)
            return self._cause

    def close(self) -> None:
        """Close the descriptors, which no other thread may use any more."""
        self._socket.close()
        if self._sentinel >= 0:
            os.close(self._sentinel)
            self._sentinel = -1


def _is_readable(descriptor: int, timeout_seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * timeout_seconds))


def _exit_code_of(pid: int) -> int:
    """Wait for a forked process's end, and return its exit code as ``Popen`` does."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # Waited for by the user's code.
        return 0


def _resource_tracker_descriptor() -> int | None:
    """Return the descriptor of Python's resource tracker; None if it doesn't run.

    Otherwise, a worker would start its own, which removes the trainer's shared memory when the
    worker ends. The only public way to the descriptor starts the tracker.
    """
    found = getattr(getattr(resource_tracker, "_resource_tracker", None), "_fd", None)
    return found if isinstance(found, int) else None


@contextlib.contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Block Ctrl-C in a process started here, until ``serve`` ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
