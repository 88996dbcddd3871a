"""Worker process: its main loop, and its computation of batches.

Messages come in and answers go out, one at a time and in order:

    trainer                                        worker
    open_plan, FileName, surroundings ----------->
            <------------------------------- None  has imported what the plan needs
    work, FileName, Places ---------------------->
            <--------------------------- answers

Each is a pickle on the worker's own socket, which keeps messages apart. A message is a function of
this module and its arguments, and computes one task; the batches themselves are written to slots.
Plans, and mappings of slots, are kept until their executor closes their files.

A worker ends, with the processes that it has started, when its socket is closed or its parent ends.
It imports no framework, unless the user's code does.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from typing import Any

import numpy as np

from adapters import user_code
from adapters.batch.plan import BatchKey, Plan
from adapters.clock import Spent
from adapters.engine.memory import FileName, SlotWriter, close_inherited, is_open
from adapters.engine.serialization import load_plan
from adapters.errors import note, noted
from adapters.failure import Failure, dumps
from adapters.structure import flatten


@dataclass(frozen=True)
class Written:
    """A batch in a slot."""

    treedef: Any
    leaves: list[Any]
    """Each a ``ArrayInSlot`` in the slot, or a value that can't be shared, such as a string."""
    skipped: int
    spent: Spent


Answer = Written | Failure
Places = list[tuple[BatchKey, FileName]]
"""Batches to compute, each into its slot."""


def work(plan: FileName, places: Places) -> list[bytes]:
    """Compute some batches; returns their pickled answers."""
    opened = _open_plans[plan]
    opened.enter()
    answers = []
    for key, slot in places:
        try:
            answer: Answer = opened.compute(key, slot)
        except BaseException as error:  # Raised where the batch is read.
            answer = Failure.of(error)
        # Pickled now, as the next batch may change what this one has outside of its slot.
        answers.append(_pickled(answer))
    return answers


def _pickled(answer: Answer) -> bytes:
    for pickled in (functools.partial(pickle.dumps, protocol=5), dumps):
        try:
            return pickled(answer)
        except Exception as error:
            obstacle = error
    note(obstacle, "the batch holds something that can't be sent from a worker process")
    return pickle.dumps(Failure.of(obstacle))


_NOT_OPENED = (
    "a worker process could not open what was pickled of the data set or a transform: its class "
    "may need __getstate__ and __setstate__, or a __getattr__ that raises AttributeError for names "
    "that begin with __"
)


@dataclass(eq=False)
class _OpenPlan:
    """A plan that was sent here, and the slots of its batches, which stay mapped."""

    name: FileName
    path: list[str]
    """Places where the trainer looked for modules."""
    folder: str
    """The trainer's folder, which may have been deleted."""
    environment: dict[str, str]
    """Variables to set."""
    slots: dict[FileName, SlotWriter] = field(default_factory=dict)
    finalized: list[Any] = field(default_factory=list)
    """Objects in the plan whose ``__del__`` is the user's."""

    def enter(self) -> None:
        """Look for modules and files where the trainer did when it sent the plan; drop others."""
        global _latest
        if self is not _latest:
            _latest = self
            sys.path[:] = self.path
            os.environ.update(self.environment)
            with contextlib.suppress(OSError):
                os.chdir(self.folder)
        _drop_closed(self.name)

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan, which is opened once."""
        global opens_plan
        opens_plan = True
        try:
            with noted(_NOT_OPENED):
                plan: Plan
                plan, self.finalized = load_plan(self.name)
                return plan
        finally:
            opens_plan = False

    def compute(self, key: BatchKey, name: FileName) -> Written:
        """Compute a batch into the slot with this name."""
        started, slot = Spent.now(), self._slot(name)
        slot.start_over()
        assembled = self.plan.batch(key, slot.allocate)
        leaves, treedef = flatten(assembled.batch)
        for number, leaf in enumerate(leaves):
            # Other array classes hold more than numbers, such as a mask.
            if type(leaf) in (np.ndarray, np.memmap) and not leaf.dtype.hasobject:
                leaves[number] = slot.put(leaf)
        return Written(treedef, leaves, assembled.skipped, started.until_now())

    def _slot(self, name: FileName) -> SlotWriter:
        """Return the slot with this name, mapped; unmap those that the trainer has closed."""
        if name not in self.slots:
            self.slots = {at: slot for at, slot in self.slots.items() if is_open(at)}
            self.slots[name] = SlotWriter(name)
        return self.slots[name]


_open_plans: dict[FileName, _OpenPlan] = {}
_latest: _OpenPlan | None = None
"""Plan whose places were entered last."""
opens_plan = False
"""True while this worker imports what a plan needs."""


def open_plan(name: FileName, *surroundings: Any) -> None:
    """Open a plan, with the trainer's places of modules and files; see ``_OpenPlan``.

    Errors are suppressed: the next message tries again, and reports them to the reader.
    """
    opened = _open_plans[name] = _OpenPlan(name, *surroundings)
    opened.enter()
    with contextlib.suppress(BaseException):
        opened.plan  # noqa: B018


_kept: list[Any] = []
"""Emptied copies of objects whose ``__del__`` would, say, remove the trainer's files."""


