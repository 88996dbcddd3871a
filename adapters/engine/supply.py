"""Manager of a sequence's workers: computes batches inline, or has workers read ahead.

    Stream --key--> Supply --ask--> Dispatcher --> executor
                      |                               |
                      +--- compute (inline)           +--> Stream.next

Without workers, and when workers wouldn't pay off, batches are computed in the consumer's thread,
when they are requested. ``WorkerState`` tells the current mode:

    UNDECIDED --the first batches are measured--> INLINE, DEFERRED or WORKING
    DEFERRED  --processes pay-------------------> STARTING
    STARTING  --the first one is ready----------> WORKING
    WORKING   --the workers are released--------> DEFERRED, or WORKING again with the next batch
    any       --processes can't be used---------> INLINE

Threads, and processes that the user requested, are WORKING from the first batch, which waits for
them. While processes that ``"auto"`` chose, or that may start later, are DEFERRED or STARTING,
batches are computed inline.

Several numbers limit the batches ahead of the consumer:

| number              | limits                                                                  |
|---------------------|-------------------------------------------------------------------------|
| ``max_queue_size``  | batches that are ready; the user's setting                              |
| ``_executor_limit`` | batches that the executor has memory for                                |
| ``most_ready``      | the smaller of these two                                                |
| ``window``          | batches ready or in progress; larger if there are many active workers   |
| ``batches_ahead``   | the part of the window that the stream fills; 0 without active workers  |
| ``group_limit``     | batches that TensorFlow's reader takes at once                          |
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from adapters import user_code
from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey
from adapters.batch.plan import Allocate, Assembled, Plan
from adapters.clock import Spent
from adapters.engine.autotune import Comparison
from adapters.engine.dispatch import Dispatcher
from adapters.engine.executors import EXECUTORS, Settings
from adapters.engine.jobs import FAILED, HERE, UNSUBMITTED, Executor, InterpreterEndsError, Pending
from adapters.engine.tuning import Choice, Trial, Tuner, Untried
from adapters.engine.waits import Losses, Waits
from adapters.errors import ClosedError, NotPicklableError, WorkerError
from adapters.seeding import left_to_others

log = logging.getLogger("adapters")

# Batches that take longer are read ahead while that is compared with computing them inline.
_LONG_BATCH_SECONDS = 0.001


class WorkerState(enum.Enum):
    """State of a sequence's workers."""

    UNDECIDED = "the first batches decide"
    INLINE = "there are none"
    DEFERRED = "processes that don't pay for their start yet"
    STARTING = "processes, of which none is ready yet"
    WORKING = "batches are asked of them"


