"""Tasks, groups of inputs that any process may encode, and their outcomes in order.

A task is a pure function: consecutive inputs and an encoder give records. It may run twice, and
anywhere. The grouping changes no byte, as the writer of the files takes the records one by one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from adapters.errors import ContentError, RecordError
from adapters.failure import Failure
from adapters.packing.executors import Workers
from adapters.packing.inputs import Content, Inputs, Item
from adapters.packing.manifest import Skipped

# Tasks in flight for each worker: the file's writer shouldn't wait for a slow one. In other
# processes, a task has many inputs.
_TASKS_AHEAD, _TASKS_AHEAD_ELSEWHERE = 8, 3
# Limits of a task for another process: long compared with the 2 ms that a task costs on a Dask
# cluster (two cores), short compared with a file; its data fits into memory several times.
_TASK_SECONDS, _TASK_BYTES = 0.2, 8 << 20
_FIRST_ITEMS, _MOST_ITEMS = 8, 1024
# The last tasks usually have at least 1/8 of the others' inputs: 25 ms.
_LEAST_SHARE = 8
# Inputs fetched ahead from a store: as many requests at once.
_EXPECTED_ITEMS = 64


class Encoder(Protocol):
    """Encoder of items as records."""

    @property
    def format(self) -> str:
        """Format of the files, one of ``CODECS``."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that determine the records, for the manifest."""
        ...

    def record(self, item: Item) -> bytes:
        """Encode an item as its record in the file."""
        ...


@dataclass(frozen=True)
class Outcome:
    """Outcome of one input: a record, or the reason why there is none."""

    record: bytes | None
    skipped: Skipped | None
    error: Exception | None = None
    """Error that ends the run, once all inputs before this one are done."""
    number: int | None = None
    """Id of the record."""

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
    """Outcomes of a task's inputs, in order, and the time taken."""

    outcomes: list[Outcome]
    seconds: float


@dataclass(frozen=True)
class Task:
    """Some inputs to encode.

    Args:
        items: The inputs.
        numbers: Numbers of those to encode.
        encoder: Makes records of them.
        skip: True to skip inputs that can't be packed.
    """

    items: Inputs | Sequence[Item]
    numbers: range
    encoder: Encoder
    skip: bool

    def __call__(self) -> Encoded:
        """Encode the inputs."""
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
    inputs: Inputs, first: int, encoder: Encoder, skip: bool, workers: Workers
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of the inputs from number ``first`` on, in order.

    If the generator is closed before its end, it cancels the tasks in flight.
    """
    waiting: deque[Any] = deque()
    length = _Length(workers.elsewhere)
    ahead = workers.count * (_TASKS_AHEAD_ELSEWHERE if workers.elsewhere else _TASKS_AHEAD)
    expected = first
    try:
        while first < len(inputs) or waiting:
            while first < len(inputs) and len(waiting) <= ahead:
                stop = first + length.fitting(len(inputs) - first, workers.count)
                if not workers.elsewhere and stop > expected - _EXPECTED_ITEMS // 2:
                    until = min(len(inputs), stop + _EXPECTED_ITEMS)
                    inputs.expect(expected, until)
                    expected = until
                task = Task(inputs, range(first, stop), encoder, skip)
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
    """Number of inputs per task, adapted to the time and bytes that tasks take."""

    def __init__(self, elsewhere: bool) -> None:
        self.items = _FIRST_ITEMS if elsewhere else 1
        self._fixed = not elsewhere

    def fitting(self, left: int, workers: int) -> int:
        """Size the next task: few inputs near the end, so that workers finish together."""
        if self._fixed:
            return self.items
        share = -(-left // (2 * workers))
        return min(left, self.items, max(share, _FIRST_ITEMS, self.items // _LEAST_SHARE))

    def learn(self, encoded: Encoded) -> None:
        """Adapt to the time that a task took, and the bytes that it returned."""
        if self._fixed:
            return
        size = sum(len(each.record) for each in encoded.outcomes if each.record is not None)
        share = max(encoded.seconds / _TASK_SECONDS, size / _TASK_BYTES, 1e-6)
        fitting = int(len(encoded.outcomes) / share)
        self.items = max(1, min(fitting, 2 * self.items, _MOST_ITEMS))


def _portable(task: Task) -> Task:
    """Copy a task with only its own inputs; fewer of them if they hold much memory."""
    items: list[Item] = []
    held = 0
    for number in task.numbers:
        try:
            item = task.items[number]
        except Exception as error:  # Raised in its turn, like other errors.
            item = Item(f"sample {number}", number, 0, partial(_raise, Failure.of(error)))
        items.append(item)
        held += item.held_bytes
        if held > _TASK_BYTES:
            break
    return Task(items, range(len(items)), task.encoder, task.skip)


def _raise(failure: Failure) -> Content:
    raise failure.restore()
