"""Jobs: units of work of one batch, or of several short ones.

A ``Pending`` is one batch on its way through the window (a future); a ``Job`` is what one worker
does at a time. The worker writes results into the job's pendings and then reports the job done,
once; the ``Dispatcher`` then sets the states of the batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapters.batch.key import BatchKey
from adapters.batch.plan import Assembled
from adapters.clock import Spent
from adapters.engine.states import EXPECTED, FAILED, GIVEN_UP, QUEUED, Changing, State
from adapters.errors import WorkerError


class InterpreterEndsError(RuntimeError):
    """The interpreter is shutting down, so no more workers can be started."""


class Exhausted(Exception):
    """The stream has no further batch."""


@dataclass(eq=False, repr=False)
class Pending(Changing):
    """Future of a batch, from the request to the delivery.

    Its state changes with the dispatcher's lock held, or in the thread that computes it inline;
    there is one such thread at a time.

    Args:
        key: Key of the batch.
        state: State of the batch.
    """

    key: BatchKey
    state: State = EXPECTED
    outcome: Assembled | None = None
    """The arrays, and facts about them. A thread writes them before it reports its job, which may
    include other batches, so this one's reader may take them earlier."""
    error: BaseException | None = None
    """Error of the batch; raised when it is read."""
    dropped: bool = False
    """Abandoned. A separate flag, because ``Stream.__del__`` may run in any thread at any moment
    and must not take the lock; while workers have the batch, it is still QUEUED."""
    memory: Any = None
    """Description of the batch by its worker, when the batch is in the executor's memory."""
    killers: list[str] = field(default_factory=list)
    """Worker processes that died in this very batch, and how."""
    seconds: float = 0.0
    """Time of its computation."""
    spent: Spent = field(default_factory=Spent)
    """Detailed time, if it was computed in the consumer's process for a trial."""
    executor: Any = None
    """Executor that the batch was submitted to."""

    @property
    def wanted(self) -> bool:
        """True if the batch is queued and not abandoned."""
        return self.state is QUEUED and not self.dropped

    def fail(self, error: BaseException) -> None:
        """Record an error in one of its jobs, if the batch is still queued."""
        if self.state is QUEUED:
            self.error = error

    def tell(self) -> None:
        """Raise the batch's error, if there is one.

        Raises:
            Exception: The error from its computation.
            WorkerError: The batch was given up.
        """
        error = self.error
        if error is not None and self.state is GIVEN_UP:
            raise WorkerError(*error.args)
        if error is not None and self.state is FAILED:
            # A later read computes it again, and raises its own exception.
            self.error = None
            self.become(EXPECTED)
            try:
                raise error
            finally:
                del error  # Breaks the cycle of the traceback, this frame and the error.


@dataclass(eq=False, repr=False)
class Job:
    """Unit of work for one worker.

    Args:
        batches: One batch, or several short ones.
    """

    batches: list[Pending]
    seconds: float = 0.0
    lost: bool = False
    """True if its worker died; it must be done again."""


Done = Callable[[Job], None]


class Executor(Protocol):
    """Executor of one kind. ``submit`` never blocks; ``done`` may be called from any thread."""

    name: str
    count: int
    group_seconds: float
    """Batches that take less than this together are submitted as one job."""
    deaths: list[str]
    """Descriptions of workers that have died, oldest first."""
    started: float
    """Start of the latest workers, by ``time.monotonic``."""

    @property
    def window(self) -> int | None:
        """Maximum number of batches at once; None if only memory limits it."""
        ...

    @property
    def starting(self) -> bool:
        """True if no worker has been ready yet, and none has died."""
        ...

    @property
    def ready(self) -> int:
        """Number of workers that accept jobs."""
        ...

    @property
    def short(self) -> bool:
        """True if workers have died and not been replaced."""
        ...

    def most_jobs(self, active: int) -> int:
        """Maximum number of submitted jobs that keeps ``active`` workers busy."""
        ...

    def submit(self, job: Job, done: Done) -> bool:
        """Submit the job to a worker; False if there is none."""
        ...

    def collect(self, pending: Pending) -> Assembled:
        """Return the batch, after its job is done."""
        ...

    def discard(self, pending: Pending) -> None:
        """Free the memory of an abandoned batch."""
        ...

    def packed(self) -> Any:
        """Serialize the plan as it is now, for ``refresh``; called without the lock."""
        ...

    def refresh(self, plan: Any) -> None:
        """Send workers the plan again, after its source has changed."""
        ...

    def restart(self) -> None:
        """Replace dead workers."""
        ...

    def rest(self) -> None:
        """Let other executors use the workers while there are no jobs."""
        ...

    def wake(self) -> None:
        """Get workers again after ``rest``."""
        ...

    def close(self, wait: bool) -> None:
        """End all workers; with ``wait``, return when they are gone."""
        ...
