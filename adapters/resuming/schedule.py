"""The interval between checkpoints: seconds, batches or epochs."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import numpy as np

_SECONDS = {"s": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)(s?)\s*")


class Schedule:
    """Decides when the next checkpoint is due. The first one is due at once.

    Args:
        every: Seconds as a number, or a string: ``"90 s"``, ``"5 min"``, ``"1 h"``,
            ``"500 batches"``, ``"1 epoch"``.

    Raises:
        TypeError: ``every`` is neither a number nor a string.
        ValueError: ``every`` isn't above 0, or has an unknown unit.
    """

    def __init__(self, every: Any) -> None:
        self.seconds: float | None = None
        self.batches: int | None = None
        self.epochs: int | None = None
        remedy = 'give seconds, such as 30, or a text such as "5 min", "500 batches" or "1 epoch"'
        if isinstance(every, str):
            found = _FORM.fullmatch(every.lower())
            if found is None:
                raise ValueError(f"every must be a number and a unit, got {every!r}: {remedy}")
            number, unit = float(found[1]), found[2] if found[2] else found[3]
            if unit in _SECONDS:
                self.seconds = number * _SECONDS[unit]
            elif unit in ("batch", "batche") and number == int(number):
                self.batches = int(number)
            elif unit == "epoch" and number == int(number):
                self.epochs = int(number)
            else:
                raise ValueError(f"every must have a unit that is known, got {every!r}: {remedy}")
        elif isinstance(every, (int, float, np.integer, np.floating)) and not isinstance(
            every, bool
        ):
            self.seconds = number = float(every)
        else:
            raise TypeError(f"every must be a number or a text, got {every!r}: {remedy}")
        if not number > 0 or math.isinf(number):
            raise ValueError(f"every must be above 0, got {every!r}: {remedy}")
        self.restart()

    def restart(self) -> None:
        """Forget the last checkpoint, so that the next one is due at once."""
        self._since, self._batches, self._epochs = -math.inf, -1, -1

    def saved(self) -> None:
        """Record that a checkpoint was just taken."""
        self._since, self._batches, self._epochs = time.monotonic(), 0, 0

    def count(self, batches: int) -> None:
        """Add to the number of batches trained on since the last checkpoint."""
        if self._batches >= 0:
            self._batches += batches

    def count_epoch(self) -> None:
        """Count a finished epoch."""
        if self._epochs >= 0:
            self._epochs += 1

    @property
    def due(self) -> bool:
        """True if a checkpoint is due."""
        if self.seconds is not None:
            return time.monotonic() - self._since >= self.seconds
        if self.batches is not None:
            return not 0 <= self._batches < self.batches
        return not 0 <= self._epochs < (self.epochs or 1)
