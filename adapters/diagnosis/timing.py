"""Timing of a loop over batches: total time and the wait for each batch; undisturbed."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from adapters.engine import Engine
from adapters.seeding import process_generators, set_process_generators
from adapters.structure import flatten

# Batches before the timing starts: workers="auto" takes up to a dozen to choose its workers.
SKIPPED = 14
SKIPPED_AGAIN = 6
SKIPPED_OF_THE_SAME = 3
# Skipped however slow they are: TensorFlow reads batches ahead while it compiles the first step.
_LEAST_SKIPPED = 3
# Maximum seconds to wait for workers: several times the start of processes that import a framework.
_SETTLING_SECONDS = 20.0
# Maximum seconds to wait for the read-ahead queue to fill.
_MOST_REST_SECONDS = 0.5


@dataclass(frozen=True)
class Timing:
    """The result of a ``Clock``."""

    batches: int
    seconds: float
    waits_seconds: tuple[float, ...] = ()

    @property
    def batch_seconds(self) -> float:
        """Mean time per batch in seconds."""
        return self.seconds / self.batches


@dataclass
class Clock:
    """Times batches for ``seconds``, and the wait for each that it reads.

    One thread calls ``tick`` after each batch, or iterates over ``read`` once; and then ``stop``.
    ``timed`` does all of that. Batches before the loader has ``settled`` at its usual speed aren't
    timed, nor the ``skipped`` next ones, but slow ones for at most ``seconds``. At least ``least``
    batches are timed.
    """

    seconds: float
    skipped: int
    settled: Callable[[], bool] = lambda: True
    least: int = 1
    latest: Any = field(init=False, default=None)
    """The latest batch that was read."""
    _batches: int = field(init=False, default=0)
    _waits: list[float] = field(init=False, default_factory=list)
    _first: float | None = field(init=False, default=None)
    _settled_at: float | None = field(init=False, default=None)
    _began: float | None = field(init=False, default=None)

    def tick(self, batches: int = 1) -> bool:
        """Count batches that have just ended; true if enough are timed."""
        now = time.perf_counter()
        self._batches += batches
        if self._began is not None:
            return now - self._began >= self.seconds and self._batches >= self.least
        self._first = now if self._first is None else self._first
        if self._settled_at is None and (self.settled() or now - self._first >= _SETTLING_SECONDS):
            self._settled_at, self._batches = now, 1
        if self._settled_at is not None:
            slow = now - self._settled_at > self.seconds and self._batches > _LEAST_SKIPPED
            if self._batches >= self.skipped or slow:
                wait_for_devices()
                self._began, self._batches = time.perf_counter(), 0
        return False

    def read(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Pass endless batches on until enough are timed."""
        enough = False
        while not enough:
            asked = time.perf_counter()
            self.latest = next(batches)
            if self._began is not None:
                self._waits.append(time.perf_counter() - asked)
            yield self.latest
            enough = self.tick()

    def stop(self) -> Timing:
        """Wait for the devices, end the timing, and return the result."""
        wait_for_devices()
        assert self._began is not None
        return Timing(self._batches, time.perf_counter() - self._began, tuple(self._waits))

    def timed(self, batches: Iterator[Any], step: Callable[[Any], Any] | None = None) -> Timing:
        """Time a step on batch after batch; without one, they are only read."""
        result = None
        for batch in self.read(batches):
            if step is not None:
                # Wait for the previous step, or the loop would run far ahead of a slow device.
                before, result = result, step(batch)
                _wait_for_arrays(before)
        _wait_for_arrays(result)
        return self.stop()


def endless(
    batches: Any, passes: Callable[[Any], Iterator[Any]] = iter
) -> Generator[Any, None, None]:
    """Iterate over batches without end, pass after pass; ``ValueError`` if one has none."""
    while True:
        empty = True
        for batch in passes(batches):
            empty = False
            yield batch
        if empty:
            raise ValueError(
                f"loader must give batches each time that it is iterated over, got none from "
                f"{type(batches).__name__}: a generator gives them once, a list or a data set "
                "again and again"
            )


def wait_for_devices(result: Any = None) -> None:
    """Wait until devices have finished their work, and the arrays in a step's result are there."""
    _wait_for_arrays(result)
    torch, mxnet = (sys.modules.get(name) for name in ("torch", "mxnet"))
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()
    if mxnet is not None and hasattr(mxnet, "nd"):  # Otherwise its import is still in progress.
        mxnet.nd.waitall()


def _wait_for_arrays(result: Any) -> None:
    for leaf in flatten(result)[0] if result is not None else ():
        for name in ("block_until_ready", "wait_to_read"):
            if hasattr(leaf, name):
                getattr(leaf, name)()


def rest(engine: Engine | None, batch_seconds: float) -> None:
    """Wait until the read-ahead queue is full, so that workers don't disturb what follows."""
    if engine is not None and engine.chosen.workers:
        time.sleep(min(_MOST_REST_SECONDS, engine.chosen.max_queue_size * batch_seconds))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the states of ``random`` and ``numpy.random`` at the end of the ``with`` block."""
    state = process_generators()
    try:
        yield
    finally:
        set_process_generators(state)


def samples_in(batch: Any) -> int:
    """Number of samples in a batch: the length of the first axis of its first array."""
    shapes = (getattr(leaf, "shape", None) for leaf in flatten(batch)[0])
    return next((int(shape[0]) for shape in shapes if shape), 1)
