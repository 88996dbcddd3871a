"""Engine settings, and the kinds of workers that they choose between.

Each kind is an executor (``Executor``) in its own module, with an entry here:

EXECUTORS[kind](plan, count, settings, lock, changed) -> executor

``Supply`` and ``Choice`` also tell kinds apart: only processes are started late.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from adapters.batch.plan import Plan
from adapters.engine.tasks import Executor
from adapters.engine.threads import Threads

CLUSTER = "workers of a Dask cluster"


@dataclass(frozen=True, eq=False)
class Settings:
    """Engine settings, from the user's arguments.

    Args:
        workers: Number of workers; 0 computes in the consumer's thread.
        use_multiprocessing: Processes, not threads. With ``"auto"``, False leaves the choice open.
        max_queue_size: Batches that may be ready ahead of the consumer; see ``window``.
        environment: Environment variables to set in worker processes.
        timeout_seconds: Maximum time that the consumer waits for a batch from workers.
        at_once: Start requested processes with the first batch, instead of when there is enough
            work to pay for their start.
        isolated: If processes are chosen, nothing is computed inline while they start.
        kind: Kind of workers other than threads and processes: a key of ``executors.EXECUTORS``.
        cluster: Client of the cluster with these workers.
        start_seconds: Time that a process takes to start, until it has been measured.
        may_fork: Function without arguments that returns True if worker processes may be forks of
            this process now. None starts fresh interpreters.
    """

    workers: int | Literal["auto"] = "auto"
    use_multiprocessing: bool = False
    max_queue_size: int = 10
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = math.inf
    at_once: bool = True
    isolated: bool = False
    kind: str | None = None
    cluster: Any = None
    start_seconds: float = 1.0
    may_fork: Callable[[], bool] | None = None

    def window(self, workers: int) -> int:
        """Batches that may be ready or in progress ahead of the consumer.

        ``max_queue_size`` of them keep a few workers busy. If there are more workers than half of
        that, each may have one more batch in progress.
        """
        enough = 2 * workers <= self.max_queue_size
        return self.max_queue_size if enough else self.max_queue_size + workers

    def __deepcopy__(self, memo: dict[int, Any]) -> Settings:
        """Return itself: settings are immutable, and a client only refers to its cluster."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Drop the client, which can't be pickled: a copy has workers of its own."""
        if self.cluster is None:
            return self.__dict__
        return {**self.__dict__, "workers": "auto", "kind": None, "cluster": None}


Opening = Callable[[Plan, int, Settings, Any, Callable[[], None]], Executor]


def _processes(*arguments: Any) -> Executor:
    from adapters.engine.processes import Processes  # Not all programs need them.

    return Processes(*arguments)


def _cluster(*arguments: Any) -> Executor:
    from adapters.engine.dask import Cluster

    return Cluster(*arguments)


EXECUTORS: dict[str, Opening] = {"threads": Threads, "processes": _processes, CLUSTER: _cluster}
"""Makes the executor of each kind. It gets the dispatcher's lock, which is held whenever the
executor's state changes, and a callback for any thread, to call when workers have become ready or
have died."""
