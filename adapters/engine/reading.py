"""Iterator over a stream's batches, for loops and frameworks.

    first next --> _begin: a stream
    next       --> the stream's batch --> _made, and a front end that counts them is notified
    no more    --> _finish --> close
    an error   --> close --> raised as itself
    close      --> the stream is parked for a reader that resumes there, or closed

A lock lets one thread at a time take a batch, so each batch goes to one thread. Code that makes a
batch must not wait for that lock, because its holder may be waiting for that code. ``close`` may be
called from any thread, also while another waits, which then gets a ``ClosedError``. Nothing happens
before the first batch is requested.
"""

from __future__ import annotations

import abc
import math
import os
import threading
import time
import weakref
from typing import Any, NoReturn

from adapters.engine.engine import Engine
from adapters.engine.jobs import Exhausted
from adapters.engine.stream import Stream
from adapters.errors import note
from adapters.generators import current_place

_all: weakref.WeakSet[Reading] = weakref.WeakSet()


class Reading(abc.ABC):
    """One pass through batches; once it has ended, it stays so.

    Args:
        engine: Engine that makes the batches.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stream: Stream | None = None
        self._begun = self._over = False
        self._left = math.inf
        """Remaining batches of the pass; set by ``_begin`` if their number is known."""
        self._turn = threading.RLock()
        _all.add(self)

    def __iter__(self) -> Reading:
        return self

    def __next__(self) -> Any:
        turn = self._turn
        if not turn.acquire(blocking=False):
            if current_place() is not None:  # This thread makes a batch.
                raise RuntimeError(
                    "code that makes a batch asked for one of a pass that another thread reads, "
                    "and each might wait for the other: give that code a pass of its own, iter(...)"
                )
            turn.acquire()
        try:
            return self._next()
        finally:
            turn.release()

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
            self._stream = self._begin()
        if not self._left:
            self._finish()
            raise StopIteration
        stream = self._stream
        if stream is None:  # Closed from another thread.
            raise StopIteration
        try:
            batch = self._made(stream.next())
        except Exhausted:
            self._finish()
            raise StopIteration from None
        except BaseException as error:
            self.close()
            self._fail(error)
        self._left -= 1
        return batch

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

    def _made(self, batch: Any) -> Any:
        """Convert a batch for the reader."""
        return batch

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


def wait_for_readers(most_seconds: float) -> None:
    """Wait until no thread is taking a batch; no thread may request another one."""
    deadline = time.monotonic() + most_seconds
    for reading in list(_all):
        turn = reading._turn
        if turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            turn.release()


def _renew_turns() -> None:
    for reading in list(_all):
        reading._turn = threading.RLock()  # The thread that held the lock wasn't forked.


os.register_at_fork(after_in_child=_renew_turns)
