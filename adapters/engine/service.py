"""The main loop of a worker process: messages in, answers out, one at a time and in order.

    trainer                                      worker
    Origin -------------------------->           (after the module path, see ``process``)
            <------------------------- (UP,)             has come up
    (OPEN, Address, path, folder) --->
            <-------------- (OPENED, serial)             has imported what the plan needs
    (WORK, Address, Task) ----------->
            <------------- (ANSWER, answers)
    (FORGET, serial) ---------------->

Each message is a pickle on a socket of the worker's own. A worker ends when its socket does, or its
parent.
"""

from __future__ import annotations

import contextlib
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

from adapters.engine.parcel import Address
from adapters.engine.worker import forget, open_plan, work

UP, OPEN, OPENED, WORK, ANSWER, FORGET = range(6)
# A parent that was killed can't say goodbye; this is how often a worker that computes looks.
_PARENT_POLL_SECONDS = 1.0


class Origin(NamedTuple):
    """What a worker takes over from the process that it works for."""

    pid: int
    arguments: list[str]
    key: bytes
    """By which ``multiprocessing`` lets processes of a family talk to each other."""
    tracker: int | None
    """Descriptor of the process that looks after shared memory, if there is one."""

    def take_over(self) -> None:
        """Be a child of that process."""
        process = multiprocessing.current_process()
        process.name, process.authkey = "adapters-worker", self.key
        sys.argv[:] = self.arguments
        if self.tracker is not None:
            resource_tracker._resource_tracker._fd = self.tracker  # type: ignore[attr-defined]
        threading.Thread(target=self._leave_with_parent, daemon=True).start()

    def _leave_with_parent(self) -> None:
        while os.getppid() == self.pid:
            time.sleep(_PARENT_POLL_SECONDS)
        os._exit(1)


def serve(connection: Connection) -> None:
    """Work for the process at the other end until it hangs up."""
    # Ctrl-C reaches the whole process group; it is the trainer's to handle.
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
    # Nothing that the user's code, or a framework, has left running holds the process up.
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


@dataclass(frozen=True)
class _Surroundings:
    """Where the trainer looked for modules and files when it sent a plan."""

    path: list[str]
    folder: str
    environment: tuple[tuple[str, str], ...]

    def enter(self) -> None:
        """Look there, too."""
        sys.path[:] = self.path
        os.environ.update(self.environment)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)


_surroundings: dict[int, _Surroundings] = {}
"""Of each plan."""
_latest = -1
"""The plan whose surroundings were entered last."""


def _enter(serial: int) -> None:
    global _latest
    if serial != _latest and serial in _surroundings:
        _surroundings[serial].enter()
        _latest = serial


def _work(address: Address, task: Any) -> Any:
    _enter(address.name.serial)
    return work(address, task)


def _open(address: Address, path: list[str], folder: str) -> int:
    """Open a plan, in the trainer's surroundings.

    What goes wrong is told to whoever asks for a batch: the task tries again.
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
"""Source files of modules, outside of what is installed, and when they were changed."""


def _remember_modules() -> None:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file not in _seen and not file.startswith(_INSTALLED):
            _seen[file] = _changed(file)


def _forget_changed_modules() -> None:
    """Import anew what somebody has edited since, as a fresh process would; all of it, or none."""
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
