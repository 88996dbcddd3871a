"""The parts of a loader's work, measured in rounds, each with workers like the loader's.

A round of a part resumes where its last round ended; nothing is read ahead in between.
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

# Batches computed inline; the fastest counts, so that one-time work of the first doesn't.
_ALONE = 3
# A round has a batch from each worker, as all may deliver at once, but no more than this.
_MOST_AT_ONCE = 16
# Idle worker processes of all parts to keep between rounds; more would take memory from the
# measurements.
_KEPT_PROCESSES = 16


def least_batches(settings: Settings) -> int:
    """Minimum number of batches in a round with these workers."""
    count = 0 if settings.workers == "auto" else settings.workers
    return max(LEAST_OF_A_ROUND, min(count, _MOST_AT_ONCE))


class Part:
    """A plan with its own engine.

    For use by one thread; ``close`` ends the workers.

    Args:
        plan: The plan to measure.
        settings: The workers.
        kept: True if the workers stay alive between rounds.
    """

    def __init__(self, plan: Plan, settings: Settings, kept: bool) -> None:
        self._plan = plan
        self._settings = settings
        self._kept = kept
        self._engine: Engine | None = None
        self._position = 0, 0

    def seconds(self, seconds: float) -> float:
        """Seconds per batch, measured for ``seconds``."""
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
        """End the workers."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()


class _Inline(NamedTuple):
    """The time of a batch computed in the calling thread.

    Time in which other programs had the CPU is left out of the shares.
    """

    seconds: float
    computes: float
    """Share of the time in which this thread used the CPU, 0 to 1."""
    any_computes: float
    """Share of the time in which any thread did, such as those of libraries, 0 to 1."""


class Parts:
    """The measurements of a loader's ablations, and of a batch without workers.

    Args:
        ablations: The loader's ablations.
        settings: The loader's workers.
    """

    def __init__(self, ablations: Ablations, settings: Settings) -> None:
        self.ablations = ablations
        self._made = 0
        self.fetch_computes = 0.0
        """Share of a fetch's time in which it used the CPU; the maximum over the rounds."""
        self.alone_computes = 0.0
        """Share of a whole batch's time in which any thread used the CPU; the maximum, too."""
        named = {
            "storage": ablations.storage,
            "memory": ablations.memory,
            "collation": ablations.collation,
        }
        plans = {name: plan for name, plan in named.items() if plan is not None}
        count = 0 if settings.workers == "auto" else settings.workers
        kept = not settings.use_multiprocessing or len(plans) * count <= _KEPT_PROCESSES
        self._parts = {name: Part(plan, settings, kept) for name, plan in plans.items()}

    def round(self, seconds: float) -> dict[str, float]:
        """Measure each part for ``seconds``; returns seconds per batch."""
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
        """Time a few batches in the calling thread; the fastest counts."""
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
