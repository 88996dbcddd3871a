"""``workers="auto"``: which workers, how many, and when processes pay for their start.

``Trial`` measures the first batches of the run, which are delivered like any others, and makes a
``Choice`` of the kind and number of workers. ``Comparison`` then finds how many of them feed the
training loop fastest, and ``Losses`` when to start processes.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adapters import user_code
from adapters.batch.plan import Plan
from adapters.clock import Spent
from adapters.cpus import usable_cpus
from adapters.engine.tasks import Exhausted, Future

if TYPE_CHECKING:
    from adapters.engine.serialization import Obstacle

# --- the first batches ---

# Up to this time, a batch isn't worth handing over to a process (0.5 ms, two cores), and one
# read-ahead thread hides it.
_TRIVIAL_SECONDS = 0.001
# Number of batches to compute on one thread, with the first one. There are more of batches below
# this time, because something else may have delayed one, and if other processes take the CPUs.
_SHORT_SECONDS = 0.01
_LOOKS, _LOOKS_AT_SHORT, _LOOKS_IN_NOISE = 2, 4, 5
# Two threads must make this many times as many batches as one, or the work counts as holding the
# GIL. From 5 CPUs on, more is required, so that as many threads as CPUs make a third of what as
# many processes would, by Amdahl's law; but not more than can be measured.
_SCALES, _SCALES_AT_MOST = 1.3, 1.9
# Tries with two threads. At first, the threads also touch new memory: two that decode 1.9 times as
# many JPEGs later made 1.0 to 1.3 at first.
_TRIES = 4
# Time per decoded image from which threads scale: Python holds the GIL for 1 to 2 us of each. A raw
# image of 256 pixels takes 80 us of a core, a JPEG 250.
_DECODING_SECONDS = 0.00004
# Below this share of a CPU, the work counts as waiting.
_WAITS = 0.5
_MOST_WAITING_THREADS = 64
# Each process takes 50 to 100 MB of memory, and 0.5 s or more of a CPU to start.
_WAITING_PROCESSES_PER_CPU, _MOST_WAITING_PROCESSES = 4, 16
_DRAWS = "it draws from the process's random generators, which threads would share"


@dataclass(frozen=True, eq=False)
class Choice:
    """Chosen kind and number of workers.

    Args:
        kind: ``"inline"`` or a key of ``EXECUTORS``.
        count: Number of workers; 0 for inline.
        reason: Description of the workers and reason for them.
        only_if_busy: Read ahead only if that feeds the trainer faster than computing inline.
        seconds: Shortest time of a measured batch.
    """

    kind: str = "inline"
    count: int = 0
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
    def _known_alone(self) -> bool:
        """True if enough batches were computed on one thread."""
        if len(self._alone) < _LOOKS:
            return False
        short = _TRIVIAL_SECONDS <= self._seconds < _SHORT_SECONDS
        least = _LOOKS_AT_SHORT if short else _LOOKS
        return len(self._alone) >= (_LOOKS_IN_NOISE if self._quietest.noisy else least)

    @property
    def _quietest(self) -> Spent:
        """Shortest batch on one thread without the first, preferably an undisturbed one."""
        spent = (future.spent for future in self._alone[1:])
        return min(spent, key=lambda each: (each.noisy, each.own_seconds))

    @property
    def _seconds(self) -> float:
        return self._quietest.own_seconds

    @property
    def _busy_share(self) -> float:
        """Share of a batch's time that a CPU works; it waits for the rest."""
        return self._quietest.busy_seconds / self._seconds

    @property
    def _gain(self) -> float:
        """Batches made by two threads, relative to one."""
        return 2 * self._seconds / self._together

    @property
    def _needs_two_threads(self) -> bool:
        return self._gain < self._scales and self._tries < _TRIES

    @functools.cached_property
    def _obstacle(self) -> Obstacle:
        epoch_seconds = self._seconds * (self._plan.num_batches or math.inf)
        return obstacle_to_processes(self._plan, epoch_seconds)

    # --- choices ---

    def _choice(self) -> Choice | None:
        """Return the choice; None if two threads must be tried."""
        plan, cpus, gain = self._plan, self._cpus, self._gain
        waits = self._busy_share < _WAITS
        serial = not plan.threads or plan.one_thread_at_a_time
        if self._seconds < _TRIVIAL_SECONDS:
            return self._read_ahead(", which needs no more")
        if waits and not serial and (gain >= self._scales or not plan.not_thread_safe):
            count = self._at_once(_MOST_WAITING_THREADS)
            return Choice("threads", count, f"{count} threads ({self._cost})")
        if cpus == 1 and not (waits and serial):
            return self._read_ahead(", and there is one CPU")
        if serial:
            unsafe = f"{' and '.join(plan.not_thread_safe)} not declared thread_safe"
            gain, measured = 0.0, unsafe if plan.threads else _DRAWS
        elif plan.calls_users_functions and not self._obstacle:
            gain, measured = 1.0, "its functions take turns on threads"
        elif self._decodes_long:
            gain, measured = 2.0, "images are decoded without the interpreter lock"
        elif self._needs_two_threads:
            return None
        else:
            measured = f"two threads make {gain:.2g} times as many"
        if gain >= self._scales or (gain >= _SCALES and self._obstacle):
            return Choice("threads", cpus, f"{cpus} threads ({self._cost}; {measured})")
        if self._obstacle:
            return self._read_ahead(f"; {measured}; {self._obstacle}")
        most = max(cpus, min(_MOST_WAITING_PROCESSES, _WAITING_PROCESSES_PER_CPU * cpus))
        count = self._at_once(most) if waits else cpus
        number = f"{cpus} to {count}" if waits else f"{cpus}"
        return Choice("processes", count, f"{number} processes ({self._cost}; {measured})")

    def _read_ahead(self, why: str) -> Choice:
        """Choose one read-ahead thread; none for code that must stay on the reader's thread."""
        plan, why = self._plan, self._cost + why
        if not plan.threads:
            return Choice(reason=f"inline ({self._cost}; {_DRAWS})")
        # An opened object may be bound to its thread, as sqlite3's connections are.
        if plan.one_thread_at_a_time and self._obstacle.opened:
            return Choice(reason=f"inline ({why})")
        reason = f"inline, with one thread that reads ahead ({why})"
        return Choice("threads", 1, reason, only_if_busy=True, seconds=self._seconds)

    def _at_once(self, most: int) -> int:
        """Number of waiting batches to make at once to keep the CPUs busy."""
        return min(most, math.ceil(self._cpus / max(self._busy_share, 0.01)))

    @property
    def _decodes_long(self) -> bool:
        """True if it decodes images for so long that threads scale."""
        # A sampler's batches may vary in size.
        images = len(self._plan.samples(self._alone[1].key)) if self._plan.only_decodes else 0
        return images > 0 and self._seconds > _DECODING_SECONDS * images

    @property
    def _cost(self) -> str:
        share = self._busy_share
        waiting = f", {1 - share:.0%} of it waiting" if share < _WAITS else ""
        return f"a batch takes {1000 * self._seconds:.3g} ms{waiting}"


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
    common = min(end for _, end in spans) - max(begin for begin, _ in spans)
    apart = common <= 0.5 * min(end - begin for begin, end in spans)
    if apart or any(batch.error is not None for batch in batches):
        return math.inf
    # On a busy machine, the two may have taken turns on one CPU.
    return max(batch.spent.own_seconds for batch in batches)


