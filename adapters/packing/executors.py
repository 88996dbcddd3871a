"""Executors that encode: threads of this process, an executor of the caller, or a Dask cluster.

All have one interface: ``submit(task)`` returns a future with ``result()`` and ``cancel()``.
The caller's executor stays open. Dask repeats a task whose worker has died; one that kills worker
after worker is given up.
"""

from __future__ import annotations

import importlib
import itertools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from adapters.arguments import check_client, is_cluster
from adapters.cpus import usable_cpus
from adapters.errors import WorkerError, note

log = logging.getLogger("adapters")

_FORGOTTEN = (
    "the Dask cluster has forgotten what it was given: its scheduler has ended, or the client was "
    "closed; what is packed is kept for the next run"
)


@dataclass(frozen=True)
class Workers:
    """Executor of tasks."""

    submit: Callable[[Callable[[], Any]], Any]
    """Runs a task: ``submit(task)`` returns a future."""
    count: int
    """Number of concurrent tasks."""
    elsewhere: bool
    """True if tasks leave this process, and so are pickled."""


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

        def submit(task: Callable[[], Any]) -> _Future:
            future = executor.submit(_do, task, pure=False, priority=next(priorities))
            return _Future(executor, future)

        threads = sum(executor.nthreads().values())
        if not threads:
            log.warning("the Dask cluster has no workers: waiting for one to come")
        yield Workers(submit, asked or max(1, threads), True)
    else:
        count = asked or getattr(executor, "_max_workers", None) or usable_cpus()
        yield Workers(executor.submit, count, not isinstance(executor, ThreadPoolExecutor))


def check_executor(executor: Any) -> None:
    """Raise ``TypeError`` for what is no executor, ``ValueError`` for an asynchronous client."""
    if not (executor is None or is_cluster(executor) or isinstance(executor, Executor)):
        raise TypeError(
            "executor must be a concurrent.futures.Executor, a dask.distributed.Client or None, "
            f"got {executor!r}"
        )
    if is_cluster(executor):
        check_client("executor", executor)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect a Dask ``Client`` to the scheduler at this address, within the context."""
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise ImportError(
            "a Dask cluster needs dask.distributed: pip install 'loader-adapters[dask]'"
        ) from error
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


class _Future:
    """Future of a task on the cluster."""

    def __init__(self, client: Any, future: Any) -> None:
        self._client = client
        self._future = future

    def result(self) -> Any:
        """Fetch the task's result from its worker, and release it there."""
        distributed: Any = importlib.import_module("distributed")
        try:
            result = self._client.gather(self._future, direct=True)
        except distributed.KilledWorker as error:
            raise WorkerError(
                f"Dask's workers died over one and the same task, the last one was "
                f"{error.last_worker.address}: look for a memory limit (see the worker's log), or "
                "for an image that crashes what decodes it; what is packed is kept for the next run"
            ) from error
        except CancelledError as error:
            raise WorkerError(_FORGOTTEN) from error
        except Exception as error:
            if self._client.status in ("closing", "closed"):
                raise WorkerError(_FORGOTTEN) from error
            if not isinstance(error, ModuleNotFoundError):
                raise
            note(error, "Dask's workers need loader-adapters, and what the source is made of")
            raise
        self._future.release()
        return result

    def cancel(self) -> None:
        """Cancel the task."""
        with suppress(Exception):  # A closed client has no tasks.
            self._client.cancel([self._future])


def _do(task: Callable[[], Any]) -> Any:
    return task()
