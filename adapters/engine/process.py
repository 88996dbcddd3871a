"""One worker process, as the pool and its crew see it.

Fresh processes of loky's kind: they don't import ``__main__``, and inherit neither locks nor
devices. ``Worker.send`` may come from any thread, and never waits; the rest is the pool's.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker as python_tracker
from typing import Any, NamedTuple, Protocol

from loky.backend import resource_tracker as loky_tracker
from loky.backend.process import LokyProcess

from adapters.engine.line import Line
from adapters.engine.service import serve
from adapters.failure import exit_cause

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
        self.process = LokyProcess(target=serve, args=(there, os.getpid()), name="adapters-worker")
        try:
            with _ctrl_c_later():
                self.process.start()
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
        self.pid: int = self.process.pid
        self.environment = environment()
        self.started = time.monotonic()
        self.used = False
        self.line = Line(here)
        self._unsent = unsent
        # A process's own descriptor, where the system has those, tells of its end for certain.
        try:
            self.sentinel = os.pidfd_open(self.pid)
            self._owns_sentinel = True
        except (AttributeError, OSError):
            self.sentinel = self.process.sentinel
            self._owns_sentinel = False
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
        exitcode = self.process.exitcode
        with self._lock:
            self.cause, self.deaf = exit_cause(exitcode), True
            left, self.calls = list(self.calls), collections.deque()
        self.line.close()
        self.process.join(0)
        if self._owns_sentinel:
            os.close(self.sentinel)
        return left


@contextlib.contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """What starts here hears of Ctrl-C only when it can do with it, which is in ``serve``."""
    for module in (loky_tracker, python_tracker):
        module.ensure_running()  # Else it starts meanwhile, and lets Ctrl-C in again.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def environment() -> dict[str, str]:
    """What a new process would start with, as far as it matters to one."""
    return {name: value for name, value in os.environ.items() if name not in _VOLATILE}
