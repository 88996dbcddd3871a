"""Batches in order: what a consumer reads from, whatever computes them.

A ``Stream`` walks through (epoch, step) without an end, with up to ``max_queue_size`` batches under
way ahead of its reader, beyond the end of an epoch too. One consumer at a time may call ``next`` or
``peek``, from any thread; both block until the batch is there. ``close`` may come from any thread,
also while another waits, which then gets a ``ClosedError``.
"""

from __future__ import annotations

import collections
import logging
import math
import time
from typing import TYPE_CHECKING, Any

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey
from adapters.clock import Spent
from adapters.engine.jobs import Pending
from adapters.engine.states import DROPPED, EXPECTED, FAILED, HERE, QUEUED
from adapters.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from adapters.engine.engine import Engine

log = logging.getLogger("adapters")


class Exhausted(Exception):
    """There is no further batch in the stream."""


class Stream:
    """An endless sequence of batches.

    Args:
        engine: Whose workers compute them.
        epoch: Of the first batch.
        step: Of the first batch in its epoch.
        shuffled: Permute the batches of an epoch as wholes.
        batches: In an epoch; infinite if nobody knows.
    """

    def __init__(
        self, engine: Engine, epoch: int, step: int, shuffled: bool, batches: float
    ) -> None:
        self._engine = engine
        self._shuffled = shuffled
        self._batches = self._expected = batches
        self._window: collections.deque[Pending] = collections.deque()
        self._asked = epoch, step
        self.position = epoch, step
        """(epoch, step) of the batch that comes next."""
        self._entered: int | None = None
        self._returned = time.perf_counter()
        self._skipped = 0
        self.closed = False

    def next(self) -> Any:
        """The next batch.

        Raises:
            Exception: What its computation raised.
            WorkerError: Worker processes died over it again and again.
            ClosedError: The stream or its engine is closed.
            Exhausted: There is none; only a ``DrawnStream`` ends.
        """
        engine = self._engine
        epoch, step = self.position
        if epoch != self._entered or self.closed or engine.closed:
            self._enter(epoch)
        if engine.undecided and not self._window:
            engine.choose_workers(self)
        started = time.perf_counter()
        engine.batches_left = self._expected - step
        if not self._window:
            engine.stand_in()
        if self._window or engine.depth:
            self._ask(1)
            pending = self._first()
            assembled = engine.result(pending)
            self._take(pending)
            self.position = self._after(epoch, step)
            self._ask(0)
        else:
            assembled = engine.compute(self._key(epoch, step))
            self._asked = self.position = self._after(epoch, step)
        self._returned, busy = time.perf_counter(), started - self._returned
        engine.delivered((epoch, step), self._returned, self._returned - started, busy)
        if assembled.skipped or self._skipped:
            self._count_skipped(assembled.skipped, epoch)
        return assembled.batch

    def peek(self, count: int) -> list[Any]:
        """The next batches, which stay the next ones."""
        self._enter(self.position[0])
        while self._engine.undecided and len(self._window) < count and not self.failed:
            self._engine.choose_workers(self)
        self._ask(count)
        return [self._engine.result(self._window[i]).batch for i in range(count)]

    def _first(self) -> Pending:
        try:
            return self._window[0]
        except IndexError:
            raise ClosedError("the stream was closed while a batch was asked of it") from None

    def _take(self, pending: Pending) -> None:
        if self._first() is not pending:
            raise ClosedError("the stream was closed while a batch was taken from it")
        self._window.popleft()

    def read_ahead(self) -> None:
        """Have workers begin with the batches that may be under way, before one is asked for."""
        self._enter(self.position[0])
        self._ask(0)

    def _enter(self, epoch: int) -> None:
        if self.closed or self._engine.closed:
            raise ClosedError("batches were asked of a closed sequence")
        if epoch != self._entered:
            self._engine.enter_epoch(epoch)
            self._entered = epoch

    def compute(self) -> Pending:
        """Compute the first batch that hasn't been asked for, in the calling thread."""
        pending = self.expect()
        self.fulfil(pending)
        return pending

    def expect(self) -> Pending:
        """The first batch that hasn't been asked for, which the caller will ``fulfil``."""
        epoch, step = self._asked
        pending = Pending(self._key(epoch, step))
        self._asked = self._after(epoch, step)
        self._window.append(pending)
        return pending

    def fulfil(self, pending: Pending) -> None:
        """Compute a batch in the calling thread; an error waits for whoever reads the batch."""
        started = Spent.now()
        plan, state = self._engine.plan, HERE
        try:
            outcome = plan.batch(pending.key, aligned_empty)
            plan.settle(outcome)
            pending.outcome = outcome
        except BaseException as error:
            pending.error, state = error, FAILED
        pending.spent = started.until_now()
        pending.seconds = pending.spent.seconds
        pending.become(state)

    @property
    def ready(self) -> bool:
        """Whether ``next`` would not have to wait for a worker."""
        first = next(iter(tuple(self._window)), None)
        if first is None:
            return not self._engine.depth
        return first.state not in (EXPECTED, QUEUED)

    @property
    def failed(self) -> bool:
        """Whether a batch in the window has an error that waits to be read."""
        return any(pending.state is FAILED for pending in self._window)

    def close(self) -> None:
        """Let go of what is under way."""
        if not self.closed:
            self.closed = True
            self._engine.drop(list(self._window))
            # An error among them would keep every frame that it has passed through.
            self._window.clear()

    def forget_workers(self) -> None:
        """In a forked process: compute here what workers have not delivered."""
        for pending in self._window:
            if pending.state not in (EXPECTED, HERE, DROPPED):
                pending.become(EXPECTED)
                pending.error = None

    def __del__(self) -> None:
        # Another thread may hold the engine's lock, and this one may hold it in a frame below.
        for pending in self._window:
            pending.dropped = True

    def _ask(self, least: int) -> None:
        """Fill the window, with ``least`` batches at the least."""
        engine = self._engine
        wanted = max(least, engine.depth)
        if len(self._window) >= wanted:
            return
        try:
            while len(self._window) < min(wanted, max(least, engine.window)):
                if len(self._window) >= least and not self._may_read_ahead():
                    break
                engine.ask(self.expect())
        except Exhausted:
            if len(self._window) < least:
                raise
        engine.start_jobs()

    def _may_read_ahead(self) -> bool:
        return not self._engine.plan.own_epochs or self._asked[0] == self._entered

    def _count_skipped(self, skipped: int, epoch: int) -> None:
        self._skipped += skipped
        if self.position[0] > epoch:
            self._say_skipped(epoch)

    def _say_skipped(self, epoch: int) -> None:
        if self._skipped:
            log.warning("epoch %d: on_error replaced %d samples", epoch, self._skipped)
            self._skipped = 0

    def _key(self, epoch: int, step: int) -> BatchKey:
        index = self._engine.plan.shuffled(epoch, step) if self._shuffled else step
        return BatchKey(epoch, index)

    def _after(self, epoch: int, step: int) -> tuple[int, int]:
        return (epoch, step + 1) if step + 1 < self._batches else (epoch + 1, 0)


