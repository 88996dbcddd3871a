"""Numbered samples, and sources and transforms that worker processes can import.

Imports no framework: what is defined here travels to worker processes by name.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH_SIZE = 4
SLOW = 0.05


def numbered(count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """``count`` samples: the feature is the sample's number, the label that number, negative."""
    numbers = np.arange(count, dtype=np.float32).reshape(-1, 1)
    return numbers, -numbers


class Unreadable(Exception):
    """An exception of a user's own, whose constructor pickle can't guess."""

    def __init__(self, path: str, *, line: int) -> None:
        super().__init__(f"{path} can't be read at line {line}")
        self.path = path
        self.line = line


class FailsAt:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, sample: Any) -> Any:
        if int(sample[0][0]) == self.number:
            raise Unreadable("picture.jpg", line=self.number)
        return sample


def frameworks(sample: Any) -> Any:
    """How many frameworks the process has imported that computes the sample."""
    names = ("keras", "tensorflow", "jax", "torch")
    return np.float32([sum(name in sys.modules for name in names)])


def slowly(batch: Any) -> Any:
    """So slow that ``"auto"`` tries whether two threads are of use."""
    until = time.perf_counter() + 0.003
    while time.perf_counter() < until:
        pass
    return batch


def slow(item: Any) -> Any:
    time.sleep(SLOW)
    return item
