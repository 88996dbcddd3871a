"""The parts of a loader's work, each behind workers like the loader's, measured a round at a time.

Nothing is read ahead between two rounds of a part, and a round goes on where the last one ended.
"""

from __future__ import annotations

import itertools
import time
from typing import NamedTuple

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey
from adapters.batch.plan import Plan
from adapters.clock import Spent
from adapters.diagnosis.ablation import Ablations
from adapters.diagnosis.loaders import rest
from adapters.diagnosis.timing import LEAST_OF_A_ROUND, timed
from adapters.diagnosis.trainers import SKIPPED_AGAIN
from adapters.engine import Engine, Settings

# A batch made inline, often enough that what only the first one does doesn't count.
_ALONE = 3
# Workers may all deliver at once; a round has a batch of each, up to so many.
_MOST_AT_ONCE = 16
# Worker processes that wait for their part's next round, of all parts; more would take the memory
# that they are to be measured in.
_KEPT_PROCESSES = 16


def least_batches(settings: Settings) -> int:
    """How many batches of these workers a round has at least."""
    count = 0 if settings.workers == "auto" else settings.workers
    return max(LEAST_OF_A_ROUND, min(count, _MOST_AT_ONCE))


class Part:
    """A plan behind an engine of its own.

    One thread uses it; ``close`` ends its workers.

    Args:
        plan: What is measured.
        settings: Its workers.
        kept: Whether they are kept from round to round.
    """

    def __init__(self, plan: Plan, settings: Settings, kept: bool) -> None:
        self._plan = plan
        self._settings = settings
        self._kept = kept
        self._engine: Engine | None = None
        self._position = 0, 0

    def seconds(self, seconds: float) -> float:
        """Of a batch, measured for so long."""
        engine = self._engine = self._engine or Engine(self._plan, self._settings)
        stream = engine.stream(*self._position, False)
        taken = 0.0
        try:
            taken = timed(
                (stream.next() for _ in itertools.count()),
                None,
                seconds,
                SKIPPED_AGAIN,
                lambda: engine.settled,
                least_batches(self._settings),
            ).batch_seconds
        finally:
            self._position = stream.position
            stream.close()
            if self._kept:
                rest(engine, taken)
            else:
                self.close()
        return taken

    def close(self) -> None:
        """End its workers."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()


class _Inline(NamedTuple):
    """What a batch took that was made in the calling thread.

    The shares are as if no other program had been given the CPU meanwhile.
    """

    seconds: float
    computes: float
    """Of the time, the share in which this thread computed, 0 to 1."""
    any_computes: float
    """The same, of any thread, as libraries compute in threads of their own."""


class Parts:
    """What is left of a loader's work without a part of it, and a batch without workers.

    Args:
        ablations: Of the loader.
        settings: Its workers.
    """

    def __init__(self, ablations: Ablations, settings: Settings) -> None:
        self.ablations = ablations
        self._made = 0
        self.fetch_computes = 0.0
        """Of a fetch's time, the share in which it computed: the most of all rounds."""
        self.alone_computes = 0.0
        """Of a whole batch's time, that in which any thread computed: the same."""
        named = {
            "storage": ablations.storage,
            "memory": ablations.memory,
            "collation": ablations.collation,
            "packed": ablations.packed,
        }
        plans = {name: plan for name, plan in named.items() if plan is not None}
        count = 0 if settings.workers == "auto" else settings.workers
        kept = not settings.use_multiprocessing or len(plans) * count <= _KEPT_PROCESSES
        self._parts = {name: Part(plan, settings, kept) for name, plan in plans.items()}

    def round(self, seconds: float) -> dict[str, float]:
        """Seconds per batch of each part, each measured for so long."""
        found = {name: part.seconds(seconds) for name, part in self._parts.items()}
        fetch, whole = self._inline(self.ablations.storage), self._inline(self.ablations.whole)
        self.fetch_computes = max(self.fetch_computes, fetch.computes)
        self.alone_computes = max(self.alone_computes, whole.any_computes)
        found["alone"] = whole.seconds
        self._made += _ALONE
        return found

    def close(self) -> None:
        """End all workers."""
        for part in self._parts.values():
            part.close()

    def _inline(self, plan: Plan) -> _Inline:
        """The quickest of a few batches."""
        best = _Inline(float("inf"), 0.0, 0.0)
        num_batches = plan.num_batches
        for place in range(_ALONE if num_batches is None else min(_ALONE, num_batches)):
            index = self._made + place
            if num_batches is not None:
                index %= num_batches
            before, cpu = Spent.now(), time.thread_time()
            plan.wait_for(plan.batch(BatchKey(0, index), aligned_empty))
            spent, cpu = before.until_now(), time.thread_time() - cpu
            undisturbed = max(spent.own_seconds, cpu)
            busy = max(cpu, spent.busy_seconds)
            best = min(best, _Inline(spent.seconds, cpu / undisturbed, busy / undisturbed))
        return best
