"""``workers="auto"``: measures the first batches, chooses the workers, and tunes their number.

The measured batches are the first ones of the run; they are delivered like any others.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from adapters import user_code
from adapters.batch.plan import Plan
from adapters.clock import Spent
from adapters.cpus import usable_cpus
from adapters.engine.jobs import Exhausted, Pending

if TYPE_CHECKING:
    from adapters.engine.serialization import Obstacle

# Up to this time, a batch isn't worth handing over to a process (0.5 ms, two cores), and one
# read-ahead thread hides it.
_TRIVIAL_SECONDS = 0.001
# Below this time, several batches are measured, because something else may have delayed one.
_SHORT_SECONDS = 0.01
_LOOKS = 4
# Two threads must make this many times as many batches as one, or the work counts as holding the
# GIL. From 5 CPUs on, more is required, so that as many threads as CPUs make a third of what as
# many processes would, by Amdahl's law; but not more than can be measured.
_SCALES, _SCALES_AT_MOST = 1.3, 1.9
# Tries with two threads. At first, the threads also touch new memory: two that decode 1.9 times as
# many JPEGs later made 1.0 to 1.3 at first.
_TRIES = 4
# Batches on one thread, at most, if other processes take the CPUs for most of them.
_LOOKS_IN_NOISE = 5
# Time per decoded image from which threads scale: Python holds the GIL for 1 to 2 us of each. A raw
# image of 256 pixels takes 80 us of a core, a JPEG 250.
_DECODING_SECONDS = 0.00004
# Below this share of a CPU, the work counts as waiting.
_WAITS = 0.5
_MOST_WAITING_THREADS = 64
# Each process takes 50 to 100 MB of memory, and 0.5 s or more of a CPU to start.
_WAITING_PROCESSES_PER_CPU, _MOST_WAITING_PROCESSES = 4, 16
# A decision is reviewed after this many batches and this time.
_TUNE_BATCHES = 16
_TUNE_SECONDS = 0.5
# Share of the time that the trainer waits: above the first, a quarter more workers; below the
# second, for some periods, one less.
_STARVED, _FED = 0.05, 0.002
# Above this share, twice as many workers.
_STARVING = 0.5
_FED_PERIODS = 4


@dataclass(frozen=True, eq=False)
class Choice:
    """Chosen kind and number of workers.

    Args:
        kind: ``"inline"`` or a key of ``EXECUTORS``.
        count: Number to start with; 0 for inline.
        ceiling: Maximum of the number, if it may grow.
        reason: Reason, for the log.
    """

    kind: str
    count: int
    ceiling: int = 0
    reason: str = ""
    only_if_busy: bool = False
    """Read ahead only if that feeds the trainer faster than computing inline."""
    seconds: float = math.inf
    """Shortest time of a measured batch."""


class Untried(Protocol):
    """Stream whose first batches are measured."""

    def append_next(self) -> Pending:
        """Add the next unrequested batch, which the caller will ``fulfil``, to the window.

        Raises:
            Exhausted: There is none.
        """

    def append_another(self) -> Pending:
        """Add the batch after that, if it is known before the reader gets there.

        Raises:
            Exhausted: It is unknown, or there is none.
        """

    def fulfil(self, pending: Pending) -> None:
        """Compute a batch in the calling thread; an error is raised when the batch is read."""

    def compute(self) -> Pending:
        """Call ``expect`` and ``fulfil``."""


class Trial:
    """Measurement for ``workers="auto"``: one or two batches at a time, as the reader needs them.

    The first batch may load and cache things, so it doesn't count. If one thread doesn't settle the
    choice, two batches are computed at once on two threads, up to four times.

    Args:
        plan: The plan to compute.
        use_multiprocessing: The user has chosen processes.
    """

    def __init__(self, plan: Plan, use_multiprocessing: bool) -> None:
        self._plan = plan
        self._processes = use_multiprocessing
        self._serial = plan.one_thread_at_a_time
        self._alone: list[Pending] = []
        self._undecided_alone = True
        self._together = math.inf
        self._tries = 0

    @functools.cached_property
    def _cpus(self) -> int:
        return usable_cpus()

    @property
    def _scales(self) -> float:
        """Gain of two threads from which threads are chosen."""
        for_a_third = 2 * (self._cpus - 1) / (self._cpus + 1)
        return min(max(_SCALES, for_a_third), _SCALES_AT_MOST)

    def step(self, stream: Untried) -> Choice | None:
        """Compute the stream's next batches; return the choice when it can be made."""
        if self._processes:
            cpus = self._cpus
            reason = f'workers="auto": {cpus} processes, as asked for'
            return Choice("processes", cpus, cpus, reason)
        if self._undecided_alone:
            measured = self._compute_alone(stream)
            if measured < 2 or (self._quietest.noisy and measured < _LOOKS_IN_NOISE):
                return None
            if measured < _LOOKS and _TRIVIAL_SECONDS <= self._seconds < _SHORT_SECONDS:
                return None
            self._undecided_alone = False
            return self._early_choice()
        if self._gain < self._scales and self._tries < _TRIES:
            together = _on_two_threads(stream)
            if together is not None:
                self._together = min(self._together, together)
                self._tries += 1
            return None
        # The batch to compare with may have been slow because it was one of the first.
        self._compute_alone(stream)
        if self._gain < self._scales and self._tries < _TRIES:
            return None
        if self._seconds < _TRIVIAL_SECONDS:
            return self._read_ahead(f"{self._cost}, which needs no more")
        gain = self._gain
        if self._waits and gain >= self._scales:
            return self._waiting_threads()
        return self._scaled_choice(gain, f"two threads make {gain:.2g} times as many")

    def _compute_alone(self, stream: Untried) -> int:
        """Compute the next batch in this thread; return the number computed so far."""
        pending = stream.compute()
        if pending.error is None:
            self._alone.append(pending)
        return len(self._alone)

    @property
    def _seconds(self) -> float:
        """Shortest time of a batch on one thread, without the first one."""
        return min(pending.spent.own_seconds for pending in self._alone[1:])

    @property
    def _quietest(self) -> Spent:
        """Shortest batch on one thread without the first, preferably an undisturbed one."""
        spent = (pending.spent for pending in self._alone[1:])
        return min(spent, key=lambda each: (each.noisy, each.own_seconds))

    @property
    def _samples(self) -> int:
        """Number of samples in the second batch; a sampler's batches may vary in size."""
        second = self._alone[1]
        return self._plan.rows(second.key)

    @property
    def _gain(self) -> float:
        """Batches made by two threads, relative to one."""
        return 2 * self._seconds / self._together

    @property
    def _cost(self) -> str:
        return f"a batch takes {1000 * self._seconds:.3g} ms"

    def _early_choice(self) -> Choice | None:
        """Choose by the batches on one thread; None if two threads must be tried."""
        alone = self._quietest.own_seconds
        if not self._plan.threads:
            return self._threadless_choice()
        if self._serial:
            return self._serial_choice()
        if alone < _TRIVIAL_SECONDS:
            return self._read_ahead(f"{self._cost}, which needs no more")
        if self._waits and not self._plan.not_thread_safe:
            return self._waiting_threads()
        if self._cpus == 1:
            return self._read_ahead(f"{self._cost}, and there is one CPU")
        if self._plan.calls_users_functions and not obstacle_to_processes(self._plan):
            return self._scaled_choice(1.0, "its functions take turns on threads")
        if self._plan.only_decodes and alone > _DECODING_SECONDS * self._samples:
            return self._scaled_choice(2.0, "images are decoded without the interpreter lock")
        return None

    @property
    def _waits(self) -> bool:
        """True if a batch spends most of its time waiting."""
        return self._quietest.busy_seconds < _WAITS * self._quietest.own_seconds

    def _at_once(self, most: int) -> int:
        """Number of waiting batches to make at once to keep the CPUs busy."""
        alone, busy = self._quietest.own_seconds, self._quietest.busy_seconds
        return min(most, math.ceil(self._cpus * alone / max(busy, 0.01 * alone)))

    @property
    def _waiting(self) -> str:
        busy = self._quietest.busy_seconds / self._quietest.own_seconds
        return f"{self._cost}, {1 - busy:.0%} of it waiting"

    def _waiting_threads(self) -> Choice:
        count = self._at_once(_MOST_WAITING_THREADS)
        reason = f'workers="auto": {count} threads ({self._waiting})'
        return Choice("threads", count, _MOST_WAITING_THREADS, reason)

    def _serial_choice(self) -> Choice:
        """Choose inline, one read-ahead thread, or processes, for code that isn't thread-safe."""
        unsafe = f"{' and '.join(self._plan.not_thread_safe)} not declared thread_safe"
        obstacle = obstacle_to_processes(self._plan, self._epoch_seconds)
        if self._seconds < _TRIVIAL_SECONDS:
            why = f"{self._cost}, which needs no more"
        elif obstacle:
            why = f"{self._cost}; {unsafe}; {obstacle}"
        elif self._cpus == 1 and not self._waits:
            why = f"{self._cost}, and there is one CPU"
        else:
            return self._of_processes(unsafe)
        # An opened object may be bound to its thread, as sqlite3's connections are.
        if obstacle.opened:
            return Choice("inline", 0, 0, f'workers="auto": inline ({why})')
        return self._read_ahead(why)

    @property
    def _epoch_seconds(self) -> float:
        """Time of an epoch computed inline."""
        return self._seconds * (self._plan.num_batches or math.inf)

    def _read_ahead(self, why: str) -> Choice:
        reason = f'workers="auto": inline, with one thread that reads ahead ({why})'
        return Choice("threads", 1, 1, reason, only_if_busy=True, seconds=self._seconds)

    def _threadless_choice(self) -> Choice:
        measured = "it draws from the process's random generators, which threads would share"
        choice = self._scaled_choice(1.0, measured)
        worth_it = self._cpus > 1 and self._seconds >= _TRIVIAL_SECONDS
        if choice.kind == "processes" and worth_it:
            return choice
        return Choice("inline", 0, 0, f'workers="auto": inline ({self._cost}; {measured})')

    def _scaled_choice(self, gain: float, measured: str) -> Choice:
        cpus = self._cpus
        enough = gain >= self._scales
        obstacle = None if enough else obstacle_to_processes(self._plan, self._epoch_seconds)
        if gain >= (_SCALES if obstacle else self._scales):
            reason = f'workers="auto": {cpus} threads ({self._cost}; {measured})'
            return Choice("threads", cpus, cpus, reason)
        if obstacle:
            return self._read_ahead(f"{self._cost}; {measured}; {obstacle}")
        return self._of_processes(measured)

    def _of_processes(self, measured: str) -> Choice:
        count = most = self._cpus
        number, cost = f"{count}", self._cost
        if self._waits:
            most = max(count, min(_MOST_WAITING_PROCESSES, _WAITING_PROCESSES_PER_CPU * count))
            number, cost = f"{count} to {self._at_once(most)}", self._waiting
        reason = f'workers="auto": {number} processes ({cost}; {measured})'
        return Choice("processes", count, most, reason)


