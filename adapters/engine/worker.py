"""Worker process: its main loop, and its computation of batches.

Messages come in and answers go out, one at a time and in order:

    trainer                                      worker
    Origin -------------------------->           (after the module path, see ``process``)
    (OPEN, Address, path, folder) --->
            <--------- (OPENED, plan number)             has imported what the plan needs
    (WORK, Address, Task) ----------->
            <------------- (ANSWER, answers)
    (FORGET, plan number) ----------->

Each message is a pickle on the worker's own socket. A worker ends when its socket is closed, or
when its parent ends. It imports no framework. A task computes one job, and its answers are small;
the batches themselves are written to slots. Plans, and mappings of slots, are kept between tasks,
until their executor closes.
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
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from adapters.batch.key import BatchKey
from adapters.batch.plan import Plan
from adapters.clock import Spent
from adapters.engine.memory import (
    ArrayInSlot,
    FileName,
    SlotWriter,
    close_inherited,
    descriptors_left,
)
from adapters.engine.serialization import Address, load_plan
from adapters.errors import note
from adapters.failure import Failure
from adapters.structure import flatten

# Descriptors left to user code; each mapped slot takes one.
_SPARE_DESCRIPTORS = 64


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
    """Compute some batches.

    Returns:
        The pickled answers, one per batch; some are pickled separately, as a list of one.
    """
    slots = _opened(address).slots
    answers: list[Answer | bytes] = []
    *earlier, (last_key, last_name) = task
    for key, name in earlier:
        answer = _guarded(_compute, address, key, name)
        answers.append(_pickled([answer]) if _may_change(answer) else answer)
        slots.get(name).end()
    answers.append(_guarded(_compute, address, last_key, last_name))
    data = _pickled(answers)
    # Only now, because pickling an answer may kill the worker.
    slots.get(last_name).end()
    return data


def _may_change(answer: Answer) -> bool:
    """True if the next batch may change what this one has outside of its slot."""
    return isinstance(answer, Written) and not all(
        isinstance(leaf, (ArrayInSlot, str, bytes, int, float, type(None)))
        or getattr(leaf, "never_changes", False)
        for leaf in answer.leaves
    )


def _pickled(answers: Sequence[Answer | bytes]) -> bytes:
    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            return dumps(answers, protocol=5)
        except Exception as error:
            obstacle = error
    note(obstacle, "the batch holds something that can't be sent from a worker process")
    return pickle.dumps([Failure.of(obstacle)] * len(answers))


def opened_answers(data: bytes) -> list[Answer]:
    """Unpickle the answers of ``work``, in the trainer's process."""
    answers: list[Answer] = []
    for answer in pickle.loads(data):
        answers += pickle.loads(answer) if isinstance(answer, bytes) else [answer]
    return answers


def _guarded(function: Any, *arguments: Any) -> Answer:
    try:
        return function(*arguments)  # type: ignore[no-any-return]
    except BaseException as error:  # Raised where the batch is read.
        return Failure.of(error)


def _compute(address: Address, key: BatchKey, name: FileName) -> Written:
    started = Spent.now()
    slot = _opened(address).slots.get(name)
    slot.begin()
    assembled = open_plan(address).batch(key, slot.allocate)
    leaves, skeleton = flatten(assembled.batch)
    placed: list[Any] = []
    for leaf in leaves:
        # Other array classes hold more than numbers, such as a mask.
        shared = type(leaf) in (np.ndarray, np.memmap) and not leaf.dtype.hasobject
        placed.append(slot.put(leaf) if shared else leaf)
    return Written(skeleton, placed, assembled.skipped, started.until_now())


class _Slots:
    """Slots of one plan's batches; those used last stay mapped.

    Unmapping a slot loses nothing: its data is in the shared file.
    """

    def __init__(self) -> None:
        self._mapped: collections.OrderedDict[int, SlotWriter] = collections.OrderedDict()
        self._most = max(2, min(descriptors_left(), 65536) - _SPARE_DESCRIPTORS)

    def get(self, name: FileName) -> SlotWriter:
        """Return the slot with this name, mapped."""
        slot = self._mapped.get(name.serial)
        if slot is None:
            while len(self._mapped) >= self._most:
                self._mapped.popitem(last=False)
            slot = self._mapped[name.serial] = SlotWriter(name)
        else:
            self._mapped.move_to_end(name.serial)
        return slot


class _OpenPlan:
    """A plan that was sent here, and what belongs to it."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        """None if it couldn't be opened yet."""
        self.slots = _Slots()
        self.surroundings: _Surroundings | None = None


_open_plans: dict[int, _OpenPlan] = {}
"""By plan number."""


def _opened(address: Address) -> _OpenPlan:
    number = address.plan_number
    if number not in _open_plans:
        _open_plans[number] = _OpenPlan()
    return _open_plans[number]


def open_plan(address: Address) -> Plan:
    """Return the plan; it is opened only once."""
    opened = _opened(address)
    if opened.plan is None:
        opened.plan = load_plan(address)
    return opened.plan


def forget(number: int) -> None:
    """Drop a plan whose executor has closed or has sent a newer one, and its slots."""
    _open_plans.pop(number, None)


# --- main loop ---

NAME = "adapters-worker"
"""Name of a worker, and last argument of its command line."""
OPEN, OPENED, WORK, ANSWER, FORGET = range(5)
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
    sys.path[:] = pickle.loads(connection.recv_bytes())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    thread = threading.Thread(target=_answer, args=(connection,), daemon=True)
    thread.start()
    thread.join()


def serve(connection: Connection) -> None:
    """Answer the process at the other end until it closes the connection."""
    # Ctrl-C reaches the whole process group; the trainer handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _answer(connection)


def _answer(connection: Connection) -> None:
    try:
        pickle.loads(connection.recv_bytes()).take_over()
        while True:
            kind, *content = pickle.loads(connection.recv_bytes())
            if kind == FORGET:
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


_latest = -1
"""Plan whose surroundings were entered last."""


def _enter(address: Address) -> None:
    global _latest
    surroundings = _opened(address).surroundings
    if address.plan_number != _latest and surroundings is not None:
        surroundings.enter()
        _latest = address.plan_number


def _work(address: Address, task: Any) -> Any:
    _enter(address)
    return work(address, task)


def _open(address: Address, path: list[str], folder: str) -> int:
    """Open a plan, with the trainer's places of modules and files.

    Errors are suppressed: the next task tries again, and reports them to the reader.
    """
    _opened(address).surroundings = _Surroundings(path, folder, address.environment)
    _enter(address)
    with contextlib.suppress(BaseException):
        _forget_changed_modules()
        open_plan(address)
    _remember_modules()
    return address.plan_number


_seen: dict[str, Any] = {}
"""Source files of modules, without installed ones, and their modification times."""


def _remember_modules() -> None:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if module is sys.modules.get("__main__"):
            continue  # In a fork, the training script.
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
