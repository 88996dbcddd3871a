"""Jobs and workers: which job runs when, and what happens when one doesn't come back.

    ask --> ready jobs --start--> Crew (threads or processes) --done--> wait

The lock guards the queue of ready jobs and the state of every ``Pending``; it is held for
bookkeeping only, never while a batch is computed. Jobs are started from the consumer's thread and
from wherever a job is reported done. Dead workers are replaced by whoever waits for a batch.
"""

from __future__ import annotations

import collections
import functools
import logging
import math
import multiprocessing
import threading
import time
from collections.abc import Callable

from adapters.assemble import Assembled, Plan
from adapters.collate import Layout
from adapters.engine.jobs import Crew, Job, Kind, Pending
from adapters.errors import ClosedError, WorkerError

log = logging.getLogger("adapters")

# A batch that takes longer is computed in parts, one per worker: the first batch comes sooner, and
# more workers than there are batches in the window can all be busy.
_SPLIT_SECONDS = 0.05
# Batches that take less go to a worker several at a time. Handing over a job costs about 30 us with
# threads and 0.5 ms of the trainer's interpreter with processes (loky 3.7, two cores).
_GROUP_SECONDS = {"threads": 0.001, "processes": 0.008}
# A batch is given up when that many worker processes have died over it.
_TRIES = 3
# All batches are, when the pool has been replaced that often and none got done in between.
_RESTARTS = 6
_WAIT_SECONDS = 1.0
# What new processes may take to import what the plan needs, before a batch can be late.
_START_SECONDS = 60.0

_of_other_processes: list[Crew | None] = []


