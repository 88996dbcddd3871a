"""Bottlenecks to be found: each takes far longer than all else.

Worker processes import this file.
"""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np

from adapters import SafeSequence, diagnose
from adapters.diagnosis import Diagnosis

SECONDS = 0.06
# Enough if the figures don't matter.
SHORT_SECONDS = 0.03
SIZE, BATCH_SIZE = 64, 8
SLOW = 0.002


def burn(seconds: float) -> None:
    """Compute for so long, however busy the machine is."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def burning(item: Any) -> Any:
    """A transform that computes."""
    burn(SLOW)
    return item


class Numbers:
    """A data set that costs nothing."""

    thread_safe = True

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, number: int) -> Any:
        return np.float32([number]), np.float32([-number])


class Waiting(Numbers):
    """A data set on slow storage."""

    seconds = SLOW

    def __getitem__(self, number: int) -> Any:
        time.sleep(self.seconds)
        return super().__getitem__(number)


class Remote(Waiting):
    """A data set that waits for so long that a busy machine adds little to it."""

    seconds = 5 * SLOW


class Computing(Numbers):
    """A data set that decodes by itself."""

    def __getitem__(self, number: int) -> Any:
        burn(SLOW)
        return super().__getitem__(number)


class Large(Numbers):
    """A data set of samples of 1 MB that are there."""

    def __init__(self) -> None:
        self.samples = [np.zeros((600, 600, 3), np.uint8) for _ in range(BATCH_SIZE)]

    def __getitem__(self, number: int) -> Any:
        return self.samples[number % BATCH_SIZE]


class Breaking(Numbers):
    """A data set, a sample of which can't be read."""

    def __getitem__(self, number: int) -> Any:
        if number == 3:
            raise KeyError("sample 3")
        return super().__getitem__(number)


class Batches(keras.utils.PyDataset):
    """Whole batches of a data set, as Keras has them."""

    def __init__(self, data: Any, **options: Any) -> None:
        super().__init__(**options)
        self.data = data

    def __len__(self) -> int:
        return SIZE // BATCH_SIZE

    def __getitem__(self, index: int) -> Any:
        samples = [self.data[index * BATCH_SIZE + row] for row in range(BATCH_SIZE)]
        return tuple(np.stack(column) for column in zip(*samples))


# How long each ``slow_step`` and ``slow_copy`` took: on a busy machine, longer than they sleep.
SLEPT: list[float] = []


def sleeping(seconds: float) -> None:
    """Sleep, and note how long it took."""
    began = time.perf_counter()
    time.sleep(seconds)
    SLEPT.append(time.perf_counter() - began)


def slow_copy(batch: Any) -> Any:
    """To a device that is far away."""
    sleeping(0.02)
    return batch


def quick_step(batch: Any) -> None:
    """An accelerator that waits for nothing but batches."""


def slow_step(batch: Any) -> None:
    """One that is busy."""
    sleeping(0.02)


def found(source: Any, step: Any = quick_step, seconds: Any = SECONDS, **options: Any) -> Diagnosis:
    """Of a ``SafeSequence``, inline unless it is told otherwise."""
    options = {"workers": 0, **options}
    with SafeSequence(source, options.pop("batch_size", BATCH_SIZE), **options) as sequence:
        return diagnose(sequence, step, seconds=seconds)
