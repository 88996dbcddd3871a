"""A paced consumer: asks a loader for what an accelerator would, where there is none.

A training loop dispatches a step and fetches the next batch while the accelerator computes. So a
step begins when its batch is there and the step before has ended, whichever comes last; it lasts t
seconds, and the accelerator never makes up for lost time::

    fetch    |--1--|    |--2--|  |--------3--------|
    step     |....0.....|....1.....|  starved |....2 ...
                        start = max(ready, end of the step before)

What the accelerator stood idle for a batch is its starved time; the rest it is busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Steps:
    """What became of the steps that a paced consumer made.

    Args:
        step_seconds: How long each lasted.
        waits_seconds: Of each, how long the accelerator stood idle before it.
        starts: When each began.
    """

    step_seconds: float
    waits_seconds: list[float]
    starts: list[float]

    @property
    def busy_seconds(self) -> float:
        """Of all steps together."""
        return len(self.waits_seconds) * self.step_seconds

    @property
    def total_seconds(self) -> float:
        """Busy and starved."""
        return self.busy_seconds + sum(self.waits_seconds)

    @property
    def utilisation(self) -> float:
        """The share of the time that the accelerator is busy."""
        return self.busy_seconds / self.total_seconds

    @property
    def on_time_share(self) -> float:
        """The share of batches that were there within t seconds of the step before's start."""
        return float(np.mean([wait == 0 for wait in self.waits_seconds]))


def consume(
    batches: Iterator[Any],
    step_seconds: float,
    *,
    most_batches: int,
    most_seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Steps:
    """Take a batch for each step, as long as there are any.

    The step of a batch that was taken before begins with the call, and isn't counted.

    Args:
        batches: Of the loader, whose workers have started.
        step_seconds: How long a step takes.
        most_batches: How many to take.
        most_seconds: No fetch begins later than this, but for the first.
        clock: Seconds.
        sleep: Waits so many seconds.

    Raises:
        ValueError: `step_seconds` or `most_batches` isn't above 0, or there is no batch.
    """
    if step_seconds <= 0:
        raise ValueError(f"step_seconds must be > 0, got {step_seconds}")
    if most_batches < 1:
        raise ValueError(f"most_batches must be >= 1, got {most_batches}")
    steps = Steps(step_seconds, [], [])
    begin = clock()
    free = begin + step_seconds
    for batch in batches:
        ready = clock()
        # As on an accelerator: the batch stays until its step begins.
        if ready < free:
            sleep(free - ready)
        del batch
        steps.waits_seconds.append(max(0.0, ready - free))
        steps.starts.append(max(ready, free))
        free = steps.starts[-1] + step_seconds
        if len(steps.starts) == most_batches or clock() - begin > most_seconds:
            break
    if not steps.starts:
        raise ValueError("batches must give at least one, got none")
    return steps
