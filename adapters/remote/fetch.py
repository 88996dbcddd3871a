"""Concurrent fetching of many ranges: merged if near, split if long, by shared threads.

    wanted units --runs--> ranges --Piece each--> threads --> owner of the bytes

A thread starts when there is work, and ends after a while without any. A caller that waits for a
piece that no thread has started fetches it itself, so one range needs no thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

# At a latency of 30 ms and 47 kB a record, a thread fetches 33 records/s: this many, 4,200. More
# threads cost more in contention for the GIL than they gain.
MOST_THREADS = 128
# Reading over a gap of this size costs as much as a request of its own: at 1 GB/s, it takes the
# 0.13 ms of CPU time of a request. Such gaps are fetched, too.
GAP_BYTES = 128 << 10
# Most threads for low-priority pieces: 32 fetch 1.8 GB/s at 30 ms and 100 MB/s each, but 2 while
# more than 16 threads fetch other pieces, as for the first batch.
_MOST_LOW_PRIORITY, _LOW_PRIORITY_BESIDE, _MANY_OTHERS = 32, 2, 16
# Longest request: at 100 MB/s a connection, a latency of 30 ms is 40% of its time. It is also the
# most that a lost or hanging connection costs.
PIECE_BYTES = 4 << 20
_IDLE_SECONDS = 0.5
# Time after which the measured speed of connections is forgotten.
_REMEMBERED_SECONDS = 60.0

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


def runs(units: NDArray[np.int64], gap: int, most: int) -> list[tuple[int, int]]:
    """Merge ascending units into ranges of up to ``most``, with gaps of up to ``gap``."""
    if not len(units):
        return []
    cuts = np.flatnonzero(np.diff(units) > gap + 1)
    begins = units[np.concatenate([[0], cuts + 1])].tolist()
    ends = (units[np.concatenate([cuts, [len(units) - 1]])] + 1).tolist()
    return [
        (at, min(at + most, end))
        for begin, end in zip(begins, ends)
        for at in range(begin, end, most)
    ]


class Piece:
    """Range of units that ``fetch`` brings once, however many threads wait for it.

    With ``low_priority``, it starts after all others, and waiting for it is optional.
    """

    __slots__ = ("_begun", "_done", "_fetch", "begin", "end", "error", "low_priority")

    def __init__(
        self, begin: int, end: int, fetch: Callable[[Piece], None], low_priority: bool = False
    ) -> None:
        self.begin = begin
        self.end = end
        self.low_priority = low_priority
        self.error: BaseException | None = None
        self._fetch = fetch
        self._begun = threading.Lock()
        self._done = threading.Event()

    def run(self) -> None:
        """Fetch it, unless a thread has already started to."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._fetch(self)
        except (KeyboardInterrupt, SystemExit):  # Meant for this thread alone.
            raise
        except BaseException as error:
            self.error = error
        finally:
            self._done.set()

    @property
    def begun(self) -> bool:
        """True if a thread has started to fetch it."""
        return self._begun.locked()

    def cancel(self) -> None:
        """Prevent it from being started."""
        if self._begun.acquire(blocking=False):
            self._done.set()

    def wait(self) -> None:
        """Fetch it or wait until it has ended; ``error`` holds a failure. May be cancelled."""
        self.run()
        self._done.wait()


class _Threads:
    """Thread pool for pieces: awaited ones first, then expected ones, then low-priority ones."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._wanted: deque[Piece] = deque()
        self._expected: deque[Piece] = deque()
        self._low_priority: deque[Piece] = deque()
        self._count = self._idle = self._at_low_priority = 0
        self.low_priority_seconds = self.low_priority_at = 0.0
        """Moving average of a low-priority piece's seconds, and the time of the last update."""

    @property
    def _ready(self) -> int:
        """Number of pieces that threads may start."""
        at_others = self._count - self._idle - self._at_low_priority
        most = _LOW_PRIORITY_BESIDE if at_others > _MANY_OTHERS else _MOST_LOW_PRIORITY
        low_priority = max(0, min(len(self._low_priority), most - self._at_low_priority))
        return len(self._wanted) + len(self._expected) + low_priority

    def submit(self, pieces: Sequence[Piece], expected: bool) -> None:
        with self._lock:
            for piece in pieces:
                soon = self._expected if expected else self._wanted
                (self._low_priority if piece.low_priority else soon).append(piece)
            for _ in range(min(self._ready - self._idle, MOST_THREADS - self._count)):
                name = f"adapters-fetching-{self._count + 1}"
                try:
                    threading.Thread(target=self._run, name=name, daemon=True).start()
                except RuntimeError:  # No resources for a thread: waiting callers fetch.
                    break
                self._count += 1
            self._lock.notify(len(pieces))

    def _run(self) -> None:
        while piece := self._next():
            began = time.monotonic()
            try:
                piece.run()
            finally:
                if piece.low_priority:
                    with self._lock:
                        self._at_low_priority -= 1
                        self.low_priority_at = ended = time.monotonic()
                        self.low_priority_seconds += (ended - began - self.low_priority_seconds) / 8
            del piece

    def _next(self) -> Piece | None:
        with self._lock:
            while not self._ready:
                self._idle += 1
                is_notified = self._lock.wait(_IDLE_SECONDS)
                self._idle -= 1
                if not is_notified and not self._ready:
                    self._count -= 1
                    return None
            piece = (self._wanted or self._expected or self._low_priority).popleft()
            self._at_low_priority += piece.low_priority
            return piece


_threads = _Threads()


def start(pieces: Sequence[Piece], expected: bool = False) -> None:
    """Start to fetch these pieces; if ``expected``, after all that callers wait for."""
    if pieces:
        _threads.submit(pieces, expected)


def low_priority_seconds() -> float:
    """Return the recent average time of a low-priority piece; 0 if unknown or old."""
    is_known = time.monotonic() - _threads.low_priority_at < _REMEMBERED_SECONDS
    return _threads.low_priority_seconds if is_known else 0.0


def side_by_side(do: Callable[[_Given], _Result], given: Sequence[_Given]) -> list[_Result]:
    """Call ``do`` for each item concurrently and return the results in order.

    Raises:
        Exception: The error for the first item that failed.
    """
    results: dict[int, _Result] = {}

    def run(piece: Piece) -> None:
        results[piece.begin] = do(given[piece.begin])

    pieces = [Piece(place, place + 1, run) for place in range(len(given))]
    if len(pieces) > 1:
        start(pieces)
    try:
        for piece in pieces:
            piece.wait()
            if piece.error is not None:
                raise piece.error
    except BaseException:
        for other in pieces:
            other.cancel()
        raise
    return [results[place] for place in range(len(given))]


def _in_child() -> None:
    global _threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_in_child)
