"""``workers="auto"``: what the first batches cost, which workers fit that, and how many later on.

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
    from adapters.engine.parcel import Obstacle

# Up to here a batch is not worth a handover to a process (0.5 ms, two cores), and one
# thread that reads ahead hides it.
_TRIVIAL_SECONDS = 0.001
# Of such a batch, but longer, several are looked at: something else may have held up the one.
_SHORT_SECONDS = 0.01
_LOOKS = 4
# Two threads must make that much more than one, or the work is taken to hold the GIL. It is more
# from 6 CPUs on, so that as many threads as CPUs make a third of what as many processes would, by
# Amdahl's law; but no more than can be measured.
_SCALES, _SCALES_AT_MOST = 1.3, 1.9
# The first times, the threads also fill memory that is new to them: where two decode 1.9 times as
# many JPEGs later on, they made 1.0 to 1.3.
_TRIES = 4
# Batches that one thread computes, until others leave it a CPU for most of one.
_LOOKS_IN_NOISE = 5
# Of an image that is decoded. Python holds its lock for 1 to 2 us of each, so that threads scale: a
# raw picture of 256 pixels takes 80 us of a core, a JPEG 250.
_DECODING_SECONDS = 0.00004
# Below this share of a CPU, the work is taken to wait for something.
_WAITS = 0.5
_MOST_WAITING_THREADS = 64
# Each takes 50 to 100 MB of memory, and half a second or more of a CPU to start.
_WAITING_PROCESSES_PER_CPU, _MOST_WAITING_PROCESSES = 4, 16
# A decision is looked at again after that many batches and that long.
_TUNE_BATCHES = 16
_TUNE_SECONDS = 0.5
# Shares of the time that the trainer waits: above, one worker more; below, for a while, one less.
_STARVED, _FED = 0.05, 0.002
# Above that, there are far too few.
_STARVING = 0.5
_FED_PERIODS = 4


@dataclass(frozen=True, eq=False)
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
    """Read ahead only while that feeds the trainer faster than computing inline."""


class Untried(Protocol):
    """A stream whose first batches are measured."""

    def expect(self) -> Pending:
        """The first batch that hasn't been asked for, which the caller will ``fulfil``.

        Raises:
            Exhausted: There is none.
        """

    def expect_another(self) -> Pending:
        """The one behind it, where that is known before the reader has come there.

        Raises:
            Exhausted: It isn't, or there is none.
        """

    def fulfil(self, pending: Pending) -> None:
        """Compute a batch in the calling thread; an error waits for whoever reads the batch."""

    def compute(self) -> Pending:
        """Both at once."""


class Trial:
    """The measurement behind ``workers="auto"``: one batch or two at a time, as they are needed.

    The first batch may load and cache things, so the second one counts; then, if there is a
    question left, two at once on two threads, up to four times.

    Args:
        plan: What is computed.
        use_multiprocessing: The user has decided for processes.
    """

    def __init__(self, plan: Plan, use_multiprocessing: bool) -> None:
        self._plan = plan
        self._processes = use_multiprocessing
        self._serial = plan.serial
        self._alone: list[Pending] = []
        self._undecided_alone = True
        self._together = math.inf
        self._tries = 0

    @functools.cached_property
    def _cpus(self) -> int:
        return usable_cpus()

    @property
    def _scales(self) -> float:
        """The gain of two threads from which on threads are taken."""
        for_a_third = 2 * (self._cpus - 1) / (self._cpus + 1)
        return min(max(_SCALES, for_a_third), _SCALES_AT_MOST)

    def step(self, stream: Untried) -> Choice | None:
        """Compute the stream's next batches; returns the choice when it can be made."""
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
        # The batch that it was compared with may have been slow for being one of the first.
        self._compute_alone(stream)
        if self._gain < self._scales and self._tries < _TRIES:
            return None
        if self._seconds < _TRIVIAL_SECONDS:
            return _read_ahead(f"{self._cost}, which needs no more")
        gain = self._gain
        if self._waits and gain >= self._scales:
            return self._waiting_threads()
        return self._scaled_choice(gain, f"two threads make {gain:.2g} times as many")

    def _compute_alone(self, stream: Untried) -> int:
        """Compute the next batch in this thread; how many have been by now."""
        pending = stream.compute()
        if pending.error is None:
            self._alone.append(pending)
        return len(self._alone)

    @property
    def _seconds(self) -> float:
        """Of a batch on one thread, once what only the first one does is done."""
        return min(pending.spent.own_seconds for pending in self._alone[1:])

    @property
    def _quietest(self) -> Spent:
        """Of the batches on one thread but the first, the quickest that others didn't disturb."""
        spent = (pending.spent for pending in self._alone[1:])
        return min(spent, key=lambda each: (each.noisy, each.own_seconds))

    @property
    def _samples(self) -> int:
        """In the second batch; a sampler may give any number."""
        second = self._alone[1]
        return self._plan.rows(second.key)

    @property
    def _gain(self) -> float:
        """How many times as many batches two threads make."""
        return 2 * self._seconds / self._together

    @property
    def _cost(self) -> str:
        return f"a batch takes {1000 * self._seconds:.3g} ms"

    def _early_choice(self) -> Choice | None:
        """What one thread tells; None where two threads must be tried."""
        alone = self._quietest.own_seconds
        if not self._plan.threads:
            return self._threadless_choice()
        if self._serial:
            return self._serial_choice()
        if alone < _TRIVIAL_SECONDS:
            return _read_ahead(f"{self._cost}, which needs no more")
        if self._waits and not self._plan.not_thread_safe:
            return self._waiting_threads()
        if self._cpus == 1:
            return _read_ahead(f"{self._cost}, and there is one CPU")
        if self._plan.own_functions and not obstacle_to_processes(self._plan):
            return self._scaled_choice(1.0, "MXNet's operations take turns on threads")
        if self._plan.only_decodes and alone > _DECODING_SECONDS * self._samples:
            return self._scaled_choice(2.0, "images are decoded without the interpreter lock")
        return None

    @property
    def _waits(self) -> bool:
        """Whether a batch waits for something most of its time."""
        return self._quietest.busy_seconds < _WAITS * self._quietest.own_seconds

    def _at_once(self, most: int) -> int:
        """How many batches that wait have to be made at once to keep the CPUs busy."""
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
        """Inline, one thread that reads ahead, or processes, for code that isn't thread-safe."""
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
        # What was opened may belong to the thread that did so, as sqlite3's connections do.
        if obstacle.opened:
            return Choice("inline", 0, 0, f'workers="auto": inline ({why})')
        return _read_ahead(why)

    @property
    def _epoch_seconds(self) -> float:
        """Of an epoch that is computed inline."""
        return self._seconds * (self._plan.num_batches or math.inf)

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
            return _read_ahead(f"{self._cost}; {measured}; {obstacle}")
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
    """Why worker processes can't, or had better not, compute this plan; no reason if they can.

    Args:
        plan: What is computed.
        epoch_seconds: What an epoch takes without them; sending the plan must cost less than that.
    """
    from adapters.engine.parcel import Obstacle, obstacle_to_sending  # Few programs send anything.

    if not multiprocessing.current_process().daemon:
        return obstacle_to_sending(plan, epoch_seconds)
    from adapters.engine.processes import NO_CHILDREN

    return Obstacle(NO_CHILDREN, possible=False)


