"""Supply of a sequence's batches: computes them inline, or has workers read ahead.

    Stream --key--> Supply --ask--> Dispatcher --> executor
                      |                               |
    Stream <----------+--- compute (inline)           |
           <----------+--- result <------ wait <------+

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
"""

from __future__ import annotations

import contextlib
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
from adapters.batch.plan import Allocate, Assembled, BatchKey, Plan
from adapters.cpus import usable_cpus
from adapters.engine.autotune import Choice, Comparison, Losses, Trial
from adapters.engine.dispatch import Dispatcher
from adapters.engine.executors import EXECUTORS, Settings
from adapters.engine.tasks import DONE, UNSUBMITTED, Executor, Future, InterpreterEndsError
from adapters.engine.waits import Waits
from adapters.errors import ClosedError, NotPicklableError
from adapters.seeding import left_to_others

log = logging.getLogger("adapters")

# Batches that take longer are read ahead while that is compared with computing them inline.
_LONG_BATCH_SECONDS = 0.001
# Processes aren't used if this many have died and none was ready.
_STARTING_DEATHS = 3
_SINGULAR = {"threads": "thread", "processes": "process"}
_UNDECIDED = Choice("undecided", reason='"auto", which the first batches will decide')


class WorkerState(enum.Enum):
    """State of a sequence's workers."""

    UNDECIDED = "the first batches decide"
    INLINE = "there are none"
    DEFERRED = "processes that don't pay for their start yet"
    STARTING = "processes, of which none is ready yet"
    WORKING = "batches are asked of them"


