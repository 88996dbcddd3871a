"""The interval between checkpoints: seconds, batches or epochs."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import numpy as np

_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*")
_UNITS = {
    "s": ("seconds", 1),
    "second": ("seconds", 1),
    "min": ("seconds", 60),
    "minute": ("seconds", 60),
    "h": ("seconds", 3600),
    "hour": ("seconds", 3600),
    "batch": ("batches", 1),
    "batche": ("batches", 1),
    "epoch": ("epochs", 1),
}


class Schedule:
    """Decides when the next checkpoint is due. The first one is due at once.

    With a number of batches, it is due before the first batch and after multiples of that number.
    If a multiple passes without a checkpoint, the next one is due: what a program accumulates over
    so many batches is in none.

    Args:
        every: Seconds as a number, or a string: ``"90 s"``, ``"5 min"``, ``"1 h"``,
            ``"500 batches"``, ``"1 epoch"``.

    Raises:
        TypeError: ``every`` is neither a number nor a string.
        ValueError: ``every`` isn't above 0, or has an unknown unit.
    """

    def __init__(self, every: Any) -> None:
        remedy = 'give seconds, such as 30, or a text such as "5 min", "500 batches" or "1 epoch"'
        number: Any = every
        self._unit = "seconds"
        if isinstance(every, str):
            found = _FORM.fullmatch(every.lower())
            if found is None or found[2] not in _UNITS:
                raise ValueError(f"every must be a number and a unit, got {every!r}: {remedy}")
            self._unit, factor = _UNITS[found[2]]
            number = float(found[1]) * factor
            if self._unit != "seconds" and not number.is_integer():
                raise ValueError(f"every must be whole {self._unit}, got {every!r}: {remedy}")
        elif isinstance(every, bool) or not isinstance(
            every, (int, float, np.integer, np.floating)
        ):
            raise TypeError(f"every must be a number or a text, got {every!r}: {remedy}")
        self.every = float(number)
        """Interval, in seconds, batches or epochs."""
        if not self.every > 0 or math.isinf(self.every):
            raise ValueError(f"every must be above 0, got {every!r}: {remedy}")
        self.restart()

    def restart(self) -> None:
        """Forget the last checkpoint, so that the next one is due at once."""
        self.saved()
        self._none_yet, self._batches, self._at_multiple = True, 0, True

    def saved(self) -> None:
        """Record that a checkpoint was just taken."""
        self._none_yet = self._at_multiple = False
        self._since, self._epochs = time.monotonic(), 0

    def count(self, batches: int) -> None:
        """Add to the number of batches trained on since the start."""
        before, self._batches = self._batches, self._batches + batches
        self._at_multiple = self._batches // self.every > before // self.every

    def count_epoch(self) -> None:
        """Count a finished epoch."""
        self._epochs += 1

    @property
    def due(self) -> bool:
        """True if a checkpoint is due."""
        if self._unit == "batches":
            return self._at_multiple
        passed = self._epochs if self._unit == "epochs" else time.monotonic() - self._since
        return self._none_yet or passed >= self.every
