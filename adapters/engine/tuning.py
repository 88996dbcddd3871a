"""``workers="auto"``: measures the first batches, and chooses the kind and number of workers.

The measured batches are the first ones of the run; they are delivered like any others.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapters import user_code
from adapters.batch.plan import Plan
from adapters.clock import Spent
from adapters.cpus import usable_cpus
from adapters.engine.tasks import Exhausted, Future

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


@dataclass(frozen=True, eq=False)
class Choice:
    """Chosen kind and number of workers.

    Args:
        kind: ``"inline"`` or a key of ``EXECUTORS``.
        count: Number to start with; 0 for inline.
        ceiling: Largest number of threads, if more may be faster.
        reason: Description of the workers and reason for them.
        only_if_busy: Read ahead only if that feeds the trainer faster than computing inline.
        seconds: Shortest time of a measured batch.
    """

    kind: str = "inline"
    count: int = 0
    ceiling: int = 0
    reason: str = "none, batches are made when they are asked for"
    only_if_busy: bool = False
    seconds: float = math.inf


class Trial:
    """Measurement for ``workers="auto"``: one or two batches at a time, as the reader needs them.

    The first batch may load and cache things, so it doesn't count. If one thread doesn't settle the
    choice, two batches are computed at once on two threads, up to four times.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._cpus = usable_cpus()
        # From 5 CPUs on, as many threads as CPUs must make a third of what as many processes would.
        scales = 2 * (self._cpus - 1) / (self._cpus + 1)
        self._scales = min(max(_SCALES, scales), _SCALES_AT_MOST)
        """Gain of two threads from which threads are chosen."""
        self._alone: list[Future] = []
        self._together = math.inf
        self._pairs = False
        """True once batches must be measured on two threads."""
        self._tries = 0

    def step(self, stream: Any) -> Choice | None:
        """Compute a ``Stream``'s next batches; return the choice when it can be made."""
        if self._pairs and self._needs_two_threads:
            self._together = min(self._together, _on_two_threads(stream))
            self._tries += 1
            return None
        # After two threads, too: the batch to compare with may have been an early, slow one.
        future = stream.compute()
        if future.error is None:
            self._alone.append(future)
        choice = self._choice() if self._known_alone else None
        self._pairs = self._known_alone and choice is None
        return choice

    @property
    def _gain(self) -> float:
        """Batches made by two threads, relative to one."""
        return 2 * self._seconds / self._together

    @property
    def _needs_two_threads(self) -> bool:
        return self._gain < self._scales and self._tries < _TRIES

    @property
    def _known_alone(self) -> bool:
        """True if enough batches were computed on one thread."""
        measured = len(self._alone)
        if measured < 2 or (self._quietest.noisy and measured < _LOOKS_IN_NOISE):
            return False
        return measured >= _LOOKS or not _TRIVIAL_SECONDS <= self._seconds < _SHORT_SECONDS

    @property
    def _seconds(self) -> float:
        return self._quietest.own_seconds

    @property
    def _quietest(self) -> Spent:
        """Shortest batch on one thread without the first, preferably an undisturbed one."""
        spent = (future.spent for future in self._alone[1:])
        return min(spent, key=lambda each: (each.noisy, each.own_seconds))

    @property
    def _waits(self) -> bool:
        """True if a batch spends most of its time waiting."""
        return self._quietest.busy_seconds < _WAITS * self._seconds

    @property
    def _obstacle(self) -> Obstacle:
        epoch_seconds = self._seconds * (self._plan.num_batches or math.inf)
        return obstacle_to_processes(self._plan, epoch_seconds)

    @property
    def _cost(self) -> str:
        return f"a batch takes {1000 * self._seconds:.3g} ms"

    # --- choices ---

    def _choice(self) -> Choice | None:
        """Return the choice; None if two threads must be tried."""
        plan, alone, gain = self._plan, self._seconds, self._gain
        if not plan.threads or plan.one_thread_at_a_time:
            return self._serial_choice()
        if alone < _TRIVIAL_SECONDS:
            return self._read_ahead(f"{self._cost}, which needs no more")
        if self._waits and (gain >= self._scales or not plan.not_thread_safe):
            return self._waiting_threads()
        if self._cpus == 1:
            return self._read_ahead(f"{self._cost}, and there is one CPU")
        if plan.calls_users_functions and not obstacle_to_processes(plan):
            return self._scaled_choice(1.0, "its functions take turns on threads")
        # A sampler's batches may vary in size.
        if plan.only_decodes and alone > _DECODING_SECONDS * len(plan.samples(self._alone[1].key)):
            return self._scaled_choice(2.0, "images are decoded without the interpreter lock")
        if self._needs_two_threads:
            return None
        return self._scaled_choice(gain, f"two threads make {gain:.2g} times as many")

    def _scaled_choice(self, gain: float, measured: str) -> Choice:
        """Choose threads if two of them gain enough, else processes if they can be used."""
        obstacle = None if gain >= self._scales else self._obstacle
        if gain >= (_SCALES if obstacle else self._scales):
            reason = f"{self._cpus} threads ({self._cost}; {measured})"
            return Choice("threads", self._cpus, reason=reason)
        if obstacle:
            return self._read_ahead(f"{self._cost}; {measured}; {obstacle}")
        return self._of_processes(measured)

    def _serial_choice(self) -> Choice:
        """Choose inline, one read-ahead thread, or processes, for code for one thread at a time."""
        draws, obstacle = not self._plan.threads, self._obstacle
        if draws:
            unsafe = "it draws from the process's random generators, which threads would share"
        else:
            unsafe = f"{' and '.join(self._plan.not_thread_safe)} not declared thread_safe"
        if self._seconds < _TRIVIAL_SECONDS:
            why = f"{self._cost}, which needs no more"
        elif obstacle:
            why = f"{self._cost}; {unsafe}; {obstacle}"
        elif self._cpus == 1 and (draws or not self._waits):
            why = f"{self._cost}, and there is one CPU"
        else:
            return self._of_processes(unsafe)
        # An opened object may be bound to its thread, as sqlite3's connections are.
        if draws or obstacle.opened:
            why = f"{self._cost}; {unsafe}" if draws else why
            return Choice(reason=f"inline ({why})")
        return self._read_ahead(why)

    def _read_ahead(self, why: str) -> Choice:
        reason = f"inline, with one thread that reads ahead ({why})"
        return Choice("threads", 1, reason=reason, only_if_busy=True, seconds=self._seconds)

    def _waiting_threads(self) -> Choice:
        count = self._at_once(_MOST_WAITING_THREADS)
        reason = f"{count} threads ({self._waiting})"
        # Later batches may wait longer than those that were measured.
        return Choice("threads", count, min(2 * count, _MOST_WAITING_THREADS), reason)

    def _of_processes(self, measured: str) -> Choice:
        count = self._cpus
        number, cost = f"{count}", self._cost
        if self._waits:
            most = max(count, min(_MOST_WAITING_PROCESSES, _WAITING_PROCESSES_PER_CPU * count))
            count = max(count, self._at_once(most))
            number, cost = f"{number} to {count}", self._waiting
        reason = f"{number} processes ({cost}; {measured})"
        return Choice("processes", count, reason=reason)

    def _at_once(self, most: int) -> int:
        """Number of waiting batches to make at once to keep the CPUs busy."""
        busy_share = self._quietest.busy_seconds / self._seconds
        return min(most, math.ceil(self._cpus / max(busy_share, 0.01)))

    @property
    def _waiting(self) -> str:
        busy = self._quietest.busy_seconds / self._seconds
        return f"{self._cost}, {1 - busy:.0%} of it waiting"


def obstacle_to_processes(plan: Plan, epoch_seconds: float = math.inf) -> Obstacle:
    """Find a reason not to compute a plan in worker processes; the result is false if none.

    Args:
        plan: The plan to compute.
        epoch_seconds: Time of an epoch without processes; sending the plan must cost less.
    """
    from adapters.engine.serialization import obstacle_to_sending  # Few programs need it.

    return obstacle_to_sending(plan, epoch_seconds)


def _on_two_threads(stream: Any) -> float:
    """Measure the time that two batches take on two threads, in seconds.

    Infinite if one of them fails or doesn't exist, or if they did not run at the same time: a busy
    machine may run one after the other, which says nothing about both.
    """
    batches: list[Future] = [stream.append_next()]
    try:
        batches.append(stream.append_next(needed=False))
    except Exhausted:
        stream.fulfil(batches[0])
        return math.inf
    spans: list[tuple[float, float]] = []

    def fulfil(batch: Future) -> None:
        started = time.perf_counter()
        stream.fulfil(batch)
        spans.append((started, time.perf_counter()))

    # One of the two is this thread: the system often leaves two new threads on one CPU.
    thread = threading.Thread(target=fulfil, args=(batches[0],))
    thread.start()
    try:
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
