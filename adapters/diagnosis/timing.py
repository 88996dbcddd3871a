"""Timing of a loop over batches: total time and the wait for each batch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from adapters.diagnosis.registry import DEVICES
from adapters.structure import flatten

LEAST_BATCHES = 3
# Minimum if several rounds make one measurement.
LEAST_OF_A_ROUND = 1
# Batches before the timing starts: workers="auto" takes up to a dozen to choose its workers.
SKIPPED = 14
SKIPPED_AGAIN = 6
SKIPPED_OF_THE_SAME = 3
# Maximum seconds to wait for workers: several times the start of processes that import a framework.
_SETTLING_SECONDS = 20.0


@dataclass(frozen=True)
class Timing:
    """The result of a ``Clock``.

    Args:
        batches: Number of batches.
        seconds: Total time.
        waits_seconds: Wait for each batch; empty if unknown.
    """

    batches: int
    seconds: float
    waits_seconds: tuple[float, ...] = ()

    @property
    def batch_seconds(self) -> float:
        """Mean time per batch in seconds."""
        return self.seconds / self.batches


class Clock:
    """Passes batches on for a while, and records the wait for each.

    One thread iterates over it once, and then calls ``stop``.

    Args:
        batches: An endless iterator.
        seconds: Duration of the timed part.
        skipped: Number of batches to skip first, for at most ``seconds``.
        settled: True once the loader runs at its usual speed; batches before that, for at most
            ``_SETTLING_SECONDS``, are skipped, too.
        least: Minimum number of timed batches, however slow they are.
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
        """The latest batch."""

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
        """Wait for the devices, end the timing, and return the result."""
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
    """Time a step on batch after batch.

    Args:
        batches: An endless iterator.
        step: The step; None only reads the batches.
        seconds: Duration.
        skipped: Number of batches before the timing starts.
        settled: See ``Clock``.
        least: See ``Clock``.
    """
    clock, result = Clock(batches, seconds, skipped, settled, least), None
    for batch in clock:
        if step is not None:
            # Wait for the previous step, or the loop would run far ahead of a slow device.
            before, result = result, step(batch)
            _wait_for_arrays(before)
    _wait_for_arrays(result)
    return clock.stop()


def endless(batches: Iterable[Any]) -> Generator[Any, None, None]:
    """Iterate over batches without end, pass after pass.

    Raises:
        ValueError: A pass has no batches.
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
    """Wait until all devices have finished their work.

    Args:
        result: The result of a step, which may contain arrays of any framework.
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
