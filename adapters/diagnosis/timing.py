"""A loop on a clock: how long a batch takes, and how long it had to be waited for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from adapters.diagnosis.registry import DEVICES
from adapters.structure import flatten

LEAST_BATCHES = 3
# Where several rounds make one measurement.
LEAST_OF_A_ROUND = 1
# What new processes that import a framework take, several times over.
_SETTLING_SECONDS = 20.0


@dataclass(frozen=True)
class Timing:
    """What a clock found.

    Args:
        batches: How many.
        seconds: For all of them.
        waits_seconds: Of each batch; empty where the reader can't tell.
    """

    batches: int
    seconds: float
    waits_seconds: tuple[float, ...] = ()

    @property
    def batch_seconds(self) -> float:
        """Of one batch, in the mean."""
        return self.seconds / self.batches


class Clock:
    """Hands on batches for a while, and notes how long each had to be waited for.

    One thread iterates over it, once; ``timing`` is there when that has come to its end.

    Args:
        batches: Without an end.
        seconds: For how long, once it counts.
        skipped: Batches before it counts, in as many seconds at the most.
        settled: Whether the loader has come to its usual speed; until then, or for so many
            seconds, nothing counts.
        least: Batches that count, however slow they are.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        seconds: float,
        skipped: int,
        settled: Callable[[], bool] = lambda: True,
        least: int = LEAST_BATCHES,
    ) -> None:
        self._settled = settled
        self._batches = batches
        self._seconds = seconds
        self._skipped = skipped
        self._least = least
        self._waits: list[float] = []
        self._began = 0.0
        self.latest: Any = None
        """The batch that was handed on last."""

    def __iter__(self) -> Iterator[Any]:
        self.latest = next(self._batches)
        began = time.perf_counter()
        yield self.latest
        while not self._settled() and time.perf_counter() - began < _SETTLING_SECONDS:
            self.latest = next(self._batches)
            yield self.latest
        began = time.perf_counter()
        for _ in range(self._skipped - 1):
            if time.perf_counter() - began > self._seconds:
                break
            self.latest = next(self._batches)
            yield self.latest
        wait_for_devices()
        self._began = asked = time.perf_counter()
        while asked - self._began < self._seconds or len(self._waits) < self._least:
            self.latest = next(self._batches)
            self._waits.append(time.perf_counter() - asked)
            yield self.latest
            asked = time.perf_counter()

    def stop(self) -> Timing:
        """The end of the last batch's step; waits until the device is done with it."""
        wait_for_devices()
        seconds = time.perf_counter() - self._began
        return Timing(len(self._waits), seconds, tuple(self._waits))


def timed(
    batches: Iterator[Any],
    step: Callable[[Any], Any] | None,
    seconds: float,
    skipped: int,
    settled: Callable[[], bool] = lambda: True,
    least: int = LEAST_BATCHES,
) -> Timing:
    """Run a step on batch after batch.

    Args:
        batches: Without an end.
        step: None only reads.
        seconds: For how long.
        skipped: Batches before the clock starts.
        settled: See ``Clock``.
        least: See ``Clock``.
    """
    clock, result = Clock(batches, seconds, skipped, settled, least), None
    for batch in clock:
        if step is not None:
            # A device that is behind would let the loop run far ahead of it.
            before, result = result, step(batch)
            _wait_for_arrays(before)
    _wait_for_arrays(result)
    return clock.stop()


def endless(batches: Iterable[Any]) -> Generator[Any, None, None]:
    """Pass after pass.

    Raises:
        ValueError: A pass without a batch.
    """
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError(
                f"loader must give batches each time that it is iterated over, got none from "
                f"{type(batches).__name__}: a generator gives them once, a list or a data set "
                "again and again"
            )


def wait_for_devices(result: Any = None) -> None:
    """Wait until every device is done with what was begun.

    Args:
        result: What a step has returned, which may have arrays of any framework in it.
    """
    _wait_for_arrays(result)
    for name, wait in DEVICES.items():
        if (framework := sys.modules.get(name)) is not None:
            wait(framework)


def _wait_for_arrays(result: Any) -> None:
    for leaf in flatten(result)[0] if result is not None else ():
        for name in ("block_until_ready", "wait_to_read"):
            if hasattr(leaf, name):
                getattr(leaf, name)()
