"""Main loop of a worker process: messages in, answers out, one at a time and in order.

    trainer                                      worker
    Origin -------------------------->           (after the module path, see ``process``)
            <------------------------- (UP,)             has started
    (OPEN, Address, path, folder) --->
            <-------------- (OPENED, serial)             has imported what the plan needs
    (WORK, Address, Task) ----------->
            <------------- (ANSWER, answers)
    (FORGET, serial) ---------------->

Each message is a pickle on the worker's own socket. A worker ends when its socket is closed, or
when its parent ends.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from adapters.engine.serialization import Address
from adapters.engine.worker import forget, open_plan, work

NAME = "adapters-worker"
"""Name of a worker, and last argument of its command line."""
UP, OPEN, OPENED, WORK, ANSWER, FORGET = range(6)
# Interval at which a computing worker checks that its parent is alive; it may have been killed.
_PARENT_POLL_SECONDS = 1.0


class Origin(NamedTuple):
    """Settings that a worker takes over from its parent."""

    pid: int
    arguments: list[str]
    key: bytes
    """Key by which ``multiprocessing`` authenticates processes of a family."""
    tracker: int | None
    """Descriptor of the resource tracker, if it runs."""

    def take_over(self) -> None:
        """Apply the settings, and watch the parent."""
        process = multiprocessing.current_process()
        process.name, process.authkey = NAME, self.key
        sys.argv[:] = self.arguments
        if self.tracker is not None:
            resource_tracker._resource_tracker._fd = self.tracker  # type: ignore[attr-defined]
        threading.Thread(target=self._leave_with_parent, daemon=True).start()

    def _leave_with_parent(self) -> None:
        while os.getppid() == self.pid:
            time.sleep(_PARENT_POLL_SECONDS)
        os._exit(1)


def serve_fork(connection: Connection) -> None:
    """Serve in a fork of the trainer, which leaves the trainer's signals, input and garbage."""
    gc.freeze()  # Finalizers of the trainer's objects must not run here.
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    np.random.seed()  # ``random`` does that by itself.
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(NAME)
    sys.path[:] = pickle.loads(connection.recv_bytes())
    serve(connection)


def serve(connection: Connection) -> None:
    """Answer the process at the other end until it closes the connection."""
    # Ctrl-C reaches the whole process group; the trainer handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        pickle.loads(connection.recv_bytes()).take_over()
        connection.send_bytes(pickle.dumps((UP,)))
        while True:
            kind, *content = pickle.loads(connection.recv_bytes())
            if kind == FORGET:
                _surroundings.pop(content[0], None)
                forget(*content)
                continue
            answer = (OPENED, _open(*content)) if kind == OPEN else (ANSWER, _work(*content))
            connection.send_bytes(pickle.dumps(answer, 5))
    except (EOFError, OSError):
        pass
    # Threads left by user code or a framework must not delay the exit.
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


@dataclass(frozen=True)
class _Surroundings:
    """Places where the trainer looked for modules and files when it sent a plan."""

    path: list[str]
    folder: str
    environment: tuple[tuple[str, str], ...]

    def enter(self) -> None:
        """Look for modules and files in the same places."""
        sys.path[:] = self.path
        os.environ.update(self.environment)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)


_surroundings: dict[int, _Surroundings] = {}
"""Places of each plan, by serial number."""
_latest = -1
"""Plan whose places were entered last."""


def _enter(serial: int) -> None:
    global _latest
    if serial != _latest and serial in _surroundings:
        _surroundings[serial].enter()
        _latest = serial


def _work(address: Address, task: Any) -> Any:
    _enter(address.name.serial)
    return work(address, task)


def _open(address: Address, path: list[str], folder: str) -> int:
    """Open a plan, with the trainer's places of modules and files.

    Errors are suppressed: the next task tries again, and reports them to the reader.
    """
    serial = address.name.serial
    _surroundings[serial] = _Surroundings(path, folder, address.environment)
    _enter(serial)
    with contextlib.suppress(BaseException):
        _forget_changed_modules()
        open_plan(address)
    _remember_modules()
    return serial


_seen: dict[str, Any] = {}
"""Source files of modules, without installed ones, and their modification times."""


def _remember_modules() -> None:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file not in _seen and not file.startswith(_INSTALLED):
            _seen[file] = _changed(file)


def _forget_changed_modules() -> None:
    """Drop the user's modules if any was edited since, so that they are imported again."""
    if all(_changed(file) == then for file, then in _seen.items()):
        return
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file in _seen and not name.startswith("adapters") and name != "__main__":
            del sys.modules[name]
    _seen.clear()


def _changed(file: str) -> int | None:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return None


_INSTALLED = (sys.prefix, sys.base_prefix)
