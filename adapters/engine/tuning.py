"""``workers="auto"``: what the first batches cost, which workers fit that, and how many later on.

The measured batches are the first ones of the run; they are delivered like any others.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import loky

from adapters.assemble import Plan
from adapters.engine.parcel import pickles
from adapters.sources import SequenceSource

if TYPE_CHECKING:
    from adapters.engine.stream import Stream

# Up to here a batch is not worth a handover to a process (0.5 ms, loky 3.7, two cores), and one
# thread that reads ahead hides it.
_TRIVIAL_SECONDS = 0.001
# What it takes to have another thread do something, and the interpreter lock with it.
_HANDOVER_SECONDS = 0.0001
# Two threads must make that much more than one, or the work is taken to hold the GIL.
_SCALES = 1.4
# Below this share of a CPU, the work is taken to wait for something.
_WAITS = 0.5
_MOST_WAITING_THREADS = 64
# A decision is looked at again after that many batches and that long.
_TUNE_BATCHES = 16
_TUNE_SECONDS = 0.5
# Shares of the time that the trainer waits: above, one worker more; below, for a while, one less.
_STARVED, _FED = 0.05, 0.002
_FED_PERIODS = 4


@dataclass(frozen=True)
class Choice:
    """Which workers, and how many.

    Args:
        kind: ``"inline"``, ``"threads"`` or ``"processes"``.
        count: To start with; 0 for inline.
        ceiling: Of the count, where it may grow.
        reason: For the log.
    """

    kind: str
    count: int
    ceiling: int = 0
    reason: str = ""
    only_if_busy: bool = False
    """Read ahead only while it pays, see ``pays_to_read_ahead``."""


def pays_to_read_ahead(batch_seconds: float, consumer_seconds: float) -> bool:
    """Whether a thread should compute trivial batches ahead of the consumer.

    Not while the consumer takes less time over a batch than the batch itself does, as the two
    would only take turns, and not where handing over a batch takes longer than making it.
    """
    return _HANDOVER_SECONDS < batch_seconds < consumer_seconds


def usable_cpus() -> int:
    """CPUs that this process may use, by affinity and by its control group."""
    return int(loky.cpu_count())


def choose(stream: Stream, plan: Plan, use_multiprocessing: bool) -> Choice | None:
    """Measure the first batches of a stream; None where one of them fails."""
    cpus = usable_cpus()
    if use_multiprocessing:
        return Choice("processes", cpus, cpus, f'workers="auto": {cpus} processes, as asked for')
    whole = isinstance(plan.source, SequenceSource)
    batches = [stream.compute()]
    if not plan.own_epochs:
        batches.append(stream.compute())  # The first one may have loaded and cached things.
    if any(pending.error is not None for pending in batches):
        return None
    alone, busy = batches[-1].seconds, batches[-1].cpu_seconds
    cost = f"a batch takes {1000 * alone:.3g} ms"
    if alone < _TRIVIAL_SECONDS:
        return _read_ahead(f"{cost}, which needs no more")
    if busy < _WAITS * alone and not whole:
        count = min(_MOST_WAITING_THREADS, math.ceil(cpus * alone / max(busy, 0.01 * alone)))
        return Choice(
            "threads",
            count,
            _MOST_WAITING_THREADS,
            f'workers="auto": {count} threads ({cost}, {1 - busy / alone:.0%} of it waiting)',
        )
    if cpus == 1:
        return _read_ahead(f"{cost}, and there is one CPU")
    if whole:
        gain, measured = 1.0, "one at a time, as the sequence may not be thread-safe"
    else:
        seconds = _on_two_threads(stream)
        if seconds is None:
            return None
        gain = 2 * alone / seconds
        measured = f"two threads make {gain:.2g} times as many"
    if gain >= _SCALES:
        return Choice("threads", cpus, cpus, f'workers="auto": {cpus} threads ({cost}; {measured})')
    if (obstacle := pickles(plan)) is not None:
        return _read_ahead(f"{cost}; {measured}; processes can't be used: {obstacle}")
    return Choice("processes", cpus, cpus, f'workers="auto": {cpus} processes ({cost}; {measured})')


def _read_ahead(reason: str) -> Choice:
    reason = f'workers="auto": inline, with one thread that reads ahead ({reason})'
    return Choice("threads", 1, 1, reason, only_if_busy=True)


def _on_two_threads(stream: Stream) -> float | None:
    """Seconds that two batches take on two threads; the better of two tries."""
    best = math.inf
    for _ in range(2):
        batches = [stream.expect(), stream.expect()]
        threads = [threading.Thread(target=stream.fulfil, args=(batch,)) for batch in batches]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = min(best, time.perf_counter() - started)
        if any(batch.error is not None for batch in batches):
            return None
    return best


class Tuner:
    """How many of the chosen workers are active, by how much the trainer waits.

    Called from the consumer's thread; ``active`` may be read from any.

    Args:
        choice: What was measured.
    """

    def __init__(self, choice: Choice) -> None:
        self.active = choice.count
        self._ceiling = max(choice.ceiling, choice.count)
        self._floor = 1
        self._fed_periods = 0
        self._start()

    def _start(self) -> None:
        self._since = time.perf_counter()
        self._batches = 0
        self._waited = 0.0

    def observe(self, waited_seconds: float) -> None:
        """The consumer got a batch after waiting for it."""
        self._batches += 1
        self._waited += waited_seconds
        if self._batches < _TUNE_BATCHES:
            return
        elapsed = time.perf_counter() - self._since
        if elapsed < _TUNE_SECONDS:
            return
        share = self._waited / elapsed
        self._fed_periods = self._fed_periods + 1 if share < _FED else 0
        if share > _STARVED and self.active < self._ceiling:
            # What has just been taken away was needed.
            self._floor = self.active + 1
            self.active = min(self._ceiling, max(self.active + 1, self.active * 5 // 4))
        elif self._fed_periods >= _FED_PERIODS and self.active > self._floor:
            self.active -= 1
            self._fed_periods = 0
        self._start()
