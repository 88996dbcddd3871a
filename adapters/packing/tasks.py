"""Tasks, groups of inputs that any process may encode, their executors, and outcomes in order.

A task is a pure function: consecutive inputs and an encoder give records. It may run twice, and
anywhere. The grouping changes no byte, as the writer of the files takes the records one by one.

Threads of this process, an executor of the caller, or a Dask cluster run tasks. All have one
interface: ``submit(task)`` returns a future, and ``result_of`` waits for it. The caller's executor
stays open. Dask repeats a task whose worker has died; one that kills worker after worker is given
up.
"""

from __future__ import annotations

import importlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, Literal, NamedTuple

from adapters.arguments import check_client, is_cluster
from adapters.cpus import usable_cpus
from adapters.errors import ContentError, RecordError, WorkerError, note
from adapters.failure import Failure
from adapters.lazily import required
from adapters.packing.inputs import Content, Inputs, Item
from adapters.packing.manifest import Skipped

log = logging.getLogger("adapters")

# Tasks in flight for each worker: the file's writer shouldn't wait for a slow one. In other
# processes, a task has many inputs.
_TASKS_AHEAD, _TASKS_AHEAD_ELSEWHERE = 8, 3
# Limits of a task for another process. A task costs 2 ms on a Dask cluster (two cores), an input
# from 0.5 ms on; the data fits into memory several times.
_TASK_ITEMS, _TASK_BYTES = 32, 8 << 20
# Inputs fetched ahead from a store: as many requests at once.
_EXPECTED_ITEMS = 64


Encode = Callable[[Item], bytes]
"""Encodes an item as its record in the file; pickled for other processes."""


class Outcome(NamedTuple):
    """Outcome of one input: a record, or the reason why there is none."""

    record: bytes | None = None
    skipped: Skipped | None = None
    error: Exception | Failure | None = None
    """Error that ends the run, once all inputs before this one are done."""
    number: int | None = None
    """Id of the record."""


@dataclass(frozen=True)
class Task:
    """Some inputs to encode."""

    items: Inputs | Sequence[Item]
    numbers: range
    encode: Encode
    skip: bool
    elsewhere: bool

    def __call__(self) -> list[Outcome]:
        """Encode the inputs; return their outcomes, in order."""
        return [self._outcome(number) for number in self.numbers]

    def _outcome(self, number: int) -> Outcome:
        name = f"sample {number}"
        try:
            item = self.items[number]
            name = item.name
            return Outcome(self.encode(item), number=item.number)
        except Exception as error:
            if self.skip and self._is_of_input(error):
                return Outcome(skipped=Skipped(name, str(error)))
            failure = error
            if isinstance(error, ContentError):
                failure = RecordError(name, None, 0, error.expected, error.found)
                failure.__cause__ = error
            return Outcome(error=Failure.of(failure) if self.elsewhere else failure)

    def _is_of_input(self, error: Exception) -> bool:
        """True if the input itself can't be read or decoded; False if its storage has failed."""
        if isinstance(error, FileNotFoundError):
            return not self.elsewhere  # Another host may lack the folder.
        if isinstance(error, (ConnectionError, TimeoutError)):
            return False
        # PIL's errors about an image are OSErrors without a number.
        no_number = isinstance(error, OSError) and error.errno is None
        return no_number or isinstance(error, (ContentError, RecordError))


