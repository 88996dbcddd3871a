"""Kinds of workers: each is an executor (``Executor``) in its own module, with an entry here.

EXECUTORS[kind](plan, count, settings, lock, changed) -> executor
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adapters.batch.plan import Plan
from adapters.engine.jobs import Executor
from adapters.engine.settings import CLUSTER, Settings
from adapters.engine.threads import Threads

Opening = Callable[[Plan, int, Settings, Any, Callable[[], None]], Executor]


def _threads(
    plan: Plan, count: int, settings: Settings, lock: Any, changed: Callable[[], None]
) -> Executor:
    return Threads(plan, count)


def _processes(
    plan: Plan, count: int, settings: Settings, lock: Any, changed: Callable[[], None]
) -> Executor:
    # Here, because not all programs need them.
    from adapters.engine.processes import Processes
    from adapters.engine.slots import room_for

    room = room_for(settings.window(count), count)
    grows = settings.workers == "auto"
    return Processes(
        plan, count, room, lock, changed, settings.environment, grows, settings.may_fork
    )


def _cluster(
    plan: Plan, count: int, settings: Settings, lock: Any, changed: Callable[[], None]
) -> Executor:
    from adapters.engine.dask import Cluster

    return Cluster(plan, settings, lock)


EXECUTORS: dict[str, Opening] = {"threads": _threads, "processes": _processes, CLUSTER: _cluster}
"""Makes the executor of each kind. It gets the dispatcher's lock, which is held whenever the
executor's state changes, and a callback for any thread, to call when workers have become ready or
have died."""