def obstacle_to_processes(plan: Plan, epoch_seconds: float = math.inf) -> Obstacle:
    """Find a reason not to compute a plan in worker processes; the result is false if none.

    Args:
        plan: The plan to compute.
        epoch_seconds: Time of an epoch without processes; sending the plan must cost less.
    """
    from adapters.engine.serialization import (  # Few programs need these.
        Obstacle,
        obstacle_to_sending,
    )

    if not multiprocessing.current_process().daemon:
        return obstacle_to_sending(plan, epoch_seconds)
    from adapters.engine.processes import NO_CHILDREN

    return Obstacle(NO_CHILDREN, possible=False)


def _on_two_threads(stream: Untried) -> float | None:
    """Measure the time that two batches take on two threads, in seconds.

    Infinite if one of them fails, or if they did not run at the same time: a busy machine may run
    one after the other, which says nothing about both.

    None if the stream has only one batch left.
    """
    batches = [stream.append_next()]
    try:
        batches.append(stream.append_another())
    except Exhausted:
        stream.fulfil(batches[0])
        return None
    # One of the two is this thread: the system often leaves two new threads on one CPU.
    begun = threading.Event()
    spans: list[tuple[float, float]] = []

    def fulfil(batch: Pending) -> None:
        started = time.perf_counter()
        stream.fulfil(batch)
        spans.append((started, time.perf_counter()))

    def first() -> None:
        begun.set()
        fulfil(batches[0])

    thread = threading.Thread(target=first)
    thread.start()
    try:
        begun.wait()
        fulfil(batches[1])
    finally:
        with user_code.left_to_others():
            thread.join()
    if any(batch.error is not None for batch in batches) or not _overlap(spans):
        return math.inf
    # On a busy machine, the two may have taken turns on one CPU.
    return max(batch.spent.own_seconds for batch in batches)


def _overlap(spans: list[tuple[float, float]]) -> bool:
    """True if two spans overlap by more than half of the shorter one."""
    common = min(end for _, end in spans) - max(begin for begin, _ in spans)
    return common > 0.5 * min(end - begin for begin, end in spans)


class Tuner:
    """Number of active workers, adjusted by how long the trainer waits.

    Called from the consumer's thread; ``active`` may be read from any thread.

    Args:
        choice: The initial choice.
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
        """Record the wait for a batch."""
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
            # This many don't suffice, so their number won't be reduced to this again.
            self._floor = self.active + 1
            more = self.active * 2 if share > _STARVING else self.active * 5 // 4
            self.active = min(self._ceiling, max(self.active + 1, more))
        elif self._fed_periods >= _FED_PERIODS and self.active > self._floor:
            self.active -= 1
            self._fed_periods = 0
        self._start()