class Supply:
    """Workers of one sequence, and their choice.

    Args:
        plan: The plan to compute.
        settings: The user's settings.
    """

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan = plan
        self._settings = settings
        self._choice: Choice | None = None
        if settings.workers != "auto":
            kind = settings.kind or ("processes" if settings.use_multiprocessing else "threads")
            self._choice = Choice(kind if settings.workers else "inline", settings.workers)
        self.ahead_elsewhere = 0
        """Batches that the framework reads ahead of the trainer, in its own thread."""
        self.staged = 0
        """Batches ahead of the trainer that are on its device, or being copied there."""
        self._trial: Trial | None = None
        self._tuner: Tuner | None = None
        self._dispatcher = Dispatcher(
            plan, self._open_executor, self._active, settings.max_queue_size
        )
        self._executor_limit = math.inf
        """Number of batches that the executor has memory for."""
        self.waits = Waits()
        self.batches_left: float = 0
        """Number of batches until the end of the epoch in the stream that is being read."""
        self.batches_after: float = 0
        """Number of batches known to be requested after that."""
        self._batch_seconds = 0.0
        """Time of the latest batch."""
        self._alone_seconds = math.inf
        """Time of a batch without competition for the GIL, see ``_note_time``."""
        self._losses = Losses()
        self._comparison: Comparison | None = None
        """Comparison of numbers of active workers, to find the fastest for the consumer."""
        self._has_warned = self._left_processes = False
        self._outdated = False
        """True if processes have the plan of an earlier epoch."""
        self._lock = threading.RLock()

    @property
    def undecided(self) -> bool:
        """True if ``workers="auto"`` has not been decided yet."""
        return self._choice is None

    @property
    def state(self) -> WorkerState:
        """State of the workers."""
        choice, dispatcher = self._choice, self._dispatcher
        if choice is None:
            return WorkerState.UNDECIDED
        if not choice.count:
            return WorkerState.INLINE
        if choice.kind != "processes" or not self._inline_meanwhile:
            return WorkerState.WORKING
        if dispatcher.is_open:
            return WorkerState.STARTING if dispatcher.starting else WorkerState.WORKING
        return WorkerState.DEFERRED

    @property
    def at_full_speed(self) -> bool:
        """True if the workers are chosen and all ready, so that measurements show their speed."""
        choice = self._choice
        if choice is None or self.state not in (WorkerState.INLINE, WorkerState.WORKING):
            return False
        opened = self._dispatcher.is_open or choice.kind != "processes"
        return opened and self._dispatcher.complete

    def choose_workers(self, stream: Untried) -> None:
        """Compute and measure the stream's next batches, and choose when enough is known."""
        if self._trial is None:
            self._trial = Trial(self.plan, self._settings.use_multiprocessing)
        self._choice = self._trial.step(stream)
        if self._choice is not None:
            log.info("%s", self._choice.reason)

    @property
    def chosen(self) -> Settings:
        """Settings that would request the present workers."""
        choice = self._choice
        if choice is None:
            return self._settings
        active = self._tuner.active if self._tuner is not None else choice.count
        processes = choice.kind == "processes"
        return dataclasses.replace(self._settings, workers=active, use_multiprocessing=processes)

    @property
    def description(self) -> str:
        """Description of the workers, for people."""
        choice, state = self._choice, self.state
        if choice is None:
            return '"auto", which the first batches will decide'
        there = ""
        if self._dispatcher.starting:
            there = ", which are starting"
        elif state is WorkerState.DEFERRED:
            there = ", which are started once there is work enough for them"
        if choice.reason:
            return f"{choice.reason}{there}{'' if choice.only_if_busy else self._fewer}"
        if not choice.count:
            return "none, batches are made when they are asked for"
        found = self.finding
        return f"{choice.count} {choice.kind}{there}{found and ': '}{found}{self._fewer}"

    @property
    def _fewer(self) -> str:
        """Number of workers that work at once, for people; empty if all of them do."""
        choice, comparison = self._choice, self._comparison
        if choice is None or not self._may_use_fewer:
            return ""
        if comparison is None or not comparison.decided or comparison.current == choice.count:
            return ""
        if not comparison.current:
            return "; none at work, as batches come faster to the trainer without"
        return "; one at work, as batches come faster to the trainer than from several"

    @property
    def finding(self) -> str:
        """Findings of the workers about their work, for people."""
        return self._dispatcher.finding

    @property
    def batches_ahead(self) -> int:
        """Number of batches that the stream has under way; 0 if it computes them inline."""
        choice = self._choice
        if choice is None or self.state is not WorkerState.WORKING:
            return 0
        if choice.only_if_busy and self.ahead_elsewhere:
            return 0
        if self._may_use_fewer and not self._comparison_of_workers().current:
            return 0
        return max(1, self.window - self.ahead_elsewhere - self.staged)

    @property
    def window(self) -> int:
        """Number of batches that may be ready or in progress, for the workers active now."""
        choice = self._choice
        chosen = 0 if choice is None else choice.count
        working = chosen if self._tuner is None else self._tuner.active
        threads = choice is not None and choice.kind == "threads"
        if threads and (
            self.plan.one_thread_at_a_time or self._comparison_of_workers().current < chosen
        ):
            working = min(working, 1)
        return int(min(self._executor_limit, self._settings.window(working)))

    @property
    def most_ready(self) -> int:
        """Number of batches that may be ready ahead of the trainer."""
        return int(min(self._executor_limit, self._settings.max_queue_size))

    @property
    def _may_use_fewer(self) -> bool:
        """True if batches may also be computed by fewer workers than chosen, or by none."""
        choice, settings = self._choice, self._settings
        if choice is None:
            return False
        if choice.kind == "threads":
            return True
        requested = settings.workers != "auto" or settings.use_multiprocessing
        return choice.kind == "processes" and not (requested or settings.isolated)

    def _comparison_of_workers(self) -> Comparison:
        """Comparison of all chosen workers with fewer of them, and with none."""
        if self._comparison is None:
            choice = self._choice
            assert choice is not None
            if choice.only_if_busy:
                # Long batches are better read ahead meanwhile.
                counts = [1, 0] if choice.seconds > _LONG_BATCH_SECONDS else [0, 1]
            else:
                counts = [choice.count]
                if choice.kind == "threads":
                    counts = (
                        [1]
                        if self.plan.one_thread_at_a_time or choice.count == 1
                        else [choice.count, 1]
                    )
                # A time limit for a batch works only in another thread.
                if math.isinf(self._settings.timeout_seconds):
                    counts.append(0)
            most = self._settings.window(max(counts))
            self._comparison = Comparison(counts, most + 2)
        return self._comparison

    @property
    def _inline_meanwhile(self) -> bool:
        """True if batches are computed inline until processes are ready."""
        settings = self._settings
        return not (settings.isolated or (settings.use_multiprocessing and settings.at_once))

    def change_workers(self) -> None:
        """Start processes that ``"auto"`` has chosen, once they pay for their start.

        Called when the stream that is being read has no batch under way.
        """
        state, comparison = self.state, self._comparison
        if state is WorkerState.DEFERRED and (comparison is None or comparison.current):
            left = self.batches_left + self.batches_after
            if self._losses.outweigh_processes(left, self._settings.start_seconds):
                self.start_workers()
        elif state is WorkerState.STARTING:
            if (death := self._dispatcher.death_at_start) is None:
                self.start_workers()  # Wakes them if they rest.
                return
            self._fall_back_to_inline(WorkerError(f"{death} before it was ready"))
            self._dispatcher.stop(for_good=False)

    @property
    def group_limit(self) -> int:
        """Batches that may be taken at once without exceeding the limit ahead of the trainer."""
        if self.undecided or self.batches_ahead:
            return 1
        return max(1, self.window - self.ahead_elsewhere)

    # --- batches ---

    def ask(self, pending: Pending) -> None:
        """Have workers compute a batch, if there are any."""
        if self.batches_ahead and self.start_workers():
            processes = self._choice is not None and self._choice.kind == "processes"
            with self._lock:
                if self._outdated:
                    self._outdated = False
                    self._send_again()
                    if not self.batches_ahead:
                        return
            self.plan.prefetch(pending.key, elsewhere=processes)
            self._dispatcher.ask(pending, self._batch_seconds)

    def start_workers(self) -> bool:
        """Start the workers, if any are chosen.

        Returns:
            True if there are workers.
        """
        if self._choice is None or not self._choice.count:
            return False
        try:
            self._dispatcher.open()
        except NotPicklableError as error:
            self._fall_back_to_inline(error)
        except InterpreterEndsError:
            # The main thread has ended, and another thread still trains.
            self._choice = Choice("inline", 0)
        except (OSError, RuntimeError, TypeError) as error:
            if self._settings.workers != "auto" or self._settings.use_multiprocessing:
                raise
            self._fall_back_to_inline(error)
        return self._choice.count > 0

    def start_jobs(self) -> None:
        """Let workers start on queued batches."""
        self._dispatcher.start_jobs()

    def compute(self, key: BatchKey, allocate: Allocate = aligned_empty) -> Assembled:
        """Compute a batch in the calling thread, in memory from ``allocate``."""
        started = time.perf_counter()
        assembled = self.plan.batch(key, allocate)
        self._note_time(time.perf_counter() - started, inline=True)
        return assembled

    def _note_time(self, seconds: float, inline: bool) -> None:
        """Record the time of a batch.

        No other batch runs beside an inline one, so the latest of them counts. A worker's batch
        counts if it took less. The last batch of an epoch may be smaller, and doesn't count.
        """
        self._batch_seconds = seconds
        if self.batches_left != 1 or math.isinf(self._alone_seconds):
            self._alone_seconds = seconds if inline else min(self._alone_seconds, seconds)

    def fulfil(self, pending: Pending, allocate: Allocate) -> None:
        """Compute a batch in the calling thread; an error is raised when the batch is read."""
        started, state = Spent.now(), HERE
        try:
            outcome = self.plan.batch(pending.key, allocate)
            self.plan.wait_for(outcome)
            pending.outcome = outcome
        except BaseException as error:
            pending.error, state = error, FAILED
        pending.spent = started.until_now()
        pending.seconds = pending.spent.seconds
        pending.become(state)

    def result(self, pending: Pending) -> Assembled:
        """Return the batch; blocks until it is there.

        Raises:
            Exception: The error from its computation.
            WorkerError: Several worker processes died in it.
            ClosedError: The engine was closed meanwhile.
            multiprocessing.TimeoutError: The workers took too long.
        """
        if pending.state is UNSUBMITTED:
            self._compute_here(pending)
        elif pending.state is not HERE:
            try:
                self._wait(pending)
            except Exception as error:
                if not self._retry_inline(pending, error):
                    raise
        outcome = pending.outcome
        assert outcome is not None
        if pending.seconds:
            self._note_time(pending.seconds, inline=False)
        return outcome

    def _compute_here(self, pending: Pending) -> None:
        pending.outcome = self.compute(pending.key)
        pending.become(HERE)

    def _retry_inline(self, pending: Pending, error: Exception) -> bool:
        """Retry a batch inline if it failed in a process that ``"auto"`` chose; True on success.

        A file descriptor, for example, can be sent to another process but has no meaning there.
        """
        settings, choice = self._settings, self._choice
        by_auto = settings.workers == "auto" and not settings.use_multiprocessing
        # Other batches may have failed there before the first one was found to work here.
        processes = choice is not None and (choice.kind == "processes" or self._left_processes)
        # UNSUBMITTED: its error has been raised, so that the next read computes it again.
        failed = pending.state is UNSUBMITTED and not isinstance(error, (ClosedError, WorkerError))
        if not (by_auto and processes and failed):
            return False
        try:
            self._compute_here(pending)
        except Exception:
            return False
        if not self._left_processes:
            self._leave_processes(error)
        return True

    def _leave_processes(self, error: Exception) -> None:
        """Compute inline from now on, as batches fail in worker processes."""
        self._left_processes = True
        reason = f"inline, as batches fail in worker processes: {type(error).__name__}: {error}"
        log.warning("%s", reason)
        self._choice, self._tuner = Choice("inline", 0, 0, reason), None
        self._dispatcher.stop(for_good=False)

    def _wait(self, pending: Pending) -> None:
        try:
            with left_to_others(), user_code.left_to_others():
                self._dispatcher.wait(pending, self._settings.timeout_seconds)
        except ClosedError:
            if pending.abandoned or self.closed:
                raise
            # Its workers were released to others, or ended with the main thread.
            self._compute_here(pending)

    def delivered(
        self, position: tuple[int, int], moment: float, waited_seconds: float, busy_seconds: float
    ) -> None:
        """Record how long the consumer was busy with one batch and waited for the next."""
        self.waits.note(position, moment, waited_seconds, busy_seconds)
        choice = self._choice
        if choice is not None and self.state in (WorkerState.DEFERRED, WorkerState.STARTING):
            self._losses.note(waited_seconds, busy_seconds if self.ahead_elsewhere else 0.0)
        threads = choice is not None and choice.kind == "threads"
        working, complete = self.state is WorkerState.WORKING, self._dispatcher.complete
        if self._may_use_fewer and working and (complete or threads):
            self._comparison_of_workers().delivered(moment, self._alone_seconds)
        # While workers start, or rest, waiting says nothing about their number.
        if self._tuner is not None and complete and self.batches_ahead:
            self._tuner.observe(waited_seconds)

    def drop(self, pendings: list[Pending]) -> None:
        """Abandon these batches."""
        self._dispatcher.drop(pendings)

    def enter_epoch(self, epoch: int) -> None:
        """Tell a source that changes between epochs that this epoch begins.

        Its hooks are called once per epoch, however often an epoch is replayed.
        """
        if self.plan.changes_between_epochs:
            with self._lock:
                if self.plan.enter_epoch(epoch):
                    self.refresh()

    def refresh(self) -> None:
        """Send processes the source as it is now; threads always see it."""
        with self._lock:
            # Processes without jobs get it with their first job, not in each epoch.
            self._outdated = self.state is WorkerState.STARTING
            if not self._outdated:
                self._send_again()

    def _send_again(self) -> None:
        try:
            self._dispatcher.refresh()
        except NotPicklableError as error:
            self._fall_back_to_inline(error)
            self._dispatcher.stop(for_good=False)

    def _fall_back_to_inline(self, error: Exception) -> None:
        kind = "threads" if self._choice and self._choice.kind == "threads" else "processes"
        log.warning("batches are computed inline, as %s can't be used: %s", kind, error)
        self._choice = Choice("inline", 0, 0, f"inline ({error})")

    @property
    def closed(self) -> bool:
        """True if the workers have ended for good."""
        return self._dispatcher.closed

    # --- for the dispatcher ---

    def _open_executor(self, lock: Any, changed: Callable[[], None]) -> Executor:
        """Make the executor, and the tuner of its number of workers."""
        choice, settings = self._choice, self._settings
        assert choice is not None
        count = choice.ceiling or choice.count
        if settings.workers == "auto":
            self._tuner = Tuner(choice)
        executor = EXECUTORS[choice.kind](self.plan, count, settings, lock, changed)
        self._executor_limit = math.inf if executor.window is None else executor.window
        return executor

    def _warn_of_one_at_a_time(self, threads: int) -> None:
        """Warn once if requested threads wait for each other, as user code isn't thread-safe."""
        unsafe = self.plan.not_thread_safe
        if threads > 1 and unsafe and self._settings.workers != "auto" and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: run by one of %d threads at a time, as not declared thread-safe; write "
                "thread_safe=True if several threads may run it at once, or use processes",
                " and ".join(unsafe),
                threads,
            )

    def _active(self, executor: Executor) -> int:
        """Number of workers that may be busy; warns if they wait for each other."""
        if executor.name == "threads":
            self._warn_of_one_at_a_time(executor.count)
            at_once = 1 if self.plan.one_thread_at_a_time else self._comparison_of_workers().current
            # A single thread keeps the order: some data sets count their calls.
            if at_once <= 1:
                return 1
        return self._tuner.active if self._tuner is not None else executor.count
