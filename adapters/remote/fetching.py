"""Many ranges at once: near ones merged, long ones cut, fetched by threads that all files share.

    wanted units --runs--> ranges --Piece each--> threads --> whoever keeps the bytes

A thread starts when there is something for it to do, and ends when there was nothing for a while.
Who waits for a piece that no thread has begun fetches it itself, so one range needs no thread.
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

# At 30 ms of latency and 47 kB a record, each gives 33 records/s: this many, 4,200. More threads
# than that cost Python's lock more than they bring.
MOST_THREADS = 128
# Reading on over a gap costs as long as a request of its own where that much comes in the 0.13 ms
# of CPU that a request takes, at 1 GB/s: what lies between is then fetched, too.
GAP_BYTES = 128 << 10
# Of these, so many bring what is wanted much later: 32 bring 1.8 GB/s, at 30 ms and 100 MB/s each.
# As long as a batch is fetched by itself, as the first one is, fewer.
_MOST_LATER, _LATER_BESIDE, _BESIDE = 32, 2, 16
# Of one request: at 100 MB/s a connection, 30 ms of latency are a third of it. What a connection
# that was cut, or hangs, costs at the most.
PIECE_BYTES = 4 << 20
_IDLE_SECONDS = 0.5
# How long connections are taken to be slow.
_REMEMBERED_SECONDS = 60.0

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


def runs(units: NDArray[np.int64], gap: int, most: int) -> list[tuple[int, int]]:
    """The ranges that hold these units.

    Args:
        units: Their numbers, ascending.
        gap: Up to so many units between two are fetched, too.
        most: Of units in one range.
    """
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
    """A range that is fetched once, however many wait for it.

    Args:
        begin: Its first unit.
        end: The unit after its last.
        fetch: Fetches it, and keeps what came.
        later: It comes after what is expected sooner, and nobody need wait until it is begun.
    """

    __slots__ = ("_begun", "_done", "_fetch", "begin", "end", "error", "later")

    def __init__(
        self, begin: int, end: int, fetch: Callable[[Piece], None], later: bool = False
    ) -> None:
        self.begin = begin
        self.end = end
        self.later = later
        self.error: BaseException | None = None
        self._fetch = fetch
        self._begun = threading.Lock()
        self._done = threading.Event()

    def run(self) -> None:
        """Fetch it, unless somebody has begun to."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._fetch(self)
        except (KeyboardInterrupt, SystemExit):  # Meant for this thread, and not for who waits.
            raise
        except BaseException as error:
            self.error = error
        finally:
            self._done.set()

    @property
    def begun(self) -> bool:
        """Whether somebody fetches it, or has done so."""
        return self._begun.locked()

    def cancel(self) -> None:
        """Let nobody begin it."""
        if self._begun.acquire(blocking=False):
            self._done.set()

    def wait(self) -> None:
        """Return when it was fetched, or can't be, as ``error`` says, or nobody goes on with it."""
        self.run()
        self._done.wait()

    def ends_within(self, seconds: float) -> bool:
        """Whether that is so in so much time."""
        return self._done.wait(max(0.0, seconds))


class _Threads:
    """Runs pieces, those of who waits before those of who will, and a few of what is for later."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._wanted: deque[Piece] = deque()
        self._expected: deque[Piece] = deque()
        self._later: deque[Piece] = deque()
        self._count = self._idle = self._at_later = 0
        self.later_seconds = self.later_at = 0.0
        """What a piece for later took, of late, and when."""

    @property
    def _ready(self) -> int:
        """Pieces that a thread may begin."""
        at_others = self._count - self._idle - self._at_later
        most = _LATER_BESIDE if at_others > _BESIDE else _MOST_LATER
        later = max(0, min(len(self._later), most - self._at_later))
        return len(self._wanted) + len(self._expected) + later

    def submit(self, pieces: Sequence[Piece], expected: bool) -> None:
        with self._lock:
            for piece in pieces:
                soon = self._expected if expected else self._wanted
                (self._later if piece.later else soon).append(piece)
            for _ in range(min(self._ready - self._idle, MOST_THREADS - self._count)):
                name = f"adapters-fetching-{self._count + 1}"
                try:
                    threading.Thread(target=self._run, name=name, daemon=True).start()
                except RuntimeError:  # The system has no room for one: who waits fetches himself.
                    break
                self._count += 1
            self._lock.notify(len(pieces))

    def _run(self) -> None:
        while True:
            piece = self._next()
            if piece is None:
                return
            began = time.monotonic()
            try:
                piece.run()
            finally:
                if piece.later:
                    with self._lock:
                        self._at_later -= 1
                        self.later_at = time.monotonic()
                        self.later_seconds += (self.later_at - began - self.later_seconds) / 8
            del piece

    def _next(self) -> Piece | None:
        with self._lock:
            while not self._ready:
                self._idle += 1
                told = self._lock.wait(_IDLE_SECONDS)
                self._idle -= 1
                if not told and not self._ready:
                    self._count -= 1
                    return None
            piece = (self._wanted or self._expected or self._later).popleft()
            self._at_later += piece.later
            return piece


_threads = _Threads()


def start(pieces: Sequence[Piece], expected: bool = False) -> None:
    """Have these fetched; ``expected`` after all that somebody waits for."""
    if pieces:
        _threads.submit(pieces, expected)


def later_seconds() -> float:
    """What a piece that is for later takes, of late; 0 where that is long ago."""
    is_known = time.monotonic() - _threads.later_at < _REMEMBERED_SECONDS
    return _threads.later_seconds if is_known else 0.0


def side_by_side(do: Callable[[_Given], _Result], given: Sequence[_Given]) -> list[_Result]:
    """What ``do`` returns for each, of many that wait for a store at once.

    Raises:
        Exception: What it raised for the first of them that it raised for.
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
