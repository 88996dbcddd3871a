"""The engine of one sequence: its streams of batches, and who computes them.

    Stream --ask--> Dispatcher --> Crew --> Stream.next

With no workers, and where workers wouldn't pay, batches are computed when they are asked for, in
the consumer's thread.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey
from adapters.batch.plan import Assembled, Layout, Plan
from adapters.engine.consumer import Consumer
from adapters.engine.crews import CREWS
from adapters.engine.dispatch import Dispatcher
from adapters.engine.jobs import Crew, Pending
from adapters.engine.settings import Settings
from adapters.engine.states import EXPECTED, HERE
from adapters.engine.stream import DrawnStream, Stream
from adapters.engine.tuning import Choice, Trial, Tuner, pays_to_read_ahead
from adapters.engine.waits import Waits
from adapters.errors import ClosedError
from adapters.seeding import left_to_others

log = logging.getLogger("adapters")

# Until processes are worth their start: one thread, so that what isn't thread-safe meets no other.
_STAND_IN = Choice("threads", 1, only_if_busy=True)


class Engine:
    """The workers of one sequence, and the streams that read from them.

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
        self._later: Choice | None = None
        """The processes that are chosen, while a thread stands in for them."""
        self._trial: Trial | None = None
        self._tuner: Tuner | None = None
        self._dispatcher = Dispatcher(plan, self._open_crew, self._active, settings.max_queue_size)
        self.window = settings.max_queue_size
        """Batches that may be under way; fewer where the workers, once open, have less room."""
        self._layout: Layout | None = None
        self.waits = Waits()
        self.batches_left: float = 0
        """Batches that the stream which is read has until the end of its epoch."""
        self._batch_seconds = 0.0
        self._consumer = Consumer()
        self._lock = threading.RLock()
        self._parked: Stream | None = None
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._users = 0
        _engines.add(self)

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
        stream = Stream(self, epoch, step, shuffled, len(self.plan))
        self._streams.add(stream)
        return stream

    def drawn_stream(
        self,
        epoch: int,
        batches: Iterator[Sequence[Any]],
        count: int | None = None,
        step: int = 0,
        entropy: int | None = None,
    ) -> DrawnStream:
        """A stream of batches whose samples are drawn elsewhere, see there."""
        if self.closed:
            raise ClosedError("the sequence is closed: make a new one")
        stream = DrawnStream(self, epoch, batches, count, step, entropy)
        self._streams.add(stream)
        return stream

    def park(self, stream: Stream) -> None:
        """Keep a stream that has come to the end of an epoch for the next one."""
        if self._parked is not None and self._parked is not stream:
            self._parked.close()
        self._parked = stream

    @property
    def undecided(self) -> bool:
        """Whether ``workers="auto"`` has not been decided yet."""
        return self._choice is None

    @property
    def settled(self) -> bool:
        """Whether the workers are chosen, and there: what comes now is what they are worth."""
        held_back = self._held_back or self._later is not None
        return not (self.undecided or held_back or self._dispatcher.starting)

    def choose_workers(self, stream: Stream) -> None:
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
        choice = self._later or self._choice
        if choice is None:
            return '"auto", which the first batches will decide'
        if choice.reason:
            return choice.reason
        if not choice.count:
            return "none, batches are made when they are asked for"
        return f"{choice.count} {choice.kind}"

    @property
    def depth(self) -> int:
        """Batches under way ahead of the consumer."""
        choice = self._choice
        if choice is None or not choice.count:
            return 0
        if choice.only_if_busy and (
            self.ahead_elsewhere
            or not pays_to_read_ahead(self._batch_seconds, self._consumer.busy_seconds)
        ):
            return 0
        if self._held_back or self._may_change:
            return 0
        return max(1, self.window - self.ahead_elsewhere)

    @property
    def _held_back(self) -> bool:
        """Whether processes are not started yet, as there is too little work to pay for that."""
        choice = self._choice
        if choice is None or choice.kind != "processes" or self._dispatcher.is_open:
            return False
        return not (self._processes_at_once or self._consumer.is_worth_processes(self.batches_left))

    @property
    def _may_change(self) -> bool:
        """Whether processes shall take over from the thread that stands in for them."""
        return self._later is not None and self._consumer.is_worth_processes(self.batches_left)

    def stand_in(self) -> None:
        """Have a thread read ahead while processes are held back, if that pays; else, have those.

        Called when nothing is under way for the stream that is read.
        """
        if self._choice is None or (self._later is None and self._choice.kind != "processes"):
            return
        if self._may_change:
            self._dispatcher.stop(for_good=False)
            self._choice, self._later = self._later, None
        elif self._held_back and pays_to_read_ahead(
            self._batch_seconds, self._consumer.busy_seconds
        ):
            self._later, self._choice = self._choice, _STAND_IN

    @property
    def _processes_at_once(self) -> bool:
        return self._settings.use_multiprocessing and self._settings.at_once

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
            self._dispatcher.ask(pending, self._layout, self._batch_seconds)

    def start_workers(self) -> bool:
        """Start the workers from the calling thread, where there shall be any.

        Returns:
            Whether there are.
        """
        if self._choice is None or not self._choice.count:
            return False
        try:
            self._dispatcher.open()
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            # The main thread has come to its end, and another one still trains.
            self._choice = Choice("inline", 0)
        return self._choice.count > 0

    def start_jobs(self) -> None:
        """Let workers begin with what was asked for."""
        self._dispatcher.start_jobs()

    def compute(self, key: BatchKey) -> Assembled:
        """Compute a batch in the calling thread."""
        started = time.perf_counter()
        assembled = self.plan.batch(key, aligned_empty)
        self._batch_seconds = time.perf_counter() - started
        self._layout = assembled.layout
        return assembled

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
            self._wait(pending)
        outcome = pending.outcome
        assert outcome is not None
        if pending.seconds:
            self._batch_seconds = pending.seconds
        self._layout = outcome.layout
        return outcome

    def _compute_here(self, pending: Pending) -> None:
        pending.outcome = self.compute(pending.key)
        pending.become(HERE)

    def _wait(self, pending: Pending) -> None:
        try:
            with left_to_others():
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
        if self._later is not None or (choice and choice.kind == "processes" and self._held_back):
            self._consumer.lost(waited_seconds)
        self._consumer.was_busy(busy_seconds)
        if self._tuner is not None:
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
                    self._dispatcher.refresh()

    def refresh(self) -> None:
        """Have processes look at the source as it is now; the others do so anyhow."""
        self._dispatcher.refresh()

    def rest(self) -> None:
        """A pass is over, and there may be none for a while."""
        if not any(not s.closed and s is not self._parked for s in list(self._streams)):
            self._dispatcher.rest()

    # --- the end ---

    @property
    def closed(self) -> bool:
        """Whether the workers have ended for good."""
        return self._dispatcher.closed

    def retain(self) -> None:
        """Somebody will read stream after stream and say when that is over."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """End the workers, unless somebody reads; they start again when they are needed."""
        with self._lock:
            self._users -= 1
            if self._users or any(
                not stream.closed and stream is not self._parked for stream in self._streams
            ):
                return
            if self._parked is not None:
                self._parked.close()
                self._parked = None
        self._dispatcher.stop(for_good=False)

    def close(self) -> None:
        """End the workers for good; whoever waits for a batch gets a ``ClosedError``."""
        self._parked = None
        self._dispatcher.stop(for_good=True)

    def end_with_main_thread(self) -> None:
        """End the workers; threads that the interpreter waits for get batches without them."""
        others = set(threading.enumerate()) - {threading.current_thread(), threading.main_thread()}
        if all(thread.daemon for thread in others):
            self.close()
            return
        self._choice, self._later = Choice("inline", 0), None
        self._dispatcher.stop(for_good=False)

    def forget_workers(self) -> None:
        """Start over in a forked process, which has none of the threads."""
        self._lock = threading.RLock()
        self._dispatcher.forget_workers()
        self.plan.renew_locks()
        for stream in list(self._streams):
            stream.forget_workers()

    # --- for the dispatcher ---

    def _open_crew(self, lock: Any, changed: Callable[[], None]) -> Crew:
        choice, settings = self._choice, self._settings
        assert choice is not None
        count = choice.ceiling or choice.count
        if settings.workers == "auto":
            self._tuner = Tuner(choice)
        crew = CREWS[choice.kind](self.plan, count, settings, lock, changed)
        if crew.window is not None:
            self.window = crew.window
        return crew

    def _active(self, crew: Crew) -> int:
        if crew.name == "threads" and self.plan.most_at_once == 1:
            self.plan.warn_if_it_waits(crew.count)
            return 1  # In order, too: some sequences count their calls.
        return self._tuner.active if self._tuner is not None else crew.count


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _forget_workers() -> None:
    for engine in list(_engines):
        engine.forget_workers()


os.register_at_fork(after_in_child=_forget_workers)