class Dispatcher:
    """The queue before a crew of workers.

    Any thread may call any method; only ``wait`` blocks, and ``stop`` until the workers are gone.

    Args:
        plan: What is computed.
        open_crew: Makes the workers, when the first batch is asked for and after a ``stop``.
        active: How many of them may be busy.
        window: Batches that are asked for ahead of the consumer.
    """

    def __init__(
        self,
        plan: Plan,
        open_crew: Callable[[], Crew],
        active: Callable[[Crew], int],
        window: int,
    ) -> None:
        self._plan = plan
        self._open_crew = open_crew
        self._active = active
        self._window = window
        self._crew: Crew | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._ready: collections.deque[Job] = collections.deque()
        self._running = 0
        self._lost: list[Job] = []
        self._restarts = 0
        self._grace_seconds = 0.0
        self.closed = False

    def open(self) -> Crew:
        """Start the workers, if they haven't."""
        with self._changed:
            if self.closed:
                raise ClosedError("the sequence is closed: make a new one")
            if self._crew is None:
                self._crew = self._open_crew()
                self._grace_seconds = _START_SECONDS if self._crew.name == "processes" else 0.0
            return self._crew

    @property
    def starting(self) -> bool:
        """Whether worker processes have been started, and none has done anything yet."""
        return self._grace_seconds > 0 and not self._lost

    def ask(self, pending: Pending, layout: Layout | None, seconds: float) -> None:
        """Queue the jobs that make up a batch.

        Args:
            pending: The batch.
            layout: Of the batch before it.
            seconds: What that took; 0 if it isn't known.
        """
        pending.queued = True
        with self._changed:
            crew = self.open()
            count, batch_size = crew.count, self._plan.order.batch_size
            if layout is not None and min(count, batch_size) > 1 and seconds > _SPLIT_SECONDS:
                self._queue_parts(crew, pending, layout)
                return
            last = self._ready[-1] if self._ready else None
            most = self._group_size(crew, seconds)
            if last and last.kind is Kind.WHOLE and len(last.batches) < most:
                last.batches.append(pending)
            else:
                self._ready.append(Job(Kind.WHOLE, [pending]))

    def start_jobs(self) -> None:
        """Give ready jobs to workers that are free."""
        with self._changed:
            while self._ready and self._crew and not self.closed:
                if self._running >= self._limit(self._crew):
                    break
                job = self._ready.popleft()
                for pending in [p for p in job.batches if p.dropped]:
                    self._job_done(self._crew, job, pending)
                    job.batches.remove(pending)
                if job.batches:
                    self._submit(self._crew, job)

    def _submit(self, crew: Crew, job: Job) -> None:
        self._running += 1
        try:
            crew.submit(job, functools.partial(self._done, crew))
        except RuntimeError as error:
            self._running -= 1
            if "shutdown" not in str(error):
                raise
            self.closed = True  # The interpreter is going down.
            self._changed.notify_all()

    def wait(self, pending: Pending, timeout_seconds: float = math.inf) -> Assembled:
        """Wait for a batch that was asked for.

        Raises:
            Exception: What its computation raised.
            WorkerError: Worker processes died over it again and again.
            ClosedError: Somebody closed or dropped it meanwhile.
            multiprocessing.TimeoutError: It took longer than ``timeout_seconds``.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while not pending.done:
                if self.closed or pending.dropped:
                    raise ClosedError("the sequence was closed while a batch was awaited")
                if self._lost and not self._running:
                    self._recover()
                else:
                    self._changed.wait(min(_WAIT_SECONDS, timeout_seconds))
                if not pending.done and time.monotonic() > deadline + self._grace_seconds:
                    raise multiprocessing.TimeoutError(
                        f"timeout: the workers have not made batch {pending.index} in "
                        f"{timeout_seconds:g} seconds; give a longer one if the work is that slow, "
                        "or look for what hangs with no workers"
                    )
            error = pending.error
            if isinstance(error, WorkerError):
                raise WorkerError(*error.args)
            if error is not None:
                # Whoever asks again computes it again, and is told by its own exception.
                pending.error, pending.done, pending.queued = None, False, False
                try:
                    raise error
                finally:
                    del error  # The traceback would refer to it through this frame, in a circle.
            if pending.outcome is None:
                assert self._crew is not None
                pending.outcome = self._crew.collect(pending)
            return pending.outcome

    def drop(self, pendings: list[Pending]) -> None:
        """Nobody wants these batches any more."""
        with self._changed:
            for pending in pendings:
                pending.dropped = True
                if pending.done and pending.outcome is None and self._crew is not None:
                    self._crew.discard(pending)
            self._changed.notify_all()

    def refresh(self) -> None:
        """The plan's source is not what it was when the workers got it."""
        with self._changed:
            if self._crew is not None:
                self._crew.refresh()

    def stop(self, for_good: bool) -> None:
        """End the workers; if not for good, they start again when a batch is asked for."""
        # The garbage collector may have called from within a frame that holds the lock, which a
        # worker needs in order to end.
        may_wait = not self._lock._is_owned()  # type: ignore[attr-defined]
        with self._changed:
            self.closed = self.closed or for_good
            crew, self._crew = self._crew, None
            self._ready.clear()
            self._lost.clear()
            self._running = 0
            self._changed.notify_all()
        if crew is not None:
            crew.close(wait=may_wait)

    def forget_workers(self) -> None:
        """Start over in a forked process, where the workers and whoever held the lock are not."""
        # They belong to the other process; ending them here would end them there.
        _of_other_processes.append(self._crew)
        self._crew = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._ready.clear()
        self._lost.clear()
        self._running = 0

    # --- with the lock held ---

    def _limit(self, crew: Crew) -> int:
        """Jobs that may be with the crew: a process gets its next one before it is done."""
        active = self._active(crew)
        return 2 * active if crew.name == "processes" and active == crew.count else active

    def _group_size(self, crew: Crew, seconds: float) -> int:
        if not seconds:
            return 1
        fair = max(1, self._window // (2 * crew.count))
        return max(1, min(fair, int(_GROUP_SECONDS[crew.name] / seconds)))

    def _queue_parts(self, crew: Crew, pending: Pending, layout: Layout) -> None:
        order = self._plan.order
        pending.layout = layout
        pending.samples = len(order.batch(pending.epoch, pending.index))
        crew.allocate(pending)
        parts = min(crew.count, pending.samples)
        edges = [pending.samples * i // parts for i in range(parts + 1)]
        pending.jobs_left = parts
        for number in range(parts):
            self._ready.append(Job(Kind.PART, [pending], edges[number], edges[number + 1], number))

    def _done(self, crew: Crew, job: Job) -> None:
        """Called by the crew, from any thread."""
        with self._changed:
            if self._crew is not crew:
                return
            self._running -= 1
            if job.lost:
                self._lost.append(job)
            else:
                self._restarts = 0
                self._grace_seconds = 0.0
                for pending in job.batches:
                    self._job_done(crew, job, pending)
                self.start_jobs()
            self._changed.notify_all()

    def _job_done(self, crew: Crew, job: Job, pending: Pending) -> None:
        pending.seconds += job.seconds / len(job.batches)
        pending.skipped += job.skipped
        pending.jobs_left -= 1
        if pending.jobs_left:
            return
        if pending.dropped:
            crew.discard(pending)
        elif pending.error is not None:
            crew.discard(pending)
            pending.done = True
        elif pending.layout_changed:
            self._start_over(crew, pending)
        elif job.kind is Kind.PART and self._plan.batch_transform is not None:
            self._requeue(Job(Kind.FINISH, [pending]))
        else:
            pending.done = True

    def _start_over(self, crew: Crew, pending: Pending) -> None:
        """Compute a batch whole that was computed in parts."""
        crew.discard(pending)
        pending.layout_changed, pending.layout, pending.memory = False, None, None
        pending.seconds, pending.skipped = 0.0, 0
        self._requeue(Job(Kind.WHOLE, [pending]))

    def _requeue(self, job: Job) -> None:
        for pending in job.batches:
            pending.jobs_left = max(1, pending.jobs_left)
        self._ready.appendleft(job)

    def _recover(self) -> None:
        """Replace the workers and do again what the dead ones, and those beside them, had."""
        assert self._crew is not None
        lost, self._lost = self._lost, []
        self._restarts += 1
        killers = [killer for job in lost for p in job.batches for killer in p.killers]
        log.warning(
            "%s; starting new workers and computing %d lost jobs again",
            killers[-1] if killers else "a worker process died",
            len(lost),
        )
        self._crew.restart()
        for job in reversed(lost):
            for pending in reversed(job.batches):
                if len(pending.killers) >= _TRIES or self._restarts > _RESTARTS:
                    self._give_up(pending, killers)
                elif job.kind is Kind.FINISH:
                    # The transform may have written into what it was given.
                    self._start_over(self._crew, pending)
                else:
                    # One batch a job from here on, so that the next death has one to blame.
                    again = Job(job.kind, [pending], job.start, job.stop, job.number)
                    self._ready.appendleft(again)
        self.start_jobs()

    def _give_up(self, pending: Pending, killers: list[str]) -> None:
        who = (pending.killers or killers or ["worker processes died"])[-1]
        times = len(pending.killers) or self._restarts
        pending.error = WorkerError(
            f"{who} while computing batch {pending.index} of epoch {pending.epoch}; tried "
            f"{times} times. Look for a crash in the source or the transform (workers=0 runs it in "
            "this process), or for a memory limit (fewer workers, smaller batches)"
        )
        pending.done = pending.dropped = True