def _drop_closed(present: FileName) -> None:
    """Drop plans, but for the present one, that their executor has closed or replaced."""
    for name in [each for each in _open_plans if each != present and not is_open(each)]:
        for copy in _open_plans.pop(name).finalized:
            _kept.append(copy)
            getattr(copy, "__dict__", {}).clear()


# --- messages ---

# A longer message is a memory file: several shorter ones fit into the system's buffer of a socket,
# 208 KiB, so that sending them waits for no reader.
_MOST_SOCKET_BYTES = 2**14


def send(channel: socket.socket, data: bytes) -> None:
    """Send a pickled message to the process at the other end, which gets it in one piece."""
    if len(data) <= _MOST_SOCKET_BYTES:
        channel.send(data)
        return
    with open(os.memfd_create("loader-adapters"), "w+b") as file:
        file.write(data)
        file.seek(0)
        socket.send_fds(channel, [b"."], [file.fileno()])


def receive(channel: socket.socket) -> Any:
    """Receive a message, and unpickle it.

    Raises:
        EOFError: The other end is closed.
    """
    data, files, *_ = socket.recv_fds(channel, _MOST_SOCKET_BYTES, 1)
    for descriptor in files:
        with open(descriptor, "rb") as file:
            return pickle.load(file)
    if not data:
        raise EOFError
    return pickle.loads(data)


# --- main loop ---

NAME = "adapters-worker"
"""Name of a worker, and last argument of its command line."""
# Interval at which a computing worker checks that its parent is alive; it may have been killed.
_PARENT_POLL_SECONDS = 1.0


def take_over(parent: int, arguments: list[str], key: bytes, tracker: int | None) -> None:
    """Take settings over from the parent, and watch it.

    Args:
        parent: Its process id.
        arguments: Its ``sys.argv``.
        key: Key by which ``multiprocessing`` authenticates processes of a family.
        tracker: Descriptor of the resource tracker, if it runs.
    """
    os.setpgid(0, 0)  # Processes that user code starts end with the worker.
    process = multiprocessing.current_process()
    process.name, process.authkey = NAME, key
    sys.argv[:] = arguments
    if tracker is not None:
        resource_tracker._resource_tracker._fd = tracker  # type: ignore[attr-defined]
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    _leave(1)


def serve_fork(descriptor: int, *facts: Any) -> None:
    """Serve in a fork of the trainer, without the trainer's signal handlers, input and garbage.

    All signals are blocked at first. The worker is a new thread, because libraries have state for
    each thread, such as MXNet's current context, or GNU OpenMP's threads, which have not survived
    the fork.
    """
    gc.freeze()  # Finalizers of the trainer's objects must not run here.
    gc.enable()
    close_inherited()
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
    _ignore_the_terminal()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # This thread never returns from user code or an import; the new one mustn't wait for that.
    user_code.renew_lock()
    for module in list(sys.modules.values()):
        spec: Any = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False):
            spec._initializing = False
    thread = threading.Thread(target=_answer, args=(descriptor, *facts), daemon=True)
    thread.start()
    thread.join()


def serve(descriptor: int, *facts: Any) -> None:
    """Answer the process at the other end of a socket until it closes it; see ``take_over``."""
    _ignore_the_terminal()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _answer(descriptor, *facts)


def _ignore_the_terminal() -> None:
    """Leave Ctrl-C to the trainer; and write to a terminal that stops background processes."""
    for number in (signal.SIGINT, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)


def _answer(descriptor: int, *facts: Any) -> None:
    take_over(*facts)
    channel = socket.socket(fileno=descriptor)
    channel.settimeout(None)  # The trainer may have set another default.
    try:
        while True:
            function, *arguments = receive(channel)
            send(channel, pickle.dumps(function(*arguments), 5))
    except (EOFError, OSError):
        pass
    # Threads left by user code or a framework must not delay the exit.
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    _leave(0)


def _leave(code: int) -> None:
    """End, with the processes that user code has started; Python's resource tracker cleans up."""
    os.killpg(0, signal.SIGTERM)
    os._exit(code)
