"""A executor whose jobs a test does by hand, one at a time and in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adapters.batch.key import BatchKey
from adapters.batch.plan import Assembled
from adapters.engine.dispatch import Dispatcher
from adapters.engine.jobs import Done, Job, Pending
from tests.engine.workloads import Numbers
from tests.plans import plan_of

BATCH_SIZE = 8
# Of batches that take no longer, a worker gets several at a time.
SHORT_SECONDS = 0.0001


class Hands:
    """Counts what is with it, and fails where its memory is used wrongly."""

    name, count, ready, started_at = "threads", 2, 2, 0.0
    group_seconds, window = 0.001, None
    starting = lacks_workers = False

    def __init__(self) -> None:
        self.deaths: list[str] = []
        self.jobs: list[tuple[Job, Done]] = []
        self.held: set[Pending] = set()
        """Batches that lie in its memory, or will."""
        self.closed = False

    def most_jobs(self, active: int) -> int:
        return active

    def submit(self, job: Job, done: Done) -> bool:
        assert all(pending.wanted for pending in job.batches)
        self.held.update(job.batches)
        self.jobs.append((job, done))
        return True

    def collect(self, pending: Pending) -> Assembled:
        self.held.remove(pending)
        return Assembled(pending.key.index, 0)

    def discard(self, pending: Pending) -> None:
        assert pending.executor is self
        assert not any(pending in job.batches for job, _ in self.jobs), "somebody writes there"
        self.held.discard(pending)

    def do(
        self,
        number: int = 0,
        error: BaseException | None = None,
        lost: bool = False,
        here: bool = False,
        reports: bool = True,
    ) -> None:
        """Do one of the jobs.

        Args:
            number: Which of those that are with the executor.
            error: What it raises.
            lost: Whether its worker dies, a process, which is the job's own fault.
            here: Whether a thread makes the batch, and not into the executor's memory.
            reports: Whether it is reported done.
        """
        job, done = self.jobs[number]
        # A thread doesn't die that has made one of its batches.
        lost = lost and all(pending.outcome is None for pending in job.batches)
        if lost:  # The first of several is to blame.
            self.deaths.append("a worker process was killed")
            job.batches[0].killers.append(self.deaths[-1])
        for pending in job.batches:
            if error is not None:
                pending.note_error(error)
            elif here:
                self.held.discard(pending)
                pending.outcome = Assembled(pending.key.index, 0)
        job.lost = lost
        if reports:
            del self.jobs[number]
            done(job)

    def close(self, wait: bool) -> None:
        self.closed = True

    def packed(self) -> None: ...

    def refresh(self, plan: None) -> None: ...

    def restart(self) -> None: ...

    def rest(self) -> None: ...

    def wake(self) -> None: ...


class Stage:
    """A dispatcher whose executor is the test."""

    def __init__(self, batch_transform: Callable[..., Any] | None = None) -> None:
        plan = plan_of(Numbers(8000), BATCH_SIZE, batch_transform=batch_transform)
        self.executor = Hands()
        self.dispatcher = Dispatcher(plan, self._open_executor, lambda _: self.active, 16)
        self.asked: list[Pending] = []
        self.active = 100

    def _open_executor(self, *_: Any) -> Any:
        if self.executor.closed:
            self.executor = Hands()
        return self.executor

    def ask(self, start: bool = True) -> Pending:
        """Ask for the next batch; with ``start``, workers get it."""
        pending = Pending(BatchKey(0, len(self.asked)))
        self.asked.append(pending)
        self.dispatcher.ask(pending, SHORT_SECONDS)
        if start:
            self.dispatcher.start_jobs()
        return pending

    def read(self, pending: Pending) -> int:
        """The batch, which is its own number, if it is there.

        Raises:
            multiprocessing.TimeoutError: It isn't.
        """
        return self.dispatcher.wait(pending, timeout_seconds=0).batch  # type: ignore[no-any-return]
