"""What tests give to workers: counted, held up, slow, or wrong on purpose.

Worker processes import this file, so it imports little. Whatever workers have to tell each other
goes through files, which works for threads and processes alike.
"""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

_WAIT_SECONDS = 20.0


class Tally:
    """A transform that counts its calls, in all processes: a byte in a file for each."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        path.touch()

    def __call__(self, sample: Any) -> Any:
        count(self.path)
        return sample

    @property
    def calls(self) -> int:
        return os.path.getsize(self.path)


def count(path: str) -> None:
    """Add a byte to a file, whoever else does so at the same time."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b".")
    os.close(descriptor)


class Gate:
    """A transform that holds samples up from number ``start`` on, until the gate is opened."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = str(path)
        self.start = start
        self.arrived = Tally(path.with_suffix(".arrived"))

    def open(self) -> None:
        Path(self.path).touch()

    def __call__(self, sample: Any) -> Any:
        if sample >= self.start:
            self.arrived(sample)
            deadline = time.monotonic() + _WAIT_SECONDS
            while not os.path.exists(self.path):
                if time.monotonic() > deadline:
                    raise TimeoutError("nobody opened the gate")
                time.sleep(0.002)
        return sample


class SpoiltError(Exception):
    """No error of ours is one."""


class Slow:
    """A transform that waits."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, sample: Any) -> Any:
        time.sleep(self.seconds)
        return sample


class Uneven:
    """A transform that takes longer for some samples than for others, the first ones above all."""

    def __call__(self, sample: int) -> int:
        time.sleep(0.02 if sample < 4 else 0.003 * (sample % 3))
        return sample


class Numbers:
    """A data set of its own numbers."""

    def __init__(self, size: int = 26) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> int:
        return number


def rich(sample: int, rng: np.random.Generator) -> dict[str, Any]:
    """A sample of many kinds of members."""
    return {
        "image": rng.integers(0, 256, (5, 3), dtype=np.uint8),
        "label": (sample, np.float32(sample / 7)),
        "nothing": None,
        "empty": np.zeros((0, 2)),
        "complex": complex(sample, -0.0),
        "flag": sample % 2 == 0,
        "list": [sample, -sample],
    }


def jitter(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Writes into its batch, adds a member, takes one away."""
    batch["image"] += rng.integers(0, 9, dtype=np.uint8)
    noise = rng.standard_normal(len(batch["flag"]))
    return {**batch, "noise": noise[::-1], "complex": batch["complex"].real}


class Dying:
    """Ends its process by SIGKILL when it comes to ``number``: the first times only, or always."""

    def __init__(self, path: Path, number: int, times: float = math.inf) -> None:
        self.deaths = Tally(path)
        self.number = number
        self.times = times

    def __call__(self, item: Any) -> Any:
        if np.any(item == self.number) and self.deaths.calls < self.times:
            self.deaths(item)
            os.kill(os.getpid(), signal.SIGKILL)
        return item
