"""What the user asked for, as the engine takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

CLUSTER = "workers of a Dask cluster"


@dataclass(frozen=True, eq=False)
class Settings:
    """What the user asked for.

    Args:
        workers: How many; 0 computes in the consumer's thread.
        use_multiprocessing: Processes, not threads. With ``"auto"``, False leaves the choice open.
        max_queue_size: Batches that may be ready ahead of the consumer; see ``window``.
        environment: Variables that are set in worker processes.
        timeout_seconds: How long the consumer waits for a batch that workers have.
        at_once: Start processes that were asked for with the first batch, and not only when there
            is work enough to pay for their start.
        isolated: What is computed belongs into worker processes, also while they start.
        kind: Workers that are neither threads nor processes: a name in ``crews.CREWS``.
        cluster: The client of the cluster whose workers they are.
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

    def window(self, workers: int) -> int:
        """Batches that may be ready or in progress ahead of the consumer.

        As many as may be ready keep a few workers busy. When workers are more than half as many,
        each has one in progress besides.
        """
        enough = 2 * workers <= self.max_queue_size
        return self.max_queue_size if enough else self.max_queue_size + workers

    def __deepcopy__(self, memo: dict[int, Any]) -> Settings:
        """Nothing in it changes, and a client is no more than a reference to its cluster."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """A client can't be pickled: who unpickles this has workers of its own."""
        if self.cluster is None:
            return self.__dict__
        return {**self.__dict__, "workers": "auto", "kind": None, "cluster": None}
