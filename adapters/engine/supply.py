"""Who computes the batches that a stream asks for, and whether anybody does ahead of time.

    Stream --key--> Supply --ask--> Dispatcher --> Crew
                      |                              |
                      +--- compute (inline)          +--> Stream.next

With no workers, and when workers wouldn't pay, batches are computed when they are asked for, in the
consumer's thread. ``WorkerState`` says which of these it is:

    UNDECIDED --the first batches are measured--> INLINE, DEFERRED or WORKING
    DEFERRED  --processes pay-------------------> STARTING
    STARTING  --the first one is ready----------> WORKING
    WORKING   --the workers are let go----------> DEFERRED, or WORKING again with the next batch
    any       --processes can't be used---------> INLINE

Threads, and processes that the user asked for, are WORKING from the first batch: it waits for them.
While processes that ``"auto"`` chose, or that may come later, are DEFERRED or STARTING, batches are
computed inline.
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
from adapters.engine.consumer import Consumer
from adapters.engine.crews import CREWS
from adapters.engine.dispatch import Dispatcher
from adapters.engine.jobs import Crew, InterpreterEndsError, Pending
from adapters.engine.settings import Settings
from adapters.engine.states import EXPECTED, FAILED, HERE
from adapters.engine.tuning import Choice, Trial, Tuner, Untried
from adapters.engine.waits import Waits
from adapters.errors import ClosedError, NotPicklableError, WorkerError
from adapters.seeding import left_to_others

log = logging.getLogger("adapters")

_LONG_BATCH_SECONDS = 0.001


class WorkerState(enum.Enum):
    """What the workers of a sequence are at."""

    UNDECIDED = "the first batches decide"
    INLINE = "there are none"
    DEFERRED = "processes that don't pay for their start yet"
    STARTING = "processes, of which none is ready yet"
    WORKING = "batches are asked of them"


class Supply:
    """The workers of one sequence, and how they are chosen.

    Args:
        plan: What is computed.
        settings: By whom.
    """

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan = plan
        self._settings = settings
        self._choice: Choice | None = None
        if settings.workers != "auto":
            kind = settings.kind or ("processes" if settings.use_multiprocessing else "threads")
            self._choice = Choice(kind if settings.workers else "inline", settings.workers)
        self.ahead_elsewhere = 0
        """Batches that the framework reads ahead of the trainer, in a thread of its own."""
        self.staged = 0
        """Batches that lie ahead of the trainer, on its device or on the way there."""
        self._trial: Trial | None = None
        self._tuner: Tuner | None = None
        self._dispatcher = Dispatcher(plan, self._open_crew, self._active, settings.max_queue_size)
        self.window = settings.max_queue_size
        """Batches that may be under way; fewer where the workers, once open, have less room."""
        self.waits = Waits()
        self.batches_left: float = 0
        """Batches that the stream which is read has until the end of its epoch."""
        self.batches_after: float = 0
        """Batches that are known to be asked for after that."""
        self._batch_seconds = 0.0
        # Of a batch while the consumer is at nothing else: beside it, one takes as long as the
        # interpreter lock is the consumer's, too.
        self._alone_seconds = math.inf
        self._consumer = Consumer()
        self._comparison: Comparison | None = None
        """How many of the chosen threads at once feed the consumer fastest."""
        self._said = self._left_processes = False
        self._outdated = False
        """Whether processes have the plan of an earlier epoch."""
        self._lock = threading.RLock()

    @property
    def undecided(self) -> bool:
        """Whether ``workers="auto"`` has not been decided yet."""
        return self._choice is None

    @property
    def state(self) -> WorkerState:
        """What the workers are at."""
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
    def settled(self) -> bool:
        """Whether the workers are chosen, and all there: what comes now is what they are worth."""
        choice = self._choice
        if choice is None or self.state not in (WorkerState.INLINE, WorkerState.WORKING):
            return False
        opened = self._dispatcher.is_open or choice.kind != "processes"
        return opened and self._dispatcher.complete

    def choose_workers(self, stream: Untried) -> None:
        """Compute the stream's next batches, measure that, and decide when enough is known."""
        if self._trial is None:
            self._trial = Trial(self.plan, self._settings.use_multiprocessing)
        self._choice = self._trial.step(stream)
        if self._choice is not None:
            log.info("%s", self._choice.reason)

    @property
    def chosen(self) -> Settings:
        """The settings that ask for the workers that there are by now."""
        choice = self._choice
        if choice is None:
            return self._settings
        active = self._tuner.active if self._tuner is not None else choice.count
        processes = choice.kind == "processes"
        return dataclasses.replace(self._settings, workers=active, use_multiprocessing=processes)

    @property
    def description(self) -> str:
        """Which workers there are, for people."""
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
        """How many of the threads work at once, for people; empty if all of them do."""
        choice, compared = self._choice, self._comparison
        if choice is None or choice.kind != "threads" or compared is None or not compared.decided:
            return ""
        if compared.current == choice.count:
            return ""
        if not compared.current:
            return "; none at work, as batches come faster to the trainer without"
        return "; one at work, as batches come faster to the trainer than from several"

    @property
    def finding(self) -> str:
        """What the workers have found out about themselves, for people."""
        return self._dispatcher.finding

    @property
    def depth(self) -> int:
        """Batches under way ahead of the consumer."""
        choice = self._choice
        if choice is None or self.state is not WorkerState.WORKING:
            return 0
        if choice.only_if_busy and self.ahead_elsewhere:
            return 0
        if choice.kind == "threads" and not self._compared.current:
            return 0
        return max(1, self.window - self.ahead_elsewhere - self.staged)

    @property
    def _compared(self) -> Comparison:
        """The comparison of the chosen threads with fewer of them, and with none."""
        if self._comparison is None:
            choice = self._choice
            assert choice is not None
            if choice.only_if_busy:
                # Long batches had better be read ahead meanwhile.
                counts = [1, 0] if self._alone_seconds > _LONG_BATCH_SECONDS else [0, 1]
            else:
                counts = [1] if self.plan.serial or choice.count == 1 else [choice.count, 1]
                # Whoever limits how long a batch may take relies on another thread for it.
                if math.isinf(self._settings.timeout_seconds):
                    counts.append(0)
            self._comparison = Comparison(counts, self._settings.max_queue_size + 2)
        return self._comparison

    @property
    def _inline_meanwhile(self) -> bool:
        """Whether batches are computed here until processes are ready."""
        settings = self._settings
        return not (settings.isolated or (settings.use_multiprocessing and settings.at_once))

    def change_workers(self) -> None:
        """Start processes that ``"auto"`` has chosen, once they pay for their start.

        Called when nothing is under way for the stream that is read.
        """
        state = self.state
        if state is WorkerState.DEFERRED:
            left = self.batches_left + self.batches_after
            if self._consumer.is_worth_processes(left):
                self.start_workers()
        elif state is WorkerState.STARTING:
            self.start_workers()  # Which are to be woken if they rest.

    @property
    def room(self) -> int:
        """Batches that may be taken at once, without more being ahead of the trainer than may."""
        if self.undecided or self.depth:
            return 1
        return max(1, self.window - self.ahead_elsewhere)

    # --- batches ---

    def ask(self, pending: Pending) -> None:
        """Have workers compute a batch, where there are any."""
        if self.depth and self.start_workers():
            processes = self._choice is not None and self._choice.kind == "processes"
            with self._lock:
                if self._outdated:
                    self._outdated = False
                    self._send_again()
                    if not self.depth:
                        return
            self.plan.expect(pending.key, elsewhere=processes)
            self._dispatcher.ask(pending, self._batch_seconds)

    def start_workers(self) -> bool:
        """Start the workers from the calling thread, where there shall be any.

        Returns:
            Whether there are.
        """
        if self._choice is None or not self._choice.count:
            return False
        try:
            self._dispatcher.open()
        except NotPicklableError as error:
            self._give_up_processes(error)
        except InterpreterEndsError:
            # The main thread has come to its end, and another one still trains.
            self._choice = Choice("inline", 0)
        return self._choice.count > 0

    def start_jobs(self) -> None:
        """Let workers begin with what was asked for."""
        self._dispatcher.start_jobs()

    def compute(self, key: BatchKey, allocate: Allocate = aligned_empty) -> Assembled:
        """Compute a batch in the calling thread, in memory that ``allocate`` gives."""
        started = time.perf_counter()
        assembled = self.plan.batch(key, allocate)
        self._batch_seconds = self._alone_seconds = time.perf_counter() - started
        return assembled

    def fulfil(self, pending: Pending, allocate: Allocate) -> None:
        """Compute a batch likewise; an error waits for whoever reads the batch."""
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
        """The batch; blocks until it is there.

        Raises:
            Exception: What its computation raised.
            WorkerError: Worker processes died over it again and again.
            ClosedError: The engine was closed meanwhile.
            multiprocessing.TimeoutError: The workers took too long.
        """
        if pending.state is EXPECTED:
            self._compute_here(pending)
        elif pending.state is not HERE:
            try:
                self._wait(pending)
            except Exception as error:
                if not self._works_inline(pending, error):
                    raise
        outcome = pending.outcome
        assert outcome is not None
        if pending.seconds:
            self._batch_seconds = pending.seconds
            self._alone_seconds = min(self._alone_seconds, pending.seconds)
        return outcome

    def _compute_here(self, pending: Pending) -> None:
        pending.outcome = self.compute(pending.key)
        pending.become(HERE)

    def _works_inline(self, pending: Pending, error: Exception) -> bool:
        """Compute inline a batch that failed in a process nobody asked for; whether that works.

        A descriptor's number, say, can be sent to another process and means nothing there.
        """
        settings, choice = self._settings, self._choice
        by_auto = settings.workers == "auto" and not settings.use_multiprocessing
        # Other batches had failed there by the time that the first one was found to work here.
        processes = choice is not None and (choice.kind == "processes" or self._left_processes)
        # Its own error has come, so that whoever asks again computes it again.
        failed = pending.state is EXPECTED and not isinstance(error, (ClosedError, WorkerError))
        if not (by_auto and processes and failed):
            return False
        try:
            self._compute_here(pending)
        except Exception:
            return False
        if self._left_processes:
            return True
        self._left_processes = True
        reason = f"inline, as batches fail in worker processes: {type(error).__name__}: {error}"
        log.warning("%s", reason)
        self._choice, self._tuner = Choice("inline", 0, 0, reason), None
        self._dispatcher.stop(for_good=False)
        return True

    def _wait(self, pending: Pending) -> None:
        try:
            with left_to_others(), user_code.left_to_others():
                self._dispatcher.wait(pending, self._settings.timeout_seconds)
        except ClosedError:
            if pending.dropped or self.closed:
                raise
            # Its workers have given way to others, or ended with the main thread.
            self._compute_here(pending)

    def delivered(
        self, position: tuple[int, int], moment: float, waited_seconds: float, busy_seconds: float
    ) -> None:
        """Take note of how long the consumer was busy with one batch and waited for the next."""
        self.waits.note(position, moment, waited_seconds, busy_seconds)
        choice = self._choice
        if choice is not None and self.state in (WorkerState.DEFERRED, WorkerState.STARTING):
            self._consumer.lost(waited_seconds)
        self._consumer.was_busy(busy_seconds)
        if choice is not None and choice.kind == "threads":
            self._compared.delivered(moment, self._alone_seconds)
        # While workers start, waiting says nothing of how many there should be.
        if self._tuner is not None and self._dispatcher.complete:
            self._tuner.observe(waited_seconds)

    def drop(self, pendings: list[Pending]) -> None:
        """Nobody wants these batches any more."""
        self._dispatcher.drop(pendings)

    def enter_epoch(self, epoch: int) -> None:
        """Let a source with epochs of its own know that this one begins.

        Its hooks are called once per epoch, however often an epoch is replayed.
        """
        if self.plan.own_epochs:
            with self._lock:
                if self.plan.enter_epoch(epoch):
                    self.refresh()

    def refresh(self) -> None:
        """Have processes look at the source as it is now; the others do so anyhow."""
        with self._lock:
            # Those that are asked for nothing yet are told when they are, not at each epoch.
            self._outdated = self.state is WorkerState.STARTING
            if not self._outdated:
                self._send_again()

    def _send_again(self) -> None:
        try:
            self._dispatcher.refresh()
        except NotPicklableError as error:
            self._give_up_processes(error)
            self._dispatcher.stop(for_good=False)

    def _give_up_processes(self, error: NotPicklableError) -> None:
        log.warning("batches are computed inline, as processes can't be used: %s", error)
        self._choice = Choice("inline", 0, 0, f"inline ({error})")

    @property
    def closed(self) -> bool:
        """Whether the workers have ended for good."""
        return self._dispatcher.closed

    # --- for the dispatcher ---

    def _open_crew(self, lock: Any, changed: Callable[[], None]) -> Crew:
        choice, settings = self._choice, self._settings
        assert choice is not None
        count = choice.ceiling or choice.count
        if settings.workers == "auto":
            self._tuner = Tuner(choice)
        crew = CREWS[choice.kind](self.plan, count, settings, lock, changed)
        self.window = settings.window(count) if crew.window is None else crew.window
        return crew

    def _say_what_waits(self, threads: int) -> None:
        unsafe = self.plan.not_thread_safe
        if threads > 1 and unsafe and self._settings.workers != "auto" and not self._said:
            self._said = True
            log.warning(
                "%s: run by one of %d threads at a time, as not declared thread-safe; write "
                "thread_safe=True if several threads may run it at once, or use processes",
                " and ".join(unsafe),
                threads,
            )

    def _active(self, crew: Crew) -> int:
        if crew.name == "threads":
            self._say_what_waits(crew.count)
            at_once = 1 if self.plan.serial else self._compared.current
            # One, in order, too: some data sets count their calls.
            if at_once <= 1:
                return 1
        return self._tuner.active if self._tuner is not None else crew.count
