"""Decisions by what is delivered: which of two settings feeds the training loop faster.

Measurements go in, a moment for each delivered batch, and a decision comes out. Python's lock and
the trainer's own step are in the measurement, not in a formula. There is no thread: ``delivered``
is called by whoever takes the batches, and ``current`` may be read from any thread.

    settling --> measuring --> settling --> ... --> decided
       ^      (the settings take turns, some windows each)  |
       +------------------- the pace changes ---------------+

While it settles, batches that the other setting has left ready are used up.
"""

from __future__ import annotations

import itertools
import statistics
from typing import Generic, TypeVar

T = TypeVar("T")

# A window lasts that long and has as many batches; or it ends early, where batches take long.
# Measured with Keras on JAX, steps of 0.8 ms: windows of 32 batches differ by 2 to 5%.
_WINDOW_SECONDS, _WINDOW_BATCHES = 0.05, 32
_LONG_WINDOW_SECONDS, _LONG_WINDOW_BATCHES = 1.0, 6
_WINDOWS = 3
# How much faster the second setting must be. Where both are alike, the simple one is taken.
_GAIN = 1.02
# By how much the pace must change, in as many windows, before the settings are compared again.
_CHANGE, _CHANGED_WINDOWS = 1.5, 3
# A gap that is so much longer than usual is an epoch's end or a checkpoint, and isn't counted.
_GAP = 8.0


class Comparison(Generic[T]):
    """Compares two settings by the delivered batches per second, in interleaved windows.

    Args:
        simple: Taken unless the other one is faster.
        other: The other one.
        settle: Batches after a change of settings that aren't counted.
    """

    def __init__(self, simple: T, other: T, settle: int) -> None:
        self._settings = simple, other
        self._settle = settle
        self._start()

    def _start(self) -> None:
        self.decided = False
        """Whether one of them has been found the faster one."""
        self._paces: tuple[list[float], list[float]] = [], []
        self._use(0)

    def _use(self, place: int) -> None:
        self._place = place
        self._left_to_settle = self._settle
        self._moments: list[float] = []

    @property
    def current(self) -> T:
        """The setting to use now."""
        return self._settings[self._place]

    def delivered(self, moment: float) -> None:
        """Take note of a batch that the training loop got at this moment, in seconds."""
        if self._left_to_settle:
            self._left_to_settle -= 1
            return
        self._moments.append(moment)
        count, seconds = len(self._moments) - 1, moment - self._moments[0]
        full = count >= _WINDOW_BATCHES and seconds >= _WINDOW_SECONDS
        if full or (count >= _LONG_WINDOW_BATCHES and seconds >= _LONG_WINDOW_SECONDS):
            self._window_ended(_seconds_per_batch(self._moments))

    def _window_ended(self, pace: float) -> None:
        self._paces[self._place].append(pace)
        if self.decided:
            self._moments = self._moments[-1:]
            self._look_for_change()
        elif min(map(len, self._paces)) < _WINDOWS:
            self._use(1 - self._place)
        else:
            simple, other = map(statistics.median, self._paces)
            self.decided = True
            self._use(int(simple > _GAIN * other))
            self._decided_pace = (simple, other)[self._place]
            self._paces = [], []

    def _look_for_change(self) -> None:
        latest = self._paces[self._place][-_CHANGED_WINDOWS:]
        self._paces = latest, latest
        if len(latest) < _CHANGED_WINDOWS:
            return
        change = statistics.median(latest) / self._decided_pace
        if not 1 / _CHANGE < change < _CHANGE:
            self._start()


def _seconds_per_batch(moments: list[float]) -> float:
    """The mean of what batches took, without gaps."""
    seconds = [after - before for before, after in itertools.pairwise(moments)]
    most = _GAP * statistics.median(seconds)
    return statistics.fmean(each for each in seconds if each <= most)
