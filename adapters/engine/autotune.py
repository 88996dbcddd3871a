"""Choice of the number of active workers that feeds the training loop fastest.

The times of delivered batches go in, and a decision comes out. So the GIL and the trainer's own
step are part of the measurement, not of a formula. There is no thread: ``delivered`` is called by
the thread that takes the batches, and ``current`` may be read from any thread.

    settling --> measuring --> settling --> ... --> decided
       ^      (the settings take turns, some periods each)  |
       +------------------- the pace changes ---------------+

While settling, batches made with the previous setting are used up. After a slower setting, the
first one is used for longer, so that trying slower ones costs about a fortieth of the time.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

# Least duration and number of batches of a period; with slow batches, the second pair applies.
# Measured with Keras on JAX, steps of 0.8 ms: periods of 32 batches differ by 2 to 5%.
_PERIOD_SECONDS, _PERIOD_BATCHES = 0.02, 32
# Least duration of a period once a setting is decided for.
_DECIDED_PERIOD_SECONDS = 0.05
_LONG_PERIOD_SECONDS, _LONG_PERIOD_BATCHES = 0.3, 6
_PERIODS = 3
# A setting slower than the first by this factor in a period gets no other one. Two pauses of 5 ms
# for the GIL may make a period 1.5 times as long.
_HOPELESS = 2.0
# A period in which it is slower by this factor ends after the least number of batches.
_SLOWER = 1.15
# One in which most batches are slower by this factor ends after this number of them.
_MUCH_SLOWER, _GLANCE_BATCHES = 1.3, 12
# Share of the time that trying slower settings may cost.
_COST = 0.025
# Batches after a change from computing inline that aren't counted: none are left to be used up.
_STARTING_BATCHES = 4
# With batches slower than this, trying fewer workers would cost more than a few batches. They are
# not tried if several are faster by this factor than one batch alone.
_SLOW_SECONDS, _CLEARLY = 0.005, 1.3
# With 0 and 1 to compare, 1 is the first one if batches are requested less often than this: then a
# thread that reads ahead costs the trainer less than it saves, unless the step is all Python.
_LONG_STEP_SECONDS = 0.003
# Another setting must be faster than the first by this factor.
_GAIN = 1.02
# The pace must change by this factor, in as many periods, before settings are compared again.
_CHANGE, _CHANGED_PERIODS = 1.5, 3
# A gap longer than usual by this factor is an epoch's end or a checkpoint, and isn't counted.
_GAP = 8.0
# It takes at least this share of its period.
_GAP_SHARE = 0.2


class Comparison:
    """Compares numbers of workers by the batches per second, in interleaved periods.

    With 0 workers, a batch is computed when it is requested, between two steps of the trainer. 0 or
    1 workers can't be faster than the time of a single batch. So if several workers are, and
    batches are slow, fewer aren't tried.

    Args:
        settings: Numbers of workers. The first one is used unless another one is faster. Behind
            long steps, 0 and 1 are taken as 1 and 0.
        settle: Batches after a change of settings that aren't counted.
    """

    def __init__(self, settings: Sequence[int], settle: int) -> None:
        self._given = tuple(settings)
        self._settle = settle
        self._start(self._given)

    def _start(self, settings: tuple[int, ...]) -> None:
        self._settings = settings
        self.decided = False
        """True if the fastest setting has been found."""
        self._paces: dict[int, list[float]] = {setting: [] for setting in self._settings}
        self._rest = 0
        """Batches with the first setting, before another one is tried."""
        self.current = self._settings[0]
        """Number of workers to use now."""
        self._use(self.current)

    def _use(self, setting: int) -> None:
        self._left_to_settle = self._settle
        if setting and not self.current:
            self._left_to_settle = min(self._settle, _STARTING_BATCHES)
        self.current = setting
        if setting == self._settings[0]:
            self._left_to_settle += self._rest
            self._rest = 0
        self._moments: list[float] = []

    def delivered(self, moment: float, alone_seconds: float) -> None:
        """Record the delivery of a batch to the training loop.

        Args:
            moment: Time of the delivery, in seconds.
            alone_seconds: Time of a batch without competition for the GIL.
        """
        self._moments.append(moment)
        if self._left_to_settle:
            self._left_to_settle -= 1
            if not self._left_to_settle:
                self._settled()
            return
        count, seconds = len(self._moments) - 1, moment - self._moments[0]
        least = _DECIDED_PERIOD_SECONDS if self.decided else _PERIOD_SECONDS
        full = count >= _PERIOD_BATCHES and (
            seconds >= least or self._is_slower(seconds / count, _SLOWER)
        )
        slow = count == _GLANCE_BATCHES and self._is_slower(
            statistics.median(_intervals(self._moments)), _MUCH_SLOWER
        )
        if full or slow or (count >= _LONG_PERIOD_BATCHES and seconds >= _LONG_PERIOD_SECONDS):
            self._period_ended(_seconds_per_batch(self._moments), alone_seconds)

    def _is_slower(self, pace: float, factor: float) -> bool:
        first = self._settings[0]
        if self.decided or self.current == first:
            return False
        return pace > factor * self._paces[first][-1]

    def _settled(self) -> None:
        moments, self._moments = self._moments, []
        if self.decided or self._settings != (0, 1) or self._paces[0] or len(moments) < 3:
            return
        if _seconds_per_batch(moments) > _LONG_STEP_SECONDS:
            self._start((1, 0))

    def _period_ended(self, pace: float, alone_seconds: float) -> None:
        first, paces = self._settings[0], self._paces
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
            paces = {setting: paces[setting] for setting in paces if setting >= first}
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
        around = itertools.pairwise(self._paces[self._settings[0]])
        return [
            pace / math.sqrt(before * after)
            for pace, (before, after) in zip(self._paces[setting], around)
        ]

    def _has_lost(self, setting: int) -> bool:
        """True if the median of a setting's periods can't be faster than the first one any more."""
        slower = [pace for pace in self._relative(setting) if _GAIN * pace >= 1]
        return setting != self._settings[0] and len(slower) > _PERIODS // 2

    def _decide(self, setting: int) -> None:
        self.decided = True
        self._decided_pace = statistics.median(self._paces[setting])
        self._rest = 0
        self._use(setting)
        self._paces = {setting: []}

    def _look_for_change(self) -> None:
        latest = self._paces[self.current][-_CHANGED_PERIODS:]
        self._paces = {self.current: latest}
        if len(latest) < _CHANGED_PERIODS:
            return
        change = statistics.median(latest) / self._decided_pace
        if not 1 / _CHANGE < change < _CHANGE:
            self._start(self._given)


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
