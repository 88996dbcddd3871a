"""Finds out how many threads are in a piece of code at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

LENGTH = 48


class Occupancy:
    """Counts the threads within ``inside()``; ``most`` is how many there were at once."""

    def __init__(self) -> None:
        self.most = 0
        self.calls = 0
        self._now = 0
        self._lock = threading.Lock()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Stay a moment, so that another thread could come in."""
        with self._lock:
            self.calls += 1
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.0005)
        yield
        with self._lock:
            self._now -= 1


class Meeting:
    """Holds each thread up until a second one is there, or for a moment; ``met`` if one ever was.

    The moments grow, as the first batch may be computed alone.
    """

    _MOMENTS_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, *(0.32,) * 30)

    def __init__(self) -> None:
        self.met = False
        self.calls = 0
        self._now = 0
        self._changed = threading.Condition()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Wait for another thread."""
        with self._changed:
            self._now += 1
            self.met = self.met or self._now > 1
            self._changed.notify_all()
            if self.calls < len(self._MOMENTS_SECONDS):
                self._changed.wait_for(lambda: self.met, self._MOMENTS_SECONDS[self.calls])
            self.calls += 1
        yield
        with self._changed:
            self._now -= 1


class Unwatched:
    """In the place of a watch."""

    inside = staticmethod(nullcontext)


def declared(code: Any, thread_safe: bool | None = True) -> Any:
    """A data set or function that says whether several threads may be in it; None for nothing."""
    if thread_safe is not None:
        code.thread_safe = thread_safe
    return code


class DataSet:
    """Numbered samples, whose code is watched by an `Occupancy` or a `Meeting`."""

    def __init__(self, watch: Any) -> None:
        self.watch = watch

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, number: int) -> Any:
        with self.watch.inside():
            return np.int64(number)


class Several(DataSet):
    def __getitems__(self, numbers: list[int]) -> list[Any]:
        with self.watch.inside():
            return [np.int64(number) for number in numbers]


class Function:
    """Computes something of what it is given, and is watched meanwhile."""

    def __init__(self, watch: Any, compute: Callable[[Any], Any] = lambda data: data) -> None:
        self.watch, self.compute = watch, compute

    def __call__(self, data: Any) -> Any:
        with self.watch.inside():
            return self.compute(data)


class Sampler:
    def __init__(self, watch: Any) -> None:
        self.watch = watch

    def __iter__(self) -> Iterator[int]:
        for number in range(LENGTH):
            with self.watch.inside():
                yield number

    def __len__(self) -> int:
        return LENGTH


class Where:
    """Numbered samples that say in which process and thread they were made."""

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, number: int) -> Any:
        time.sleep(0.0002)
        return np.array([number, os.getpid(), threading.get_ident()])


class Waiting(Where):
    """Waits for each sample, as a slow store lets it."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, number: int) -> Any:
        time.sleep(0.005)
        return super().__getitem__(number)
