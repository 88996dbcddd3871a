"""Stream of one sequence's batches, computed ahead or on request."""

from __future__ import annotations

import collections
import logging
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from adapters.batch.plan import WHOLE, Assembled, BatchKey, ResumedEpoch
from adapters.clock import Spent
from adapters.engine.memory import Arena
from adapters.engine.supply import Supply
from adapters.engine.tasks import DONE, Convert, Exhausted, Future
from adapters.errors import ClosedError

log = logging.getLogger("adapters")


class Stream:
    """Batches in order, for one consumer, whether workers or its own thread compute them.

    It walks through (epoch, step) without an end, with up to ``max_queue_size`` batches under way
    ahead of its reader, also beyond the end of an epoch. One consumer at a time may call ``fetch``
    or ``peek``, from any thread; both block until the batch is there. ``close`` may be called from
    any thread, also while another waits, which then gets a ``ClosedError``.

    Args:
        shuffled: Permute whole batches within an epoch.
        resumed: A resumed epoch, whose batches aren't permuted.
        secondary: Call the source's epoch hooks only for the first epoch, so that a validation
            doesn't call them for epochs that the training hasn't reached.
        drawn: Samples of each batch of a single epoch, for example from a sampler. They are drawn
            as far ahead as batches are requested.
        count: Number of drawn batches in an epoch, if known.
    """

    def __init__(
        self,
        supply: Supply,
        epoch: int,
        step: int,
        shuffled: bool = False,
        resumed: ResumedEpoch = WHOLE,
        secondary: bool = False,
        drawn: Iterator[Sequence[Any]] | None = None,
        count: int | None = None,
    ) -> None:
        self._supply = supply
        self.way = shuffled, resumed, secondary
        """Identity of the stream's order, without the position."""
        num_batches = supply.plan.num_batches if drawn is None else None
        self._epoch_length = math.inf if num_batches is None else num_batches
        """Step at which the next epoch starts."""
        self._estimated_length = self._epoch_length if count is None else count
        """Number of batches in an epoch, for the choice of workers."""
        self._drawn = drawn
        self._end: BaseException | None = None
        """Error from drawing samples; raised after the earlier batches have been read."""
        self._window: collections.deque[Future] = collections.deque()
        self._asked = epoch, step
        self.position = epoch, step
        """(epoch, step) of the next batch."""
        self._entered: int | None = None
        self._secondary = secondary
        self.convert: Convert | None = None
        """Adds the trainer's form to a batch. A thread that reads ahead applies it, so that the
        trainer needn't."""
        self._returned = time.perf_counter()
        self._skipped = 0
        self._memory = Arena()
        """Memory of batches that are made in the reader's thread."""
        self.closed = False
        if supply.closed:
            raise ClosedError("the sequence or loader is closed: make a new one")

    def next(self) -> Any:
        """Return the next batch, see ``fetch``."""
        return self.fetch().batch

    def fetch(self) -> Assembled:
        """Return the next batch, and facts about it.

        Raises:
            Exception: The error from its computation, or from drawing its samples.
            WorkerError: Several worker processes died in it.
            ClosedError: The stream or its engine is closed.
            Exhausted: There is none, as all drawn batches were returned.
        """
        try:
            return self._fetch()
        except Exhausted as error:
            raise self._end or error from None

    def _fetch(self) -> Assembled:
        supply = self._supply
        epoch, step = self.position
        if epoch != self._entered or self.closed or supply.closed:
            self._enter(epoch)
        if supply.undecided and not self._window:
            supply.choose_workers(self)
        started = time.perf_counter()
        supply.batches_left = self._estimated_length - step
        if not self._window:
            supply.change_workers()
        if self._window or supply.batches_ahead:
            self._ask(1)
            future = self._first()
            assembled = supply.result(future)
            self._first(take=True)
            self.position = self._after(epoch, step)
            self._ask(0)
        else:
            assembled = supply.compute(self._key(epoch, step), self._memory.empty)
            self._asked = self.position = self._after(epoch, step)
        self._returned, busy = time.perf_counter(), started - self._returned
        supply.delivered((epoch, step), self._returned, self._returned - started, busy)
        self._skipped += assembled.skipped
        if self._skipped and self.position[0] != epoch:
            self._say_skipped(epoch)
        return assembled

    def peek(self, count: int) -> list[Any]:
        """Return the next batches without consuming them; of 0, workers start on the next ones."""
        self._enter(self.position[0])
        self._ask(count)
        return [self._supply.result(self._window[i]).batch for i in range(count)]

    def _first(self, take: bool = False) -> Future:
        try:
            return self._window.popleft() if take else self._window[0]
        except IndexError:
            raise ClosedError("the stream was closed while a batch was asked of it") from None

    def _enter(self, epoch: int) -> None:
        if self.closed or self._supply.closed:
            raise ClosedError("batches were asked of a closed sequence or loader")
        if epoch != self._entered:
            if self._entered is None or not self._secondary:
                self._supply.enter_epoch(epoch)
            self._entered = epoch
            if self._supply.has_changed():
                self._supply.dispatcher.drop(list(self._window))  # Made from what it was before.
                self._window.clear()
                self._asked = self.position

    def compute(self) -> Future:
        """Compute the next unrequested batch in the calling thread."""
        future = self.append_next()
        self.fulfil(future)
        return future

    def append_next(self, needed: bool = True) -> Future:
        """Add the next unrequested batch to the window; the caller submits or computes it.

        Args:
            needed: False for one that the reader may never request.

        Raises:
            Exhausted: There is none, or it is unknown until the reader gets there.
        """
        epoch, step = self._asked
        if not needed and epoch != self._entered and self._supply.plan.changes_between_epochs:
            raise Exhausted
        future = Future(self._key(epoch, step), convert=self.convert)
        self._asked = self._after(epoch, step)
        self._window.append(future)
        return future

    def fulfil(self, future: Future) -> None:
        """Compute a batch in the calling thread; an error is raised when the batch is read."""
        plan, started = self._supply.plan, Spent.now()
        try:
            outcome = plan.batch(future.key, self._memory.empty)
            plan.wait_for(outcome)
            future.outcome = outcome
        except BaseException as error:
            future.error = error
        future.spent = started.until_now()
        future.become(DONE)

    @property
    def ready(self) -> bool:
        """True if ``fetch`` would not wait for a worker."""
        first = next(iter(tuple(self._window)), None)
        if first is None:
            return not self._supply.batches_ahead
        return first.state is DONE

    def close(self) -> None:
        """Drop the batches under way."""
        if not self.closed:
            self.closed = True
            self._supply.dispatcher.drop(list(self._window))
            # An error among them would keep all frames of its traceback alive.
            self._window.clear()
            self._memory.close()
            if self._skipped:
                self._say_skipped(self.position[0])

    def __del__(self) -> None:
        # No lock: another thread may hold it, or this one in an outer frame.
        for future in self._window:
            future.abandoned = True

    def _ask(self, least: int) -> None:
        """Fill the window, with at least ``least`` batches."""
        supply = self._supply
        wanted = max(least, supply.batches_ahead)
        if len(self._window) >= wanted:
            return
        try:
            # Opening the executor may make the supply's window smaller.
            while len(self._window) < min(wanted, max(least, supply.window)):
                supply.ask(self.append_next(needed=len(self._window) < least))
        except Exhausted:
            if len(self._window) < least:
                raise
        supply.dispatcher.start_tasks()

    def _say_skipped(self, epoch: int) -> None:
        log.warning("epoch %d: on_error replaced %d samples", epoch, self._skipped)
        self._skipped = 0

    def _key(self, epoch: int, step: int) -> BatchKey:
        if self._drawn is not None:
            return BatchKey(epoch, step, self._draw(self._drawn))
        shuffled, resumed, _ = self.way
        if resumed is WHOLE:
            return BatchKey(epoch, self._supply.plan.shuffled(epoch, step) if shuffled else step)
        return resumed.key(epoch, step, self._supply.plan.shuffled if shuffled else None)

    def _draw(self, drawn: Iterator[Sequence[Any]]) -> Sequence[Any]:
        if self._end is None:
            try:
                return next(drawn)
            except StopIteration:
                self._end = Exhausted()
            except BaseException as error:
                self._end = error
        raise Exhausted

    def _after(self, epoch: int, step: int) -> tuple[int, int]:
        return (epoch, step + 1) if step + 1 < self._epoch_length else (epoch + 1, 0)