# --- the delivered batches ---

# Least duration and number of batches of a period; with slow batches, the second pair applies.
# Measured with Keras on JAX, steps of 0.8 ms: periods of 32 batches differ by 2 to 5%.
_PERIOD_SECONDS, _PERIOD_BATCHES = 0.02, 32
_LONG_PERIOD_SECONDS, _LONG_PERIOD_BATCHES = 0.3, 6
# Least duration of a period once a setting is decided for.
_DECIDED_PERIOD_SECONDS = 0.05
_PERIODS = 3
# A setting slower than the first by this factor in a period gets no other one. Two pauses of 5 ms
# for the GIL may make a period 1.5 times as long.
_HOPELESS = 2.0
# A period in which most batches are slower by this factor ends after this number of them.
_SLOWER, _GLANCE_BATCHES = 1.3, 12
# Share of the time that trying slower settings may cost.
_COST = 0.025
# Batches after a change from computing inline that aren't counted: none are left to be used up.
_STARTING_BATCHES = 4
# With batches slower than this, trying fewer workers would cost more than a few batches. They are
# not tried if several are faster by this factor than one batch alone.
_SLOW_SECONDS, _CLEARLY = 0.005, 1.3
# Another setting must be faster than the first by this factor.
_GAIN = 1.02
# The pace must change by this factor, in as many periods, before settings are compared again.
_CHANGE, _CHANGED_PERIODS = 1.5, 3
# A gap longer than usual by this factor, which takes this share of its period, is an epoch's end or
# a checkpoint, and isn't counted.
_GAP, _GAP_SHARE = 8.0, 0.2


