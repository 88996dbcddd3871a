"""Many batches at once: which job runs when, and what happens when one doesn't come back.

    Stream --ask--> ready jobs --start--> Crew (threads or processes) --done--> Stream.next

The engine's lock guards the queue of ready jobs and the state of every ``Pending``; it is held for
bookkeeping only, never while a batch is computed. Jobs are started from the consumer's thread and
from wherever a job is reported done. With no workers, batches are computed when they are asked for.
"""

from __future__ import annotations

import collections
import functools
import logging
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Literal

from adapters.assemble import Assembled, Plan, aligned_empty
from adapters.collate import Layout
from adapters.engine.jobs import Crew, Job, Kind, Pending
from adapters.engine.processes import Processes
from adapters.engine.stream import Stream
from adapters.engine.threads import Threads
from adapters.engine.tuning import Choice, Tuner, choose, pays_to_read_ahead
from adapters.errors import ClosedError, WorkerError
from adapters.sources import SequenceSource

log = logging.getLogger("adapters")

# A batch that takes longer is computed in parts, one per worker: the first batch comes sooner and
# fewer workers than batches in the window can all be busy.
_SPLIT_SECONDS = 0.05
# Batches that take less go to a worker several at a time. Handing over a job costs about 30 us with
# threads and 0.5 ms of the trainer's interpreter with processes (loky 3.7, two cores).
_GROUP_SECONDS = {"threads": 0.001, "processes": 0.008}
# A batch is given up when that many worker processes have died over it.
_TRIES = 3
# All batches are, when the pool has been replaced that often and none got done in between.
_RESTARTS = 6
_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """What the user asked for.

    Args:
        workers: How many; 0 computes in the consumer's thread.
        use_multiprocessing: Processes, not threads. With ``"auto"``, False leaves the choice open.
        max_queue_size: Batches that may be ready or under way ahead of the consumer.
    """

    workers: int | Literal["auto"] = "auto"
    use_multiprocessing: bool = False
    max_queue_size: int = 10