class Supply:
    """Workers that compute a sequence's plan, and their choice, by the user's settings."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan = plan
        self._settings = settings
        self.dispatcher = Dispatcher(
            plan, self._open_executor, lambda: self._active, settings.max_queue_size
        )
        self._by_auto = settings.workers == "auto" and not settings.use_multiprocessing
        """True if the user left the kind of workers open."""
        count = usable_cpus() if settings.workers == "auto" else settings.workers
        choice = Choice()
        if self._by_auto:
            choice, self._trial = _UNDECIDED, Trial(plan)
        elif count:
            kind = settings.kind or ("processes" if settings.use_multiprocessing else "threads")
            name = _SINGULAR.get(kind, kind) if count == 1 else kind
            choice = Choice(kind, count, f"{count} {name}")
        self._comparison: Comparison
        """Comparison of numbers of active workers, to find the fastest for the consumer."""
        self._choose(choice)
        self.ahead_elsewhere = 0
        """Batches that the framework reads ahead of the trainer, in its own thread."""
        self.staged = 0
        """Batches ahead of the trainer that are on its device, or being copied there."""
        self.batches_left: float = 0
        """Number of batches until the end of the epoch in the stream that is being read."""
        self.batches_after: float = 0
        """Number of batches known to be requested after that."""
        self.waits = Waits()
        self._losses = Losses()
        self._batch_seconds = 0.0
        """Time of the latest batch."""
        self._alone_seconds = math.inf
        """Shortest time of a batch, which had no competition for the GIL."""
        self._has_warned = False
        self._outdated = False
        """True if workers have the plan of an earlier epoch."""
        self._lock = threading.RLock()

    # --- the choice ---

    @property
    def undecided(self) -> bool:
        """True if ``workers="auto"`` has not been decided yet."""
        return self._choice is _UNDECIDED

    @property
    def state(self) -> WorkerState:
        """State of the workers."""
        choice, executor, settings = self._choice, self.dispatcher.executor, self._settings
        if not choice.count:
            return WorkerState.UNDECIDED if choice is _UNDECIDED else WorkerState.INLINE
        awaited = settings.isolated or (settings.use_multiprocessing and settings.at_once)
        if choice.kind != "processes" or awaited:
            return WorkerState.WORKING
        if executor is None:
            return WorkerState.DEFERRED
        return WorkerState.STARTING if executor.starting else WorkerState.WORKING

    @property
    def at_full_speed(self) -> bool:
        """True if the workers are chosen and all ready, so that measurements show their speed."""
        if self.state not in (WorkerState.INLINE, WorkerState.WORKING):
            return False
        executor = self.dispatcher.executor
        if executor is None:
            return self._choice.kind != "processes"
        return executor.ready >= executor.count

    def choose_workers(self, stream: Any) -> None:
        """Compute and measure a ``Stream``'s next batches, and choose when enough is known."""
        choice = self._trial.step(stream)
        if choice is not None and self.undecided:  # Not by another stream's thread.
            self._choose(choice)
            log.info('workers="auto": %s', choice.reason)

    def _choose(self, choice: Choice) -> None:
        counts = self._counts(choice)
        self._comparison = Comparison(counts, self._settings.window(max(counts)) + 2)
        self._choice = choice

    def _counts(self, choice: Choice) -> list[int]:
        """Numbers of workers that may be the fastest, and the first one to use."""
        settings = self._settings
        if choice.only_if_busy:
            # Long batches are better read ahead meanwhile.
            return [1, 0] if choice.seconds > _LONG_BATCH_SECONDS else [0, 1]
        # A time limit for a batch works only in another thread.
        none = [0] if math.isinf(settings.timeout_seconds) else []
        if choice.kind == "threads":
            several = choice.count > 1 and not self.plan.one_thread_at_a_time
            return [choice.count, 1, *none] if several else [1, *none]
        late = choice.kind == "processes" and self._by_auto and not settings.isolated
        return [choice.count, *none] if late else [choice.count]

    @property
    def _active(self) -> int:
        """Number of workers that may be busy."""
        choice, executor = self._choice, self.dispatcher.executor
        if choice.kind == "threads":
            # A single thread keeps the order: some data sets count their calls.
            return max(1, self._comparison.current)
        return choice.count if executor is None else executor.count  # Some may start later.

    @property
    def window(self) -> int:
        """Number of batches that may be ready or in progress, for the workers active now."""
        return self._within_room(self._settings.window(self._active))

    @property
    def most_ready(self) -> int:
        """``max_queue_size``, or fewer if the executor has no room for them."""
        return self._within_room(self._settings.max_queue_size)

    def _within_room(self, batches: int) -> int:
        executor = self.dispatcher.executor
        if executor is None or executor.window is None:
            return batches
        return min(batches, executor.window)

    @property
    def batches_ahead(self) -> int:
        """Part of the window that the stream fills; 0 if it computes batches inline."""
        if self.state is not WorkerState.WORKING or not self._comparison.current:
            return 0
        if self._choice.only_if_busy and self.ahead_elsewhere:
            return 0
        return max(1, self.window - self.ahead_elsewhere - self.staged)

    def change_workers(self) -> None:
        """Start processes that ``"auto"`` has chosen, once they pay for their start.

        Called when the stream that is being read has no batch under way.
        """
        state = self.state
        if state is WorkerState.DEFERRED and self._comparison.current:
            from adapters.engine.pool import shared_pool  # Programs without processes need none.

            # Nothing waits for the start, but it takes CPUs from the trainer. An idle process
            # starts at once.
            pool, left = shared_pool(), self.batches_left + self.batches_after
            start_seconds = pool.start_seconds or self._settings.start_seconds
            if pool.idle or self._losses.after(left) >= start_seconds:
                self.start_workers()
        elif state is WorkerState.STARTING:
            executor = self.dispatcher.executor
            if executor is None or len(executor.deaths) < _STARTING_DEATHS:
                self.start_workers()  # Wakes them if they rest, and replaces dead ones.
            else:
                self._give_up_workers(f"{executor.deaths[-1]} before it was ready")

    def start_workers(self) -> bool:
        """Start the workers, if any are chosen; they have the plan as it is now.

        Returns:
            True if there are workers.
        """
        if not self._choice.count:
            return False
        try:
            with self._lock:
                executor = self.dispatcher.open()
                if self._outdated:
                    self._outdated = False
                    try:
                        executor.refresh()
                    except BaseException:  # Ctrl-C, too.
                        self._outdated = True
                        raise
        except InterpreterEndsError:  # The main thread has ended, and another thread still trains.
            self._choose(Choice())
        except (NotPicklableError, OSError, RuntimeError, TypeError) as error:
            if not (self._by_auto or isinstance(error, NotPicklableError)):
                raise
            # As a text: a log that keeps the error would keep the files in its traceback open.
            self._give_up_workers(str(error))
        return self._choice.count > 0

    def _give_up_workers(self, obstacle: str) -> None:
        kind = "threads" if self._choice.kind == "threads" else "processes"
        self._compute_inline(f"{kind} can't be used: {obstacle}")

    def _compute_inline(self, why: str) -> None:
        """Compute all batches inline from now on."""
        reason = f"inline, as {why}"
        log.warning("batches are computed %s", reason)
        self._choose(Choice(reason=reason))
        self.dispatcher.stop(for_good=False)

    # --- for people ---

    @property
    def chosen(self) -> Settings:
        """Settings that would request the present workers."""
        if self.undecided:
            return self._settings
        choice, processes = self._choice, self._choice.kind == "processes"
        return dataclasses.replace(
            self._settings, workers=choice.count, use_multiprocessing=processes
        )

    @property
    def description(self) -> str:
        """Description of the workers, for people."""
        choice, executor, comparison = self._choice, self.dispatcher.executor, self._comparison
        text = choice.reason
        if executor is not None and executor.starting:
            text += ", which are starting"
        elif self.state is WorkerState.DEFERRED:
            text += ", which are started once there is work enough for them"
        current = comparison.current
        if current == choice.count or not comparison.decided or choice.only_if_busy:
            return text
        return f"{text}; {current or 'none'} at work, as batches come faster to the trainer then"

    # --- batches ---

    def ask(self, future: Future) -> None:
        """Have workers compute a batch, if there are any."""
        if self.batches_ahead and self.start_workers():
            self.plan.prefetch(future.key, elsewhere=self._choice.kind == "processes")
            # Otherwise, the main thread ended just now, and the reader computes the batch.
            with contextlib.suppress(InterpreterEndsError):
                self.dispatcher.ask(future, self._batch_seconds)

    def compute(self, key: BatchKey, allocate: Allocate = aligned_empty) -> Assembled:
        """Compute a batch in the calling thread, in memory from ``allocate``."""
        started = time.perf_counter()
        assembled = self.plan.batch(key, allocate)
        self._note_time(time.perf_counter() - started)
        return assembled

    def _note_time(self, seconds: float) -> None:
        self._batch_seconds = seconds
        if self.batches_left != 1:  # The last batch of an epoch may be smaller.
            self._alone_seconds = min(self._alone_seconds, seconds)

    def result(self, future: Future) -> Assembled:
        """Return the batch; blocks until it is there.

        Raises:
            Exception: The error from its computation.
            WorkerError: Several worker processes died in it.
            ClosedError: The engine was closed meanwhile.
            multiprocessing.TimeoutError: The workers took too long.
        """
        if future.state is UNSUBMITTED:
            self._compute_here(future)
        elif future.outcome is None:  # A thread writes it before it reports its task.
            try:
                self._wait(future)
            except Exception as error:
                if not self._retry_inline(future, error):
                    raise
        outcome = future.outcome
        assert outcome is not None
        if future.spent.seconds:
            self._note_time(future.spent.seconds)
        return outcome

    def _compute_here(self, future: Future) -> None:
        future.outcome = self.compute(future.key)
        if future.state is not DONE:
            future.become(DONE)

    def _retry_inline(self, future: Future, error: Exception) -> bool:
        """Retry a batch inline if it failed in a process that ``"auto"`` chose; True on success.

        A file descriptor, for example, can be sent to another process but has no meaning there.
        """
        # UNSUBMITTED: its error has been raised, so that the next read computes it again.
        there = future.state is UNSUBMITTED and getattr(future.executor, "name", "") == "processes"
        if not (self._by_auto and there):
            return False
        try:
            self._compute_here(future)
        except Exception:
            return False
        if self._choice.count:  # Not yet for an earlier batch.
            why = f"batches fail in worker processes: {type(error).__name__}: {error}"
            self._compute_inline(why)
        return True

    def _wait(self, future: Future) -> None:
        try:
            with left_to_others(), user_code.left_to_others():
                self.dispatcher.wait(future, self._settings.timeout_seconds)
        except ClosedError:
            if future.abandoned or self.closed:
                raise
            # Its workers were released to others, or ended with the main thread.
            self._compute_here(future)

    def delivered(
        self, position: tuple[int, int], moment: float, waited_seconds: float, busy_seconds: float
    ) -> None:
        """Record how long the consumer was busy with one batch and waited for the next."""
        self.waits.note(position, moment, waited_seconds, busy_seconds)
        choice, comparison = self._choice, self._comparison
        if not choice.count:
            return
        if self.state is not WorkerState.WORKING:
            self._losses.note(waited_seconds, busy_seconds if self.ahead_elsewhere else 0.0)
        # While processes start, the pace says nothing about their number.
        elif len(comparison.settings) > 1 and (choice.kind == "threads" or self.at_full_speed):
            comparison.delivered(moment, self._alone_seconds)

    def enter_epoch(self, epoch: int) -> None:
        """Tell a source that changes between epochs that this epoch begins.

        Its hooks are called once per epoch, however often an epoch is replayed.
        """
        if self.plan.changes_between_epochs:
            with self._lock:
                if self.plan.enter_epoch(epoch):
                    self.refresh()

    def has_changed(self) -> bool:
        """True if the plan has changed since processes got it, say by a callback; sends it again.

        A plan that changes between epochs is sent again anyway.
        """
        executor = self.dispatcher.executor
        if executor is None or self._outdated or self.plan.changes_between_epochs:
            return False
        if changed := executor.is_outdated:
            self.refresh()
        return changed

    def refresh(self) -> None:
        """Send processes the source as it is now, before their next task; threads always see it."""
        self._outdated = True

    @property
    def closed(self) -> bool:
        """True if the workers have ended for good."""
        return self.dispatcher.closed

    # --- for the dispatcher ---

    def _open_executor(self, lock: Any, changed: Callable[[], None]) -> Executor:
        """Make the executor."""
        choice, settings, unsafe = self._choice, self._settings, self.plan.not_thread_safe
        if not choice.count:
            raise InterpreterEndsError("the main thread has ended")
        self._outdated = False  # The plan is sent as it is now.
        executor = EXECUTORS[choice.kind](self.plan, choice.count, settings, lock, changed)
        requested = choice.kind == "threads" and not self._by_auto
        if requested and unsafe and choice.count > 1 and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: run by one of %d threads at a time, as not declared thread-safe; write "
                "thread_safe=True if several threads may run it at once, or use processes",
                " and ".join(unsafe),
                choice.count,
            )
        return executor