class Comparison:
    """Compares numbers of workers by the batches per second, in interleaved periods.

    The times of delivered batches go in, so the GIL and the trainer's own step are part of the
    measurement, and the number that feeds the training loop fastest comes out. ``delivered`` is
    called by the thread that takes the batches; ``current`` may be read from any thread.

        settling --> measuring --> settling --> ... --> decided
           ^      (the settings take turns, some periods each)  |
           +------------------- the pace changes ---------------+

    While settling, batches made with the previous setting are used up. After a slower setting, the
    first one is used for longer, so that trying slower ones costs about a fortieth of the time.

    With 0 workers, a batch is computed when it is requested, between two steps of the trainer. 0 or
    1 workers can't be faster than the time of a single batch. So if several workers are, and
    batches are slow, fewer aren't tried.

    Args:
        settings: Numbers of workers. The first one is used unless another one is faster.
        settle: Batches after a change of settings that aren't counted.
    """

    def __init__(self, settings: Sequence[int], settle: int) -> None:
        self.settings = tuple(settings)
        self._first = self.settings[0]
        self._settle = settle
        self.current = self._first
        """Number of workers to use now."""
        self._start()

    def _start(self) -> None:
        self.decided = False
        """True if the fastest setting has been found."""
        self._paces: dict[int, list[float]] = {setting: [] for setting in self.settings}
        self._rest = 0
        """Batches with the first setting, before another one is tried."""
        self._use(self._first)

    def _use(self, setting: int) -> None:
        self._left_to_settle = self._settle
        if setting and not self.current:
            self._left_to_settle = min(self._settle, _STARTING_BATCHES)
        self.current = setting
        if setting == self._first:
            self._left_to_settle += self._rest
            self._rest = 0
        self._moments: list[float] = []

    def delivered(self, moment: float, alone_seconds: float) -> None:
        """Record the delivery of a batch to the training loop.

        Args:
            moment: Time of the delivery, in seconds.
            alone_seconds: Time of a batch without competition for the GIL.
        """
        if self._left_to_settle:
            self._left_to_settle -= 1
            return
        self._moments.append(moment)
        count, seconds = len(self._moments) - 1, moment - self._moments[0]
        least = _DECIDED_PERIOD_SECONDS if self.decided else _PERIOD_SECONDS
        full = count >= _PERIOD_BATCHES and seconds >= least
        long = count >= _LONG_PERIOD_BATCHES and seconds >= _LONG_PERIOD_SECONDS
        if full or long or (count == _GLANCE_BATCHES and self._is_slower):
            self._period_ended(_seconds_per_batch(self._moments), alone_seconds)

    @property
    def _is_slower(self) -> bool:
        if self.decided or self.current == self._first:
            return False
        return statistics.median(_intervals(self._moments)) > _SLOWER * self._paces[self._first][-1]

    def _period_ended(self, pace: float, alone_seconds: float) -> None:
        first, paces = self._first, self._paces
        paces[self.current].append(pace)
        if self.decided:
            self._moments = self._moments[-1:]
            self._look_for_change()
            return
        if self.current != first:
            excess = max(0.0, pace / paces[first][-1] - 1)
            self._rest += int(excess / _COST * (self._settle + len(self._moments)))
            if pace > _HOPELESS * paces[first][-1]:
                del paces[self.current]
        elif first > 1 and max(_SLOW_SECONDS, _CLEARLY * pace) < alone_seconds:
            paces = {first: paces[first]}
        paces = {setting: paces[setting] for setting in paces if not self._has_lost(setting)}
        self._paces = paces
        missing = [each for each in paces if len(paces[each]) < _PERIODS + (each == first)]
        if len(paces) > 1 and missing:
            if any(each and each[-1] < paces[first][-1] for each in paces.values()):
                self._rest = 0  # Another one is faster, so far.
            self._use(min(missing, key=lambda setting: len(paces[setting])))
            return
        found = {each: statistics.median(self._relative(each)) for each in paces if each != first}
        best = min(found, key=found.__getitem__, default=first)
        self._decide(best if _GAIN * found.get(best, 1.0) < 1 else first)

    def _relative(self, setting: int) -> list[float]:
        """Paces of a setting in units of the first one's.

        Each period is compared with those of the first setting before and after it, as a loop gets
        faster while files and memory are used for the first time.
        """
        around = itertools.pairwise(self._paces[self._first])
        return [
            pace / math.sqrt(before * after)
            for pace, (before, after) in zip(self._paces[setting], around)
        ]

    def _has_lost(self, setting: int) -> bool:
        """True if the median of a setting's periods can't be faster than the first one any more."""
        slower = [pace for pace in self._relative(setting) if _GAIN * pace >= 1]
        return setting != self._first and len(slower) > _PERIODS // 2

    def _decide(self, setting: int) -> None:
        self.decided = True
        self._decided_pace = statistics.median(self._paces[setting])
        self._rest = 0
        self._use(setting)
        self._paces = {setting: []}

    def _look_for_change(self) -> None:
        latest = self._paces[self.current] = self._paces[self.current][-_CHANGED_PERIODS:]
        change = statistics.median(latest) / self._decided_pace
        if len(latest) == _CHANGED_PERIODS and not 1 / _CHANGE < change < _CHANGE:
            self._start()