class Engine:
    """The workers of one sequence, and the queue before them.

    Args:
        plan: What is computed.
        settings: By whom.
    """

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan = plan
        self._settings = settings
        self._choice: Choice | None = None
        if settings.workers != "auto":
            kind = "processes" if settings.use_multiprocessing else "threads"
            self._choice = Choice(kind if settings.workers else "inline", settings.workers)
        self._tuner: Tuner | None = None
        self._crew: Crew | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._ready: collections.deque[Job] = collections.deque()
        self._running = 0
        self._lost: list[Job] = []
        self._restarts = 0
        self._layout: Layout | None = None
        self._batch_seconds = 0.0
        self._consumer_seconds = 0.0
        self._parked: Stream | None = None
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._users = 0
        self._source_epoch: int | None = None
        self.closed = False

    # --- streams ---

    def stream(self, epoch: int, step: int, shuffled: bool) -> Stream:
        """A stream from this batch on; the parked one where it stands just there."""
        if self.closed:
            raise ClosedError("the sequence is closed: make a new one")
        parked, self._parked = self._parked, None
        if parked is not None and not parked.closed:
            if (parked.position, parked._shuffled) == ((epoch, step), shuffled):
                return parked
            parked.close()
        stream = Stream(self, epoch, step, shuffled)
        self._streams.add(stream)
        return stream

    def park(self, stream: Stream) -> None:
        """Keep a stream that has come to the end of an epoch for the next one."""
        if self._parked is not None and self._parked is not stream:
            self._parked.close()
        self._parked = stream

    def choose_workers(self, stream: Stream) -> None:
        """With ``workers="auto"``, measure the stream's first batches and decide."""
        if self._choice is None and not stream.failed:
            self._choice = choose(stream, self.plan, self._settings.use_multiprocessing)
            if self._choice is not None:
                log.info("%s", self._choice.reason)

    @property
    def depth(self) -> int:
        """Batches under way ahead of the consumer."""
        choice = self._choice
        if choice is None or not choice.count:
            return 0
        if choice.only_if_busy and not pays_to_read_ahead(
            self._batch_seconds, self._consumer_seconds
        ):
            return 0
        return self._settings.max_queue_size

    # --- jobs ---

    def ask(self, pending: Pending) -> None:
        """Queue the jobs that make up a batch."""
        if self._choice is None or not self.depth:
            return
        pending.queued = True
        with self._changed:
            crew = self._open_crew(self._choice)
            if self._splits(crew):
                self._queue_parts(crew, pending)
                return
            last = self._ready[-1] if self._ready else None
            if last and last.kind is Kind.WHOLE and len(last.batches) < self._group_size(crew):
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
                    job.batches.remove(pending)
                    self._crew.discard(pending)
                if job.batches:
                    self._running += 1
                    try:
                        self._crew.submit(job, functools.partial(self._done, self._crew))
                    except RuntimeError as error:
                        self._running -= 1
                        if "shutdown" not in str(error):
                            raise
                        self.closed = True  # The interpreter is going down.
                        self._changed.notify_all()

    def compute(self, epoch: int, index: int) -> Assembled:
        """Compute a batch in the calling thread."""
        started = time.perf_counter()
        assembled = self.plan.batch(epoch, index, aligned_empty)
        self._batch_seconds = time.perf_counter() - started
        self._layout = assembled.layout
        return assembled

    def result(self, pending: Pending) -> Assembled:
        """Wait for a batch.

        Raises:
            Exception: What its computation raised.
            WorkerError: Worker processes died over it again and again.
            ClosedError: The engine was closed meanwhile.
        """
        if not pending.queued and not pending.done:
            pending.outcome = self.compute(pending.epoch, pending.index)
            pending.done = True
        if not pending.done or pending.outcome is None:
            self._await(pending)
        outcome = pending.outcome
        assert outcome is not None
        if pending.seconds:
            self._batch_seconds = pending.seconds
        self._layout = outcome.layout
        return outcome

    def _await(self, pending: Pending) -> None:
        with self._changed:
            while not pending.done:
                if self.closed or pending.dropped:
                    raise ClosedError("the sequence was closed while a batch was awaited")
                if self._lost and not self._running:
                    self._recover()
                else:
                    self._changed.wait(_WAIT_SECONDS)
            if pending.error is not None:
                raise pending.error
            if pending.outcome is None:
                assert self._crew is not None
                pending.outcome = self._crew.collect(pending)

    def delivered(self, busy_seconds: float, waited_seconds: float) -> None:
        """Take note of how long the consumer was busy with one batch and waited for the next."""
        self._consumer_seconds += (busy_seconds - self._consumer_seconds) / 8
        if self._tuner is not None:
            self._tuner.observe(waited_seconds)

    def drop(self, pendings: list[Pending]) -> None:
        """Nobody wants these batches any more."""
        with self._changed:
            for pending in pendings:
                pending.dropped = True
                if pending.done and pending.outcome is None and self._crew is not None:
                    self._crew.discard(pending)
            self._changed.notify_all()

    def enter_epoch(self, epoch: int) -> None:
        """Let a source with epochs of its own know that this one begins.

        Its hooks are called once per epoch, however often an epoch is replayed.
        """
        source = self.plan.source
        if not isinstance(source, SequenceSource) or not source.own_epochs:
            return
        with self._changed:
            if self._source_epoch is None:
                self._source_epoch = 0
                source.begin_epoch()
            changed = self._source_epoch < epoch
            while self._source_epoch < epoch:
                source.end_epoch()
                self._source_epoch += 1
                source.begin_epoch()
            if changed and self._crew is not None:
                self._crew.refresh()

    # --- the end ---

    def retain(self) -> None:
        """Somebody will read stream after stream and say when that is over."""
        with self._changed:
            self._users += 1

    def release(self) -> None:
        """End the workers, unless somebody reads; they start again when they are needed."""
        with self._changed:
            self._users -= 1
            if self._users or any(
                not stream.closed and stream is not self._parked for stream in self._streams
            ):
                return
            if self._parked is not None:
                self._parked.close()
                self._parked = None
            crew = self._take_crew()
        self._end(crew)

    def close(self) -> None:
        """End the workers for good; whoever waits for a batch gets a ``ClosedError``."""
        with self._changed:
            self.closed = True
            self._parked = None
            crew = self._take_crew()
            self._changed.notify_all()
        self._end(crew)

    def _end(self, crew: Crew | None) -> None:
        if crew is not None:
            # The garbage collector may have called from within a frame that holds the lock, which
            # a worker needs in order to end.
            crew.close(wait=not self._lock._is_owned())  # type: ignore[attr-defined]

    def _take_crew(self) -> Crew | None:
        crew, self._crew = self._crew, None
        self._ready.clear()
        self._lost.clear()
        self._running = 0
        return crew

    # --- with the lock held ---

    def _open_crew(self, choice: Choice) -> Crew:
        if self.closed:
            raise ClosedError("the sequence is closed: make a new one")
        if self._crew is None:
            count = choice.ceiling or choice.count
            if choice.kind == "processes":
                held = 2 * self._settings.max_queue_size + 8
                self._crew = Processes(self.plan, count, held)
            else:
                self._crew = Threads(self.plan, count)
            if self._settings.workers == "auto":
                self._tuner = Tuner(choice)
        return self._crew

    def _limit(self, crew: Crew) -> int:
        """Jobs that may be with the crew: a process gets its next one before it is done."""
        active = self._tuner.active if self._tuner is not None else crew.count
        return 2 * active if crew.name == "processes" and active == crew.count else active

    def _group_size(self, crew: Crew) -> int:
        if not self._batch_seconds:
            return 1
        fair = max(1, self._settings.max_queue_size // (2 * crew.count))
        return max(1, min(fair, int(_GROUP_SECONDS[crew.name] / self._batch_seconds)))

    def _splits(self, crew: Crew) -> bool:
        return (
            self._layout is not None
            and crew.count > 1
            and self.plan.order.batch_size > 1
            and self._batch_seconds > _SPLIT_SECONDS
        )

    def _queue_parts(self, crew: Crew, pending: Pending) -> None:
        order = self.plan.order
        pending.layout = self._layout
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
            crew.discard(pending)
            pending.layout_changed, pending.layout, pending.memory = False, None, None
            pending.seconds, pending.skipped = 0.0, 0
            self._requeue(Job(Kind.WHOLE, [pending]))
        elif job.kind is Kind.PART and self.plan.batch_transform is not None:
            self._requeue(Job(Kind.FINISH, [pending]))
        else:
            pending.done = True

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
            job.lost = False
            for pending in reversed(job.batches):
                if len(pending.killers) >= _TRIES or self._restarts > _RESTARTS:
                    self._give_up(pending, killers)
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
        pending.done = True
