"""Engines with every kind of executor, and the children that they have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psutil

from adapters.engine import Engine, Settings, Stream, pool
from adapters.engine.executors import CLUSTER
from adapters.engine.workermain import NAME
from tests.leftovers import command_line, idle_pids
from tests.plans import plan_of

# For tests in this folder, whose conftest gives them a cluster.
ONE_OF_EACH_KIND = ["inline", "threads-2", "processes-2", "cluster"]
_WAIT_SECONDS = 20.0
clients: list[Any] = []  # Of Dask clusters, see conftest.


def settings_of(executor: str, queue: int = 4) -> Settings:
    """``"threads-2"``, ``"processes-1"``, ``"inline"``, ``"auto"`` as what a user asks for."""
    kind, _, count = executor.partition("-")
    if kind == "cluster":
        return Settings(2, max_queue_size=queue, kind=CLUSTER, cluster=clients[-1])
    if kind == "auto":
        return Settings("auto", count == "processes", queue)
    return Settings(int(count or 0), kind == "processes", queue)


@contextmanager
def opened(
    data: Any, executor: str, batch_size: int = 4, *, queue: int = 4, **arguments: Any
) -> Iterator[Engine]:
    """An engine, closed in the end."""
    engine = Engine(plan_of(data, batch_size, **arguments), settings_of(executor, queue))
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def streamed(data: Any, executor: str, *arguments: Any, **options: Any) -> Iterator[Stream]:
    """A stream of an engine, both closed in the end."""
    with (
        opened(data, executor, *arguments, **options) as engine,
        closing(engine.stream(0, 0, False)) as stream,
    ):
        yield stream


def read(engine: Engine, count: int, epoch: int = 0, step: int = 0, shuffled: bool = False) -> Any:
    """The next batches of a new stream."""
    stream = engine.stream(epoch, step, shuffled)
    try:
        return [stream.next() for _ in range(count)]
    finally:
        stream.close()


def workers() -> list[psutil.Process]:
    """Worker processes of this process that are alive, but for those that are idle."""
    idle = idle_pids()
    children = [each for each in psutil.Process().children() if each.pid not in idle]
    return [each for each in children if command_line(each).endswith(NAME)]


def end_idle_workers() -> None:
    """Have the processes end that are kept for the next engine."""
    wait_until(_idle_workers_have_ended)


def _idle_workers_have_ended() -> bool:
    kept = pool.shared_pool()
    with kept._lock:
        for worker in kept._workers:
            if worker.lessee is None:
                worker.deadline = 0.0
    return not kept._workers


def wait_until(condition: Callable[[], Any], seconds: float = _WAIT_SECONDS) -> None:
    """Come back as soon as ``condition()`` holds, or raise ``TimeoutError``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {condition}")
        time.sleep(0.002)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds
