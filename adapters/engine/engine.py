"""Engine of one sequence: its streams of batches, and the lifetime of its workers.

stream --> fetch ... --> park at an epoch's end, for the next one, or close
retain ... release: workers stay alive in between; close: for good
"""

from __future__ import annotations

import abc
import atexit
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from adapters.batch.plan import WHOLE, Assembled, Plan, ResumedEpoch
from adapters.engine.autotune import Choice
from adapters.engine.executors import Settings
from adapters.engine.stream import Stream
from adapters.engine.supply import Supply
from adapters.engine.tasks import Exhausted
from adapters.engine.threads import close_dropped, note_program_end
from adapters.errors import note
from adapters.generators import current_place


class Engine(Supply):
    """Workers of one sequence, and the streams that read from them."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        super().__init__(plan, settings)
        self._parked: Stream | None = None
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._users = 0
        _engines.add(self)

    # --- streams ---

    def stream(
        self,
        epoch: int,
        step: int,
        shuffled: bool,
        resumed: ResumedEpoch = WHOLE,
        secondary: bool = False,
    ) -> Stream:
        """Return a stream from this batch on: the parked one if it is there, else a new one.

        A secondary one calls the source's epoch hooks only for its first epoch, see ``Stream``.
        """
        parked, self._parked = self._parked, None
        way = shuffled, resumed, secondary
        if parked is not None and not parked.closed:
            if (parked.position, parked.way) == ((epoch, step), way):
                parked.convert = None
                return parked
            parked.close()
        stream = Stream(self, epoch, step, *way)
        self._streams.add(stream)
        return stream

    def drawn_stream(
        self,
        epoch: int,
        batches: Iterator[Sequence[Any]],
        count: int | None = None,
        step: int = 0,
    ) -> Stream:
        """Make a stream of one epoch, whose samples are drawn by a sampler."""
        stream = Stream(self, epoch, step, drawn=batches, count=count)
        self._streams.add(stream)
        return stream

    def park(self, stream: Stream) -> None:
        """Keep a stream at the end of an epoch for the next pass."""
        if self._parked is not None and self._parked is not stream:
            self._parked.close()
        self._parked = stream

    def pause(self) -> None:
        """Let others use the workers, as a pass is over and there may be none for a while."""
        if not self._is_read():
            self.dispatcher.rest()

    def _is_read(self) -> bool:
        return any(not each.closed and each is not self._parked for each in list(self._streams))

    # --- the end ---

    def retain(self) -> None:
        """Keep the workers alive until the matching ``release`` (reference-counted)."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """End the workers if no reader is left; they start again when they are needed."""
        with self._lock:
            self._users -= 1
        self.end_unused()

    @property
    def in_use(self) -> bool:
        """True if the engine is retained or read."""
        return self._users > 0 or self._is_read()

    def end_unused(self) -> None:
        """End the workers, unless the engine is in use."""
        with self._lock:
            if self.in_use:
                return
            if self._parked is not None:
                self._parked.close()
                self._parked = None
        self.dispatcher.stop(for_good=False)

    def close(self, wait: bool = True) -> None:
        """End the workers for good; threads waiting for a batch get a ``ClosedError``.

        With ``wait``, running tasks are waited for; the garbage collector doesn't.
        """
        self._parked = None
        self.dispatcher.stop(for_good=True, wait=wait)

    def end_with_main_thread(self) -> None:
        """End the workers; threads that the interpreter waits for get batches inline."""
        note_program_end()
        others = set(threading.enumerate()) - {threading.current_thread(), threading.main_thread()}
        if all(thread.daemon for thread in others):
            self.close()
            return
        self._choose(Choice())
        self.dispatcher.stop(for_good=False)

    def forget_workers(self) -> None:
        """Start over in a forked process, which has none of the workers.

        Its readers compute the batches that the parent's workers have.
        """
        self._lock = threading.RLock()
        self.dispatcher.forget_workers()
        self.plan.renew_locks()


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def close_engines(patience_seconds: float = 0.0) -> None:
    """End all workers with the main thread, and wait until no daemon thread is taking a batch."""
    for engine in list(_engines):
        engine.end_with_main_thread()
    if all(thread.daemon for thread in set(threading.enumerate()) - {threading.main_thread()}):
        deadline = time.monotonic() + patience_seconds
        for reading in list(_all):
            lock = reading._reader_lock
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                lock.release()
    close_dropped()
    pool = sys.modules.get("adapters.engine.pool")  # Programs without processes do without it.
    if pool is not None:
        pool.shared_pool().close()


# When the main thread ends, Python calls the registered functions, the latest one first:
#
# 1. That of keras/shutdown.py, which is registered after this module. It waits for the calls in
#    non-daemon threads, and calls ``close_engines`` with time for readers.
# 2. ``close_engines``.
# 3. That of concurrent.futures, which shuts its executors down; atexit would be after that.
#
# Then Python waits for the non-daemon threads. They get batches inline, and so does a thread that
# finds its workers dead by then (``InterpreterEndsError``).
getattr(threading, "_register_atexit", atexit.register)(close_engines)


# --- reading ---

_all: weakref.WeakSet[Reading] = weakref.WeakSet()


class Reading(abc.ABC):
    """One pass through an engine's batches; once it has ended, it stays so."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stream: Stream | None = None
        self._begun = self._over = False
        self._left = math.inf
        """Remaining batches of the pass; set by ``_begin`` if their number is known."""
        self._reader_lock = threading.RLock()
        _all.add(self)

    def __iter__(self) -> Reading:
        return self

    def __next__(self) -> Any:
        lock = self._reader_lock
        if not lock.acquire(blocking=False):
            if current_place() is not None:  # This thread makes a batch.
                raise RuntimeError(
                    "code that makes a batch asked for one of a pass that another thread reads, "
                    "and each might wait for the other: give that code a pass of its own, iter(...)"
                )
            lock.acquire()
        try:
            return self._next()
        finally:
            lock.release()

    def _fetch(self) -> Any:
        """Fetch the next batch.

        Raises:
            StopIteration: There is none.
            Exception: The error from its computation.
        """
        if self._over:
            raise StopIteration
        if not self._begun:
            self._begun = True
            self._open()
        if not self._left:
            self._finish()
            raise StopIteration
        stream = self._stream
        if stream is None:  # Closed from another thread.
            raise StopIteration
        try:
            batch = self._made(stream.fetch())
        except Exhausted:
            self._finish()
            raise StopIteration from None
        except BaseException as error:
            self._end_restarted()
            self.close()
            self._fail(error)
        self._end_restarted()
        self._left -= 1
        return batch

    def _open(self) -> None:
        """Start the pass, unless another thread closes it meanwhile."""
        self._stream = stream = self._begin()
        if self._over and stream is not None:
            self._stream = None
            stream.close()
        self._end_restarted()

    def _end_restarted(self) -> None:
        """End workers that this pass has started again after another thread had closed it."""
        if self._over:
            self._engine.end_unused()

    def close(self) -> None:
        """Drop the batches under way."""
        if self._over:
            return
        self._over = True
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if self._parks:
            self._engine.park(stream)
        else:
            stream.close()

    def __del__(self) -> None:
        if hasattr(self, "_over"):
            self.close()

    # --- what is read, and for whom ---

    @abc.abstractmethod
    def _begin(self) -> Stream | None:
        """Start the pass: return its stream; None if there are no batches."""

    def _next(self) -> Any:
        """Return the next batch; front ends override it to count batches. See ``_fetch``."""
        return self._fetch()

    @property
    def _parks(self) -> bool:
        """True if a later reader may resume where the stream stands."""
        return not self._left

    def _made(self, assembled: Assembled) -> Any:
        """Return a batch in the reader's form."""
        return assembled.batch

    def _finish(self) -> None:
        """End the pass, after the reader has requested one batch more than there are."""
        self.close()

    def _fail(self, error: BaseException) -> NoReturn:
        """Raise the error of a batch."""
        try:
            raise_as_itself(error)
        finally:
            del error  # As in raise_as_itself: this frame refers to the iterator and its workers.


def raise_as_itself(error: BaseException) -> NoReturn:
    """Raise an exception out of an iterator; ``StopIteration`` would silently end the iteration."""
    try:
        if isinstance(error, StopIteration):
            stopped = RuntimeError(
                "the source, a transform or another function raised StopIteration"
            )
            for text in getattr(error, "__notes__", ()):
                note(stopped, text)
            raise stopped from error
        raise error
    finally:
        del error  # Breaks the cycle of the traceback, this frame and the error.


def _start_over() -> None:
    """Start over in a forked process, which has none of the threads."""
    for engine in list(_engines):
        engine.forget_workers()
    for reading in list(_all):
        reading._reader_lock = threading.RLock()  # The thread that held the lock wasn't forked.


os.register_at_fork(after_in_child=_start_over)