def _read_ahead(reason: str) -> Choice:
    reason = f'workers="auto": inline, with one thread that reads ahead ({reason})'
    return Choice("threads", 1, 1, reason, only_if_busy=True)


def _on_two_threads(stream: Untried) -> float | None:
    """Seconds that two batches take on two threads.

    Infinite where one of them fails, or where they were not made at the same time: a busy machine
    may run the one and then the other, which says nothing of both.

    None where the stream has only one left.
    """
    batches = [stream.expect()]
    try:
        batches.append(stream.expect_another())
    except Exhausted:
        stream.fulfil(batches[0])
        return None
    # This thread is one of the two: of two new ones, the system often leaves both on one CPU.
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
    # On a busy machine, the two may have taken turns on one CPU for want of another.
    return max(batch.spent.own_seconds for batch in batches)


def _overlap(spans: list[tuple[float, float]]) -> bool:
    """Whether two spans of time have more than half of the shorter one in common."""
    common = min(end for _, end in spans) - max(begin for begin, _ in spans)
    return common > 0.5 * min(end - begin for begin, end in spans)


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
            more = self.active * 2 if share > _STARVING else self.active * 5 // 4
            self.active = min(self._ceiling, max(self.active + 1, more))
        elif self._fed_periods >= _FED_PERIODS and self.active > self._floor:
            self.active -= 1
            self._fed_periods = 0
        self._start()
