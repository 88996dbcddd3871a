"""One worker process, as seen by the pool and the executor that leases it.

It is a fresh interpreter, which doesn't import ``__main__`` and inherits no locks and no devices.
Of the trainer's descriptors it gets standard output, standard error, and one end of a socket, which
carries everything else. If the front end allows it, it is a fork of the trainer instead, which has
imported everything already.

``Worker.send`` may be called from any thread, and never waits: the socket's buffer has room for
several messages, as long ones lie in shared memory. Everything else belongs to the pool.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Protocol

from adapters.engine.memory import FileName, SharedFile
from adapters.engine.workermain import LENGTH, NAME, call_in_file, serve_fork

# Folder of this package; the trainer may have found it by a path that has changed since.
_FOLDER = str(Path(__file__).parents[2])
_PROGRAM = """\
import sys
sys.path[:] = [place for place in sys.path if place]  # Not modules of the working directory.
import pickle, socket
stream = socket.socket(fileno=int(sys.argv[1])).makefile("rwb")
sys.path[:], *facts = pickle.load(stream)
from adapters.engine.workermain import serve
serve(stream, *facts)
"""
# Length of a message from which it lies in shared memory: several shorter ones fit into the
# system's buffer of a socket, 208 KiB.
_MOST_SOCKET_BYTES = 2**14
_CHUNK_BYTES = 2**18
# Pytest changes it for each phase of a test.
_VOLATILE = {"PYTEST_CURRENT_TEST"}


@dataclass(eq=False)
class SentMessage:
    """A message to a worker that it will answer."""

    task: Any
    """None if a plan is to be opened."""
    plan: FileName
    """Name of the ``SerializedPlan``."""
    file: SharedFile | None = None
    """The message, if it is long."""


class Lessee(Protocol):
    """Executor that leases a worker; called from the pool's thread."""

    def answered(self, sent: SentMessage, answer: bytes) -> None:
        """Handle an answer to a worker's oldest message: it has opened a plan, or done a task."""

    def died(self, worker: Worker, unanswered: list[SentMessage]) -> None:
        """Handle the death of the worker, with the messages that it hasn't answered."""

    def may_fork(self) -> bool:
        """True if a new worker may be a fork of this process, made in the calling thread."""


class Worker:
    """One process, with the environment at the time of its start.

    Args:
        leave: Makes the worker a fork of this process, and is called there, to close descriptors
            that belong to the trainer. None starts a fresh interpreter.
    """

    def __init__(self, leave: Callable[[], None] | None = None) -> None:
        self.socket, there = socket.socketpair()
        for end in (self.socket, there):
            end.settimeout(None)  # The program may have set another default.
        self._received = bytearray()
        self.sentinel: int | None = None
        """Descriptor of the process; None if this Python, or Linux before 5.3, has none."""
        self._process: subprocess.Popen[bytes] | _Fork | None = None
        try:
            tracker = resource_tracker_descriptor()
            if leave is not None:
                try:
                    self._process = _Fork()
                    self._process.start(functools.partial(self._serve, there, leave))
                except OSError:  # There is too little memory for a copy of this process.
                    self._process = None
            if self._process is None:
                self._process = _spawn(there.fileno(), [] if tracker is None else [tracker])
            self.tracker = tracker
            there.close()
            self._introduce(tracker)
            self.socket.setblocking(False)
        except BaseException:
            if self._process is not None:  # Ctrl-C came during the start.
                self._process.kill()
                self._process.wait()
            self.close()
            raise
        finally:
            there.close()
        self.pid = self._process.pid
        self.environment = environment()
        self.started_at = time.time()
        with contextlib.suppress(AttributeError, OSError):
            self.sentinel = os.pidfd_open(self.pid)
        self.opened_plans: set[FileName] = set()
        """Plans that it has opened; if there are any, its start is over."""
        self.unanswered: collections.deque[SentMessage] = collections.deque()
        """Messages that it will answer, oldest first."""
        self.lessee: Lessee | None = None
        self.deadline = 0.0
        """Time at which a worker that isn't leased is ended."""
        self.killed = False
        """True if its end was requested; it can't be leased any more."""
        self.cause = ""
        """Cause of its death; empty while it isn't known to be dead."""
        self._lock = threading.Lock()

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

    def _introduce(self, tracker: int | None) -> None:
        """Send the process the facts about its parent, see ``workermain.take_over``."""
        key = bytes(multiprocessing.current_process().authkey)
        arguments = list(map(str, sys.argv))  # Plain, as the worker has no places of modules yet.
        facts = [*sys.path, _FOLDER], os.getpid(), arguments, key, tracker
        with contextlib.suppress(OSError):  # It has died; its sentinel reports that.
            self.socket.sendall(pickle.dumps(facts))

    def _serve(self, there: socket.socket, leave: Callable[[], None]) -> None:
        """Run the worker, in the forked process."""
        self.close()
        leave()
        serve_fork(there.makefile("rwb"))

    def send(self, sent: SentMessage, *message: Any) -> bool:
        """Send the worker a message; ``sent`` comes back with the answer.

        Returns:
            True if it was sent. If the worker is dead, it isn't, and ``sent`` isn't passed to
            ``died`` then.
        """
        data = pickle.dumps(message, 5)
        if len(data) > _MOST_SOCKET_BYTES:
            sent.file = SharedFile()
            sent.file.grow(len(data))
            with sent.file.map() as memory:
                memory[: len(data)] = data
            data = pickle.dumps((call_in_file, sent.file.name), 5)
        with self._lock:
            if self.dead:
                return False
            self.unanswered.append(sent)
            try:
                if self.socket.send(data) == len(data):
                    return True
                self.kill()
            except BlockingIOError:
                self.kill()  # It hasn't read for long.
            except OSError:
                pass
            self.unanswered.pop()
            return False

    def take(self) -> list[bytes]:
        """Return the complete answers received so far; empty if there is none.

        Raises:
            EOFError: There is none, and the worker has closed its end.
            OSError: The connection broke.
        """
        answers, received, ended = [], self._received, False
        try:
            while chunk := self.socket.recv(_CHUNK_BYTES):
                received += chunk
            ended = True
        except BlockingIOError:
            pass
        while len(received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(received)[0]
            if len(received) < end:
                break
            answers.append(bytes(memoryview(received)[LENGTH.size : end]))
            del received[:end]
        if ended and not answers:
            raise EOFError
        return answers

    def kill(self) -> None:
        """End the process now; the pool's thread notices its end."""
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
        self.socket.close()
        if self.sentinel is not None:
            os.close(self.sentinel)


def _spawn(stream: int, others: list[int]) -> subprocess.Popen[bytes]:
    """Start a worker process with these descriptors."""
    # As multiprocessing has it: -O, -W, -X, -I and others hold for its processes, too.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, "-c", _PROGRAM, str(stream), NAME]
    # The worker starts with Ctrl-C blocked, until ``serve`` ignores it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, pass_fds=[stream, *others]
        )
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
