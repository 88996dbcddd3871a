"""What is done to inputs, cut into tasks that any process may do, and their outcomes in order.

A task is a pure function: some inputs that follow on each other, and an encoder, give records. It
may run twice, and anywhere; which inputs are in which task changes no byte, as the one who writes
the files takes the records one by one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from adapters.errors import ContentError, RecordError
from adapters.failure import Failure
from adapters.packing.executors import Workers
from adapters.packing.inputs import Content, Item, expect
from adapters.packing.manifest import Skipped

# Under way for each worker: the file's writer shouldn't wait for a slow one. Elsewhere a task has
# many inputs.
_TASKS_AHEAD, _TASKS_AHEAD_ELSEWHERE = 8, 3
# Of a task that goes elsewhere: long beside the 2 ms that one costs on a Dask cluster (two cores),
# short beside a file; and what goes there and comes back fits into memory several times.
_TASK_SECONDS, _TASK_BYTES = 0.2, 8 << 20
_FIRST_ITEMS, _MOST_ITEMS = 8, 1024
# The last tasks are no smaller a part of the others, as a rule: 25 ms.
_LEAST_SHARE = 8
# That are fetched ahead, where inputs come from a store: as many requests at once.
_EXPECTED_ITEMS = 64


class Encoder(Protocol):
    """Makes records."""

    @property
    def format(self) -> str:
        """Of the files, one of ``CODECS``."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """All that says what becomes of an input, for the manifest."""
        ...

    def record(self, item: Item) -> bytes:
        """The item's record as it stands in the file."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What became of one input: a record, or the reason why not."""

    record: bytes | None
    skipped: Skipped | None
    error: Exception | None = None
    """What ends the run, once all inputs before this one are done."""
    number: int | None = None
    """The id that the record has."""

    def __reduce__(self) -> tuple[Any, ...]:
        failure = None if self.error is None else Failure.of(self.error)
        return _opened, (self.record, self.skipped, failure, self.number)


def _opened(
    record: bytes | None, skipped: Skipped | None, failure: Failure | None, number: int | None
) -> Outcome:
    error: Any = None if failure is None else failure.restore()
    return Outcome(record, skipped, error, number)


@dataclass(frozen=True)
class Encoded:
    """What became of a task's inputs, in their order, and how long that took."""

    outcomes: list[Outcome]
    seconds: float


@dataclass(frozen=True)
class Task:
    """Some inputs, and what to make of them.

    Args:
        items: The inputs.
        numbers: Which of these.
        encoder: Makes records of them.
        skip: Whether one that can't be packed is left out.
    """

    items: Sequence[Item]
    numbers: range
    encoder: Encoder
    skip: bool

    def __call__(self) -> Encoded:
        """Do it."""
        started = time.perf_counter()
        outcomes = [self._outcome(number) for number in self.numbers]
        return Encoded(outcomes, time.perf_counter() - started)

    def _outcome(self, number: int) -> Outcome:
        name = f"sample {number}"
        try:
            item = self.items[number]
            name = item.name
            return Outcome(self.encoder.record(item), None, number=item.number)
        except (ContentError, OSError, RecordError) as error:
            if self.skip:
                return Outcome(None, Skipped(name, str(error)))
            if isinstance(error, ContentError):
                told = RecordError(name, None, 0, error.expected, error.found)
                told.__cause__ = error
                return Outcome(None, None, told)
            return Outcome(None, None, error)
        except Exception as error:
            return Outcome(None, None, error)


def outcomes_of(
    items: Sequence[Item], first: int, encoder: Encoder, skip: bool, workers: Workers
) -> Generator[Outcome, None, None]:
    """What becomes of the inputs from number ``first`` on, in their order.

    Closed before its end, it cancels what is under way.
    """
    waiting: deque[Any] = deque()
    length = _Length(workers.elsewhere)
    ahead = workers.count * (_TASKS_AHEAD_ELSEWHERE if workers.elsewhere else _TASKS_AHEAD)
    expected = first
    try:
        while first < len(items) or waiting:
            while first < len(items) and len(waiting) <= ahead:
                stop = first + length.fitting(len(items) - first, workers.count)
                if not workers.elsewhere and stop > expected - _EXPECTED_ITEMS // 2:
                    until = min(len(items), stop + _EXPECTED_ITEMS)
                    expect(items, np.arange(expected, until))
                    expected = until
                task = Task(items, range(first, stop), encoder, skip)
                if workers.elsewhere:
                    task = _portable(task)
                waiting.append(workers.submit(task))
                first += len(task.numbers)
            encoded: Encoded = waiting.popleft().result()
            length.learn(encoded)
            yield from encoded.outcomes
    finally:
        for future in waiting:
            future.cancel()


class _Length:
    """How many inputs a task has."""

    def __init__(self, elsewhere: bool) -> None:
        self.items = _FIRST_ITEMS if elsewhere else 1
        self._fixed = not elsewhere

    def fitting(self, left: int, workers: int) -> int:
        """How many of the inputs that are left: few in the end, so that nobody waits for one."""
        if self._fixed:
            return self.items
        share = -(-left // (2 * workers))
        return min(left, self.items, max(share, _FIRST_ITEMS, self.items // _LEAST_SHARE))

    def learn(self, encoded: Encoded) -> None:
        """Have tasks take so long, and bring so much back, as they may."""
        if self._fixed:
            return
        size = sum(len(each.record) for each in encoded.outcomes if each.record is not None)
        share = max(encoded.seconds / _TASK_SECONDS, size / _TASK_BYTES, 1e-6)
        fitting = int(len(encoded.outcomes) / share)
        self.items = max(1, min(fitting, 2 * self.items, _MOST_ITEMS))


def _portable(task: Task) -> Task:
    """The same without what stays here; shorter where its inputs hold much."""
    items: list[Item] = []
    held = 0
    for number in task.numbers:
        try:
            item = task.items[number]
        except Exception as error:  # Told when its turn comes, as anybody else would.
            item = Item(f"sample {number}", number, 0, partial(_raise, Failure.of(error)))
        items.append(item)
        held += item.held_bytes
        if held > _TASK_BYTES:
            break
    return Task(items, range(len(items)), task.encoder, task.skip)


def _raise(failure: Failure) -> Content:
    raise failure.restore()