class DrawnStream(Stream):
    """One epoch of batches whose samples somebody else draws, as a sampler does.

    Args:
        engine: Whose workers compute them.
        epoch: Its number.
        batches: The sample numbers of a batch each; drawn as far ahead as batches are asked for.
        count: How many there are in the epoch; None if nobody knows.
        step: Of the first of them in it.
        entropy: What random numbers depend on, in the place of the epoch's number.
    """

    def __init__(
        self,
        engine: Engine,
        epoch: int,
        batches: Iterator[Sequence[Any]],
        count: int | None,
        step: int = 0,
        entropy: int | None = None,
    ) -> None:
        super().__init__(engine, epoch, step, False, math.inf)
        if count is not None:
            self._expected = count
        self._drawn = batches
        self._entropy = entropy
        self.problem: BaseException | None = None
        """Why ``batches`` gives no more: its ``StopIteration``, or an error."""

    def next(self) -> Any:
        """The next batch."""
        try:
            return super().next()
        except Exhausted:
            self._say_skipped(self.position[0])
            raise

    def _key(self, epoch: int, step: int) -> BatchKey:
        if self.problem is None:
            try:
                return BatchKey(epoch, step, next(self._drawn), self._entropy)
            except BaseException as problem:  # Belongs to whoever has read the batches before.
                self.problem = problem
        raise Exhausted
