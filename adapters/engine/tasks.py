"""Futures of batches, tasks for workers, and the protocol of executors.

A ``Future`` is one batch on its way through the window. A ``Task`` is what one worker does at a
time: one batch, or several short ones. The worker writes results into the task's futures
and then reports the task done, once; the ``Dispatcher`` then sets the states of the batches:

    UNSUBMITTED --ask--> QUEUED --its task is done, or it is given up--> DONE
         ^ '------------------- computed inline -------------------------^ |
         '------------------------- its error is raised -------------------'

If the workers of a batch have gone, as in a forked process, its reader computes it. Only
``Future.become`` changes a state.
"""

from __future__ import annotations

import copy
import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from adapters.batch.plan import Assembled, BatchKey
from adapters.clock import Spent
from adapters.errors import WorkerError


class InterpreterEndsError(RuntimeError):
    """The interpreter is shutting down, so no more workers can be started."""


class Exhausted(Exception):
    """The stream has no further batch."""


class State(enum.Enum):
    """State of a batch."""

    UNSUBMITTED = "not submitted; the reader computes it inline"
    QUEUED = "submitted to workers, or about to be; the reader waits"
    DONE = "computed or failed; the arrays may still be in the executor's memory"


# As module constants, because `State.DONE` takes 65 ns, a dozen times per batch (Python 3.11).
UNSUBMITTED, QUEUED, DONE = State

FOLLOWING = {UNSUBMITTED: (QUEUED, DONE), QUEUED: (DONE,), DONE: (UNSUBMITTED,)}
"""Allowed transitions."""

Convert = Callable[[Assembled], Assembled]


@dataclass(eq=False, repr=False)
class Future:
    """Future of a batch, from the request to the delivery.

    Its state changes with the dispatcher's lock held, or in the thread that computes it inline;
    there is one such thread at a time.
    """

    key: BatchKey
    state: State = UNSUBMITTED
    outcome: Assembled | None = None
    """The arrays, and facts about them. A thread writes them before it reports its task, which may
    include other batches, so this one's reader may take them earlier."""
    error: BaseException | None = None
    """Error of the batch; raised when it is read."""
    abandoned: bool = False
    """No reader needs it. A separate flag, because ``Stream.__del__`` may run in any thread at any
    moment and must not take the lock."""
    memory: Any = None
    """Description of the batch by its worker, from which ``Executor.collect`` makes the arrays."""
    killers: list[str] = field(default_factory=list)
    """Worker processes that died in this batch, or in one of the same task, and how."""
    spent: Spent = field(default_factory=Spent)
    """Time of its computation; in detail if it was computed for a trial."""
    executor: Any = None
    """Executor that the batch was submitted to."""
    convert: Convert | None = None
    """Converts the batch for the trainer; applied by worker threads, ignored by others."""

    def become(self, following: State) -> None:
        """Change the state; the only way to do so.

        Raises:
            RuntimeError: The transition isn't allowed; the state stays.
        """
        if following not in FOLLOWING[self.state]:
            raise RuntimeError(
                f"internal error: a batch that is {self.state.name} can't become {following.name}; "
                "please report it"
            )
        self.state = following

    @property
    def wanted(self) -> bool:
        """True if the batch is queued and not abandoned."""
        return self.state is QUEUED and not self.abandoned

    def note_error(self, error: BaseException) -> None:
        """Record an error in one of its tasks, if the batch is still queued."""
        if self.state is QUEUED:
            self.error = error

    def raise_error(self) -> None:
        """Raise the batch's error, if there is one.

        Raises:
            Exception: The error from its computation. A later read computes the batch again.
            WorkerError: The batch kills workers, or there are none. Later reads raise it again.
        """
        error = self.error
        if isinstance(error, WorkerError):
            raise copy.copy(error)
        if error is not None:
            self.error = None
            self.become(UNSUBMITTED)
            try:
                raise error
            finally:
                del error  # Breaks the cycle of the traceback, this frame and the error.


@dataclass(eq=False, repr=False)
class Task:
    """Unit of work for one worker: one batch, or several short ones."""

    batches: list[Future]
    seconds: float = 0.0
    lost: bool = False
    """True if its worker died; it must be done again."""


Done = Callable[[Task], None]


class Executor:
    """Executor of one kind of workers.

    After ``submit(task, done)``, the executor calls ``done(task)`` once, from any thread. Before
    that it stores the results:

    - A batch's arrays in ``future.outcome``. Or what ``collect`` needs to make the arrays in
      ``future.memory``.
    - An error of a batch by ``future.note_error``.
    - ``task.lost = True`` if the worker died. The dispatcher submits the task's batches again.
    - The time of the task in ``task.seconds``.

    The methods are called with the dispatcher's lock held, except ``refresh`` and ``close``, and
    attributes are read without it. No method waits for a worker, except ``close``, and ``wake`` and
    ``restart`` for 0.1 s. The defaults are those of workers that are there at once, don't die and
    see the plan itself.
    """

    name: str
    window: int | None = None
    """Maximum number of batches at once, such as by open files; None if only memory limits it."""
    group_seconds = 0.0
    """Batches that take less than this together are submitted as one task."""
    starting = False
    """True if no worker has been ready yet."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.deaths: list[str] = []
        """Descriptions of workers that have died, oldest first."""
        self.started_at = time.monotonic()
        """Start of the latest workers."""

    @property
    def ready(self) -> int:
        """Number of workers that accept tasks."""
        return self.count

    @property
    def lacks_workers(self) -> bool:
        """True if workers have died and not been replaced."""
        return False

    def most_tasks(self, active: int) -> int:
        """Maximum number of submitted tasks that keeps ``active`` workers busy."""
        return active

    def submit(self, task: Task, done: Done) -> bool:
        """Submit the task to a worker; False if there is none."""
        raise NotImplementedError

    def collect(self, future: Future) -> Assembled:
        """Return the batch, after its task is done."""
        assert future.outcome is not None
        return future.outcome

    def discard(self, future: Future) -> None:
        """Free the memory of an abandoned batch."""

    @property
    def is_outdated(self) -> bool:
        """True if workers have a copy of the plan, which has changed since."""
        return False

    def refresh(self) -> None:
        """Send workers the plan as it is now; tasks under way use the earlier one."""

    def restart(self) -> None:
        """Replace dead workers."""

    def rest(self) -> None:
        """Let other executors use the workers while there are no tasks."""

    def wake(self) -> None:
        """Get workers again after ``rest``."""

    def close(self, wait: bool) -> None:
        """End all workers; with ``wait``, return when they are gone."""
        raise NotImplementedError
