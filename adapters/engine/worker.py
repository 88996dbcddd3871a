"""Worker process: its main loop, and its computation of batches.

Messages come in and answers go out, one at a time and in order:

    trainer                                           worker
    Origin --------------------------------------->   (a fresh interpreter has the module path)
    (numbers of closed plans, Address, b"") ------>   opens the plan
            <------------------------------- b""
    (numbers of closed plans, Address, Task) ----->
            <--------------------------- answers      computes batches, each into its slot
    (numbers of closed plans, None, b"") --------->

Each message is a pickle in the worker's own socket, and so is a ``Task`` in a message. A worker
ends when its socket is closed, or when its parent ends. It imports no framework. A task computes
one job, and its answers are small; the batches themselves are written to slots. Plans, and mappings
of slots, are kept between tasks, until their executor closes.
"""

from __future__ import annotations

import collections
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
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from adapters.batch.key import BatchKey
from adapters.batch.plan import Plan
from adapters.clock import Spent
from adapters.engine.channel import Channel
from adapters.engine.memory import FileName, SlotWriter, close_inherited
from adapters.engine.serialization import Address, load_plan
from adapters.errors import note
from adapters.failure import Failure
from adapters.structure import flatten


@dataclass(frozen=True)
class Written:
    """A batch in a slot."""

    skeleton: Any
    leaves: list[Any]
    """Each a ``ArrayInSlot`` in the slot, or a value that can't be shared, such as a string."""
    skipped: int
    spent: Spent


Answer = Written | Failure
Task = list[tuple[BatchKey, FileName]]
"""Batches to compute, each into its slot."""


def work(address: Address, task: Task) -> bytes:
    """Compute some batches; returns their pickled answers, pickled together."""
    opened = _open_plans[address.plan_number]
    answers = []
    for key, name in task:
        # Pickled now, as the next batch may change what this one has outside of its slot.
        answers.append(_pickled(_guarded(_compute, address, key, name)))
        opened.sign_off(name)  # Only now, because pickling an answer may kill the worker.
    return pickle.dumps(answers, 5)


def _pickled(answer: Answer) -> bytes:
    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            return dumps(answer, protocol=5)
        except Exception as error:
            obstacle = error
    note(obstacle, "the batch holds something that can't be sent from a worker process")
    return pickle.dumps(Failure.of(obstacle))


def _guarded(function: Any, *arguments: Any) -> Answer:
    try:
        return function(*arguments)  # type: ignore[no-any-return]
    except BaseException as error:  # Raised where the batch is read.
        return Failure.of(error)


def _compute(address: Address, key: BatchKey, name: FileName) -> Written:
    started = Spent.now()
    slot = _open_plans[address.plan_number].slot(name)
    slot.begin()
    assembled = open_plan(address).batch(key, slot.allocate)
    leaves, skeleton = flatten(assembled.batch)
    placed: list[Any] = []
    for leaf in leaves:
        # Other array classes hold more than numbers, such as a mask.
        shared = type(leaf) in (np.ndarray, np.memmap) and not leaf.dtype.hasobject
        placed.append(slot.put(leaf) if shared else leaf)
    return Written(skeleton, placed, assembled.skipped, started.until_now())


class _OpenPlan:
    """A plan that was sent here, and the slots of its batches, which stay mapped."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        """None if it couldn't be opened yet."""
        self._slots: dict[int, SlotWriter] = {}

    def slot(self, name: FileName) -> SlotWriter:
        """Return the slot with this name."""
        if name.serial not in self._slots:
            self._slots[name.serial] = SlotWriter(name)
        return self._slots[name.serial]

    def sign_off(self, name: FileName) -> None:
        """Note that the batch in a slot is done; the trainer may have closed the slot before."""
        if name.serial in self._slots:
            self._slots[name.serial].end()


_open_plans: collections.defaultdict[int, _OpenPlan] = collections.defaultdict(_OpenPlan)
"""By plan number."""


def open_plan(address: Address) -> Plan:
    """Return the plan; it is opened only once."""
    opened = _open_plans[address.plan_number]
    if opened.plan is None:
        opened.plan = load_plan(address)
    return opened.plan


# --- main loop ---

NAME = "adapters-worker"
"""Name of a worker, and last argument of its command line."""
# Interval at which a computing worker checks that its parent is alive; it may have been killed.
_PARENT_POLL_SECONDS = 1.0


class Origin(NamedTuple):
    """Settings that a worker takes over from its parent, as of the time of its executor's start."""

    pid: int
    arguments: list[str]
    key: bytes
    """Key by which ``multiprocessing`` authenticates processes of a family."""
    environment: dict[str, str]
    path: list[str]
    """Places of modules."""
    folder: str
    """Current folder; "" if it was deleted."""
    tracker: int | None
    """Descriptor of Python's resource tracker, if it runs."""

    def take_over(self) -> None:
        """Apply the settings, and watch the parent."""
        process = multiprocessing.current_process()
        process.name, process.authkey = NAME, self.key
        sys.argv[:], sys.path[:] = self.arguments, self.path
        os.environ.update(self.environment)
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        if self.tracker is not None:
            resource_tracker._resource_tracker._fd = self.tracker  # type: ignore[attr-defined]
        threading.Thread(target=self._leave_with_parent, daemon=True).start()

    def _leave_with_parent(self) -> None:
        while os.getppid() == self.pid:
            time.sleep(_PARENT_POLL_SECONDS)
        os._exit(1)


def serve_fork(socket: int) -> None:
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    thread = threading.Thread(target=_answer, args=(socket,), daemon=True)
    thread.start()
    thread.join()


def serve(socket: int) -> None:
    """Answer the process at the other end until it closes the connection."""
    # Ctrl-C reaches the whole process group; the trainer handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _answer(socket)


def _answer(socket: int) -> None:
    channel = Channel(socket)
    try:
        pickle.loads(channel.receive() or b"").take_over()
        while True:
            gone, address, task = pickle.loads(channel.receive() or b"")
            for number in gone:
                _open_plans.pop(number, None)
            if address is not None:
                channel.send(work(address, pickle.loads(task)) if task else _opened(address))
    except (EOFError, OSError):
        pass
    # Threads left by user code or a framework must not delay the exit.
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def _opened(address: Address) -> bytes:
    """Open a plan. An error is suppressed: the next task tries again, and reports it."""
    with contextlib.suppress(BaseException):
        open_plan(address)
    return b""
