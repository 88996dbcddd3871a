"""One worker process, as the pool and its crew see it.

A fresh interpreter, which does not import ``__main__`` and inherits no locks and no devices. Of the
trainer's descriptors it gets standard output, standard error, and one end of a socket, by which it
is told all else. ``Worker.send`` may come from any thread, and never waits; the rest is the pool's.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from adapters.engine.line import Line
from adapters.engine.service import Origin
from adapters.failure import exit_cause

NAME = "adapters-worker"
"""The last argument of a worker's command line."""
# Where this package lies, which the trainer may have found by a path that has changed since.
_FOLDER = str(Path(__file__).parents[2])
_PROGRAM = """\
import pickle, sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
sys.path[:] = pickle.loads(connection.recv_bytes())
from adapters.engine.service import serve
serve(connection)
"""
# Pytest changes it with each test, and phase of one.
_VOLATILE = {"PYTEST_CURRENT_TEST"}


class Call(NamedTuple):
    """What a worker was sent and will answer."""

    job: Any
    """None where it computes nothing."""
    done: Any
    """Whom its crew tells when it is done."""
    serial: int
    """Of the plan that it is about."""


class Lessee(Protocol):
    """The crew that has a worker; called from the pool's thread."""

    def opened(self, worker: Worker, serial: int) -> None:
        """The worker has what was sent under this serial number."""
        ...

    def answered(self, worker: Worker, call: Any, answer: bytes) -> None:
        """The worker has done its oldest call."""
        ...

    def died(self, worker: Worker, calls: list[Any]) -> None:
        """The worker is gone, and has left these calls undone."""
        ...

    def drained(self) -> None:
        """No worker computes anything for the crew any more, which has given them back."""
        ...


class Worker:
    """One process, as it was started: with the environment of that moment.

    Args:
        unsent: Called when a message could not be sent whole; the pool's thread sends the rest.
    """

    def __init__(self, unsent: Callable[[], None]) -> None:
        here, there = multiprocessing.Pipe()
        self.line = Line(here)
        # Read where the system has no descriptors of processes (before Linux 5.3): it ends when
        # the worker does, and all that the worker has forked.
        self.sentinel, held = os.pipe()
        try:
            tracker = _tracker()
            passed = [held, *([] if tracker is None else [tracker])]
            self._process = _started(there.fileno(), passed)
            self._introduce(tracker)
        except BaseException:
            self.line.close()
            os.close(self.sentinel)
            raise
        finally:
            there.close()
            os.close(held)
        self.pid = self._process.pid
        self.environment = environment()
        self.started = time.monotonic()
        self.used = False
        self._unsent = unsent
        with contextlib.suppress(OSError):
            certain = os.pidfd_open(self.pid)
            os.close(self.sentinel)
            self.sentinel = certain
        self.deaf = False
        """Whether it takes no more messages: dead, though that may not have been noticed yet."""
        self.up = False
        """Whether the process has come up, with what every worker imports."""
        self.serials: set[int] = set()
        """What it has opened."""
        self.calls: collections.deque[Call] = collections.deque()
        """What it has been sent and not answered, oldest first."""
        self.lessee: Lessee | None = None
        self.draining: list[Lessee] = []
        self.deadline = 0.0
        """When a worker that is idle or draining is ended."""
        self.cause = ""
        self._lock = threading.Lock()

    def _introduce(self, tracker: int | None) -> None:
        """Tell the process where it comes from."""
        key = bytes(multiprocessing.current_process().authkey)
        origin = Origin(os.getpid(), sys.argv, key, tracker)
        with contextlib.suppress(OSError):  # It has died, as its sentinel will say.
            self.line.put(pickle.dumps([*sys.path, _FOLDER]))
            self.line.put(pickle.dumps(origin))

    def send(self, call: Any, *message: Any) -> bool:
        """Have the worker do something; ``call`` comes back with the answer.

        Returns:
            Whether it could be sent; to a dead worker it can't, and ``call`` comes back by ``died``
            only if it could.
        """
        data = pickle.dumps(message, 5)
        with self._lock:
            if self.cause:
                return False
            if call is not None:
                self.calls.append(call)
            try:
                self.line.put(data)
            except OSError:
                self.deaf = True
                if call is not None:
                    self.calls.pop()
                return False
            if self.line.is_full:
                self._unsent()
        return True

    def send_rest(self) -> None:
        """Send on, once the socket takes more; a dead worker is noticed elsewhere."""
        with self._lock, contextlib.suppress(OSError):
            if not self.cause:
                self.line.flush()

    @property
    def awaited_serials(self) -> set[int]:
        """Of the plans that it is at, or will be."""
        return {call.serial for call in tuple(self.calls)}

    def kill(self) -> None:
        """End the process now; that it is gone, the pool's thread will notice."""
        with contextlib.suppress(ProcessLookupError):
            if not self.cause:
                os.kill(self.pid, signal.SIGKILL)

    def bury(self) -> list[Call]:
        """Take note of the process's end; what it leaves undone."""
        exitcode = self._process.wait()  # It has ended already.
        with self._lock:
            self.cause, self.deaf = exit_cause(exitcode), True
            left, self.calls = list(self.calls), collections.deque()
        self.line.close()
        os.close(self.sentinel)
        return left


def _started(socket: int, others: list[int]) -> subprocess.Popen[bytes]:
    """A worker process with these descriptors."""
    command = [sys.executable, "-c", _PROGRAM, str(socket), NAME]
    passed = [socket, *others]
    with _ctrl_c_later():
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=passed)  # noqa: S603


def _tracker() -> int | None:
    """Descriptor of Python's process that looks after shared memory; None if there is none.

    A worker has one of its own otherwise, which takes shared memory of the trainer's away when the
    worker ends. The descriptor has no public name that doesn't start that process.
    """
    found = getattr(getattr(resource_tracker, "_resource_tracker", None), "_fd", None)
    return found if isinstance(found, int) else None


@contextlib.contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Have what starts here hear of Ctrl-C only when it ignores it, which is in ``serve``."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def environment() -> dict[str, str]:
    """What a new process would start with, as far as it matters to one."""
    return {name: value for name, value in os.environ.items() if name not in _VOLATILE}