def _seconds_per_batch(moments: list[float]) -> float:
    """Mean time between batches, without a gap.

    Only the longest time can be one. Where threads hold each other up, many times are long, and
    count.
    """
    seconds = _intervals(moments)
    longest, total = max(seconds), sum(seconds)
    if longest > max(_GAP * statistics.median(seconds), _GAP_SHARE * total):
        return (total - longest) / (len(seconds) - 1)
    return total / len(seconds)


def _intervals(moments: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(moments)]


# --- the start of processes ---

# Short batches count together: a reader ahead of the trainer may read several at once.
_STRETCH_SECONDS = 0.008


class Losses:
    """Time that the trainer loses by waiting for batches that no process makes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Time lost so far."""
        self._per_batch = 0.0, 0.0
        self._latest: list[tuple[float, float]] = []

    def note(self, waited_seconds: float, spare_seconds: float) -> None:
        """Record a wait.

        Args:
            waited_seconds: Time that the reader waited for a batch.
            spare_seconds: Time that the reader had before, because it is ahead of the trainer; a
                reader that waits less than that costs the trainer nothing.
        """
        self._latest.append((waited_seconds, spare_seconds))
        waited, spare = map(sum, zip(*self._latest))
        if waited + spare >= _STRETCH_SECONDS:
            lost = max(0.0, waited - spare)
            self.seconds += lost
            self._per_batch = self._per_batch[1], lost / len(self._latest)
            self._latest.clear()

    def after(self, batches: float) -> float:
        """Time lost after so many further batches, which may be infinitely many."""
        usual = min(self._per_batch)  # A single stretch may have waited for something else.
        return self.seconds + (usual * batches if usual else 0.0)
