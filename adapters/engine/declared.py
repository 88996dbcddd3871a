"""Work that a Dask scheduler doesn't see, declared so that an adaptive cluster grows.

    jobs that wait for a lane ---> tasks that no worker has the resource for ---> adaptive_target()

Such tasks are never run and take no worker's time; Dask counts each as half a second of work, as it
does with all tasks that it has never seen done. Everything here runs on the client's event loop.
"""

from __future__ import annotations

from typing import Any

# What Dask takes a task for that it knows nothing of.
TASK_SECONDS = 0.5
_MOST = 1000
_RESOURCE = "more-workers-for-adapters"


class DeclaredWork:
    """What one crew declares.

    Args:
        client: Of the cluster.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._futures: list[Any] = []

    def declare(self, seconds: float) -> None:
        """So much work waits, in seconds of one thread; what was declared before is forgotten."""
        count = min(_MOST, int(seconds / TASK_SECONDS))
        # Those of before a restart of the cluster are cancelled.
        known = [future for future in self._futures if future.status == "pending"]
        self._futures = known[:count]
        more = count - len(self._futures)
        if more and self._client.status == "running":
            self._futures += self._client.map(
                more_workers_wanted, range(more), pure=False, resources={_RESOURCE: 1}
            )


def more_workers_wanted(number: int) -> None:
    """The task that no worker runs."""