def outcomes_of(
    inputs: Inputs, first: int, encode: Encode, skip: bool, workers: Workers
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of the inputs from number ``first`` on, in order.

    If the generator is closed before its end, it cancels the tasks in flight.
    """
    waiting: deque[Any] = deque()
    ahead = workers.count * (_TASKS_AHEAD_ELSEWHERE if workers.elsewhere else _TASKS_AHEAD)
    expected = first
    try:
        while first < len(inputs) or waiting:
            while first < len(inputs) and len(waiting) <= ahead:
                if workers.elsewhere:
                    items = _portable(inputs, range(first, min(first + _TASK_ITEMS, len(inputs))))
                    task = Task(items, range(len(items)), encode, skip, True)
                else:
                    if first + 1 > expected - _EXPECTED_ITEMS // 2:
                        until = min(len(inputs), first + 1 + _EXPECTED_ITEMS)
                        inputs.prefetch(expected, until)
                        expected = until
                    task = Task(inputs, range(first, first + 1), encode, skip, False)
                waiting.append(workers.submit(task))
                first += len(task.numbers)
            yield from workers.result_of(waiting.popleft())
    finally:
        for future in waiting:
            with suppress(Exception):  # A closed Dask client has no tasks.
                future.cancel()


def _portable(inputs: Inputs, numbers: range) -> list[Item]:
    """The items of these inputs; fewer of them if they hold much memory."""
    items: list[Item] = []
    held = 0
    for number in numbers:
        try:
            item = inputs[number]
        except Exception as error:  # Raised in its turn, like other errors.
            item = Item(f"sample {number}", number, 0, partial(_raise, Failure.of(error)))
        items.append(item)
        held += item.held_bytes
        if held > _TASK_BYTES:
            break
    return items


def _raise(failure: Failure) -> Content:
    raise failure.restore()


@dataclass(frozen=True)
class Workers:
    """Executor of tasks."""

    submit: Callable[[Callable[[], Any]], Any]
    """Runs a task: ``submit(task)`` returns a future."""
    count: int
    """Number of concurrent tasks."""
    elsewhere: bool
    """True if tasks leave this process, and so are pickled."""
    result_of: Callable[[Any], Any] = methodcaller("result")
    """Waits for a future's result."""


@contextmanager
def opened(executor: Any, workers: int | Literal["auto"]) -> Iterator[Workers]:
    """Provide workers within the context, which ends threads of its own.

    ``executor`` is an ``Executor``, a Dask ``Client``, or None for threads. ``workers="auto"`` asks
    it, or counts the CPUs.
    """
    asked = None if workers == "auto" else max(1, workers)
    if executor is None:
        count = asked or usable_cpus()
        with ThreadPoolExecutor(count, "adapters-pack") as pool:
            yield Workers(pool.submit, count, False)
    elif is_cluster(executor):
        priorities = itertools.count(-1, -1)  # A task runs after those submitted earlier.

        def submit(task: Callable[[], Any]) -> Any:
            return executor.submit(task, pure=False, priority=next(priorities))

        threads = sum(executor.nthreads().values())
        if not threads:
            log.warning("the Dask cluster has no workers: waiting for one to come")
        yield Workers(submit, asked or max(1, threads), True, partial(_gathered, executor))
    else:
        count = asked or getattr(executor, "_max_workers", None) or usable_cpus()
        yield Workers(executor.submit, count, not isinstance(executor, ThreadPoolExecutor))


def check_executor(executor: Any) -> None:
    """Raise ``TypeError`` for what is no executor, ``ValueError`` for an asynchronous client."""
    if is_cluster(executor):
        check_client("executor", executor)
    elif not isinstance(executor, (Executor, type(None))):
        raise TypeError(
            "executor must be a concurrent.futures.Executor, a dask.distributed.Client or None, "
            f"got {executor!r}"
        )


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect a Dask ``Client`` to the scheduler at this address, within the context."""
    needs = "a Dask cluster needs dask.distributed: pip install 'loader-adapters[dask]'"
    distributed = required("distributed", needs)
    # Check before there is a client: one that can't connect would delay the end of the process.
    try:
        distributed.comm.get_address_host(address)
    except ValueError as error:
        raise ValueError(
            "the address of a Dask scheduler must be like tcp://host:8786, got "
            f"{address!r}: {error}"
        ) from error
    with distributed.Client(address, set_as_default=False) as client:
        yield client


def _gathered(client: Any, future: Any) -> Any:
    """Fetch a task's result from its Dask worker, and release it there."""
    distributed: Any = importlib.import_module("distributed")
    try:
        result = client.gather(future, direct=True)
    except distributed.KilledWorker as error:
        raise WorkerError(
            f"Dask's workers died over one and the same task, the last one was "
            f"{error.last_worker.address}: look for a memory limit (see the worker's log), or "
            "for an image that crashes what decodes it; what is packed is kept for the next run"
        ) from error
    except Exception as error:
        if isinstance(error, CancelledError) or client.status in ("closing", "closed"):
            raise WorkerError(
                "the Dask cluster has forgotten what it was given: its scheduler has ended, or the "
                "client was closed; what is packed is kept for the next run"
            ) from error
        if isinstance(error, ModuleNotFoundError):
            note(error, "Dask's workers need loader-adapters, and what the source is made of")
        raise
    future.release()
    return result
