"""What workers are given: jobs, of a batch or of several short ones.

A ``Pending`` is one batch on its way through the window; a ``Job`` is what one worker does at a
time. Whoever runs a job writes what comes of it into the job's pendings and then reports the job
done, once; what the batch has become, the ``Dispatcher`` says after its last job.
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
    """No worker starts any more, as the interpreter is going down."""


class Exhausted(Exception):
    """There is no further batch in the stream."""


@dataclass(eq=False, repr=False)
class Pending(Changing):
    """A batch between being asked for and being delivered.

    Its state changes with the dispatcher's lock held, or by whoever computes it here, which is one
    thread at a time.

    Args:
        key: Of the batch.
        state: What has become of it.
    """

    key: BatchKey
    state: State = EXPECTED
    outcome: Assembled | None = None
    """Its arrays and what is known of them. A thread writes them before it reports its job, which
    may be about other batches, too: who waits for this one may take them."""
    error: BaseException | None = None
    """What went wrong; raised when the batch is read."""
    dropped: bool = False
    """Nobody waits for it any more. Beside the state, as the garbage collector may come to a stream
    at any moment, in any thread, and must not wait for the lock; while workers have the batch, it
    is still QUEUED."""
    memory: Any = None
    """What its worker says about it, when it lies in the crew's memory."""
    killers: list[str] = field(default_factory=list)
    """Worker processes that died over this very batch, and how."""
    seconds: float = 0.0
    """What its computation took."""
    spent: Spent = field(default_factory=Spent)
    """The same in detail, where it was computed in the consumer's process for a trial."""
    crew: Any = None
    """Who was asked for it."""

    @property
    def wanted(self) -> bool:
        """Whether its jobs shall be done: somebody waits for it, or will."""
        return self.state is QUEUED and not self.dropped

    def fail(self, error: BaseException) -> None:
        """Take note that one of its jobs has failed, unless something else has become of it."""
        if self.state is QUEUED:
            self.error = error

    def tell(self) -> None:
        """Tell the reader what went wrong, if anything did.

        Raises:
            Exception: What its computation raised.
            WorkerError: It was given up.
        """
        error = self.error
        if error is not None and self.state is GIVEN_UP:
            raise WorkerError(*error.args)
        if error is not None and self.state is FAILED:
            # Whoever asks again computes it again, and is told by its own exception.
            self.error = None
            self.become(EXPECTED)
            try:
                raise error
            finally:
                del error  # The traceback would refer to it through this frame, in a circle.


@dataclass(eq=False, repr=False)
class Job:
    """One piece of work.

    Args:
        batches: One, or several short ones.
    """

    batches: list[Pending]
    seconds: float = 0.0
    lost: bool = False
    """Its worker died; do it again."""


Done = Callable[[Job], None]


class Crew(Protocol):
    """Workers of one kind. ``submit`` never blocks; ``done`` may be called from any thread."""

    name: str
    count: int
    group_seconds: float
    """Batches that take less together go to a worker as one job."""
    deaths: list[str]
    """Who died so far, and how."""
    started: float
    """When the latest of them were started, by ``time.monotonic``."""

    @property
    def window(self) -> int | None:
        """Batches that it has room for at once; None where memory alone is the limit."""
        ...

    @property
    def starting(self) -> bool:
        """Whether none has been ready yet, and none has died."""
        ...

    @property
    def ready(self) -> int:
        """How many can be given jobs."""
        ...

    @property
    def short(self) -> bool:
        """Whether some have died and not been replaced."""
        ...

    def most_jobs(self, active: int) -> int:
        """Jobs that may be with the crew, if so many workers shall be busy."""
        ...

    def submit(self, job: Job, done: Done) -> bool:
        """Have a worker do the job, if there is one."""
        ...

    def collect(self, pending: Pending) -> Assembled:
        """The batch, after its job is done."""
        ...

    def discard(self, pending: Pending) -> None:
        """Free the memory of a batch that nobody wants."""
        ...

    def packed(self) -> Any:
        """The plan as it is now, as ``refresh`` takes it; the lock isn't held."""
        ...

    def refresh(self, plan: Any) -> None:
        """Make the workers see that the plan's source has changed."""
        ...

    def restart(self) -> None:
        """Replace workers after some died."""
        ...

    def rest(self) -> None:
        """Let others have the workers while nothing is asked for."""
        ...

    def wake(self) -> None:
        """Have them again."""
        ...

    def close(self, wait: bool) -> None:
        """End all workers; with ``wait``, return when they are gone."""
        ...
