"""Predictions of the effect of a change, computed from the times of the parts.

Work that waits scales with the number of workers, and work that computes with the number of CPUs.
If several threads were measured to bring nothing, more threads bring nothing either; nor do they
for a source that serves one thread at a time. A loader with workers computes batches during the
step, so the slower of the two decides; without workers, the two times add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from adapters.diagnosis.ablation import UNCACHED
from adapters.diagnosis.verdict import COLLATION, STORAGE, TRANSFORMS, Verdict

# Maximum number of waiting threads, as for workers="auto", and of waiting processes per CPU: more
# processes would take minutes to start, and memory.
MOST_WAITING, _MOST_PROCESSES = 64, 4
# Several threads with a speedup below this hold the interpreter lock in turn.
_SCALES = 1.3
# Loader and step overlap if the total is below this share of their sum.
_OVERLAP = 0.9
# Gains from here on are shown as a factor, not in per cent.
_MANY_TIMES = 5
WORKERS, PROCESSES = "workers", "processes"
CACHE, WITHOUT_STORAGE = "cache", "without storage"


@dataclass(frozen=True)
class Prediction:
    """The predicted speed after one change.

    Args:
        change: ``"workers"``, ``"processes"`` (worker processes instead of threads), ``"cache"`` (a
            full cache of a remote store), or ``"without storage"`` (packed records in memory).
        workers: Number of workers; None if it doesn't change.
        seconds: Seconds per batch of training, or of the loader alone if there was no step.
        gain: Speedup over the present, at least 1.
    """

    change: str
    workers: int | None
    seconds: float
    gain: float

    def __str__(self) -> str:
        """The gain as ``+70%`` or ``20 times as fast``."""
        return gain_in_words(self.gain)


def gain_in_words(gain: float) -> str:
    """Format a gain as ``+70%`` or ``20 times as fast``."""
    return f"+{gain - 1:.0%}" if gain < _MANY_TIMES else f"{gain:,.0f} times as fast"


def needed_workers(v: Verdict) -> int | None:
    """Number of workers that keep up with the step; None if it is unknown."""
    if v.alone is None or not v.step_seconds:
        return None
    return math.ceil(v.alone / v.step_seconds - 1e-9)


def threads_bring_nothing(v: Verdict) -> bool:
    """True if several threads were measured to be hardly faster than one."""
    workers = v.workers
    if workers.kind != "threads" or workers.count < 2 or v.alone is None:
        return False
    return v.alone / v.loader < _SCALES


def with_workers(v: Verdict, count: int, processes: bool = False) -> Prediction | None:
    """Predict the speed with ``count`` workers; None if the time of a single worker is unknown.

    Args:
        v: The verdict.
        count: Number of workers, at least 1.
        processes: True to predict a change to processes.
    """
    if v.alone is None or v.workers.kind == "unknown":
        return None
    at_once, now = _at_once(v, count), _at_once(v, v.workers.count)
    loader = v.alone / at_once
    if not processes:
        if v.one_at_a_time or threads_bring_nothing(v):
            loader = v.loader
        elif now > 1:
            # Assume that they scale as well as they do now.
            loader = v.loader * now / at_once
    return _predicted(v, PROCESSES if processes else WORKERS, count, loader, ahead=True)


def _at_once(v: Verdict, count: int) -> int:
    """Number of workers that can work at once, out of ``count``."""
    return count if v.waits else min(count, v.workers.cpus)


def without_storage(v: Verdict) -> Prediction | None:
    """Predict the speed with samples in memory, or with a full cache of a remote store.

    Returns:
        The prediction; None if fetching can't be told apart.
    """
    if not v.parts:
        return None
    change = CACHE if v.store == UNCACHED else WITHOUT_STORAGE
    return _predicted(v, change, None, v.memory or 0.0, ahead=v.workers.count > 0)


def most(v: Verdict) -> float | None:
    """The largest speedup that a loader can bring, given the step; None without a step."""
    if v.whole is None or v.same is None:
        return None
    return max(1.0, v.whole / max(v.same, 1e-9))


def _predicted(
    v: Verdict, change: str, count: int | None, loader: float, ahead: bool
) -> Prediction:
    """Predict training with a loader that takes ``loader`` seconds alone."""
    if v.whole is None or v.same is None:
        now, seconds = v.loader, loader
    else:
        now = v.whole
        overlap = ahead or v.whole < _OVERLAP * (v.loader + v.same)
        seconds = max(loader, v.same) if overlap else loader + v.same
    seconds = min(max(seconds, 1e-9), now)
    return Prediction(change, count, seconds, now / seconds)


def predictions_of(v: Verdict) -> tuple[Prediction, ...]:
    """The effect of each change that concerns the bottleneck, fastest first."""
    if v.bottleneck not in (STORAGE, TRANSFORMS, COLLATION):
        return ()
    found = []
    if (count := advised_workers(v)) is not None:
        found.append(with_workers(v, count))
    if v.bottleneck == TRANSFORMS and threads_bring_nothing(v):
        found.append(with_workers(v, process_count(v), processes=True))
    if v.bottleneck == STORAGE:
        found.append(without_storage(v))
    known = [each for each in found if each is not None]
    return tuple(sorted(known, key=lambda each: each.seconds))


def process_count(v: Verdict) -> int:
    """Number of processes to try instead of threads."""
    return max(1, min(v.workers.cpus, needed_workers(v) or v.workers.cpus))


def most_waiting(v: Verdict) -> int:
    """Maximum useful number of workers that mostly wait."""
    processes = v.workers.kind == "processes"
    return min(_MOST_PROCESSES * v.workers.cpus, MOST_WAITING) if processes else MOST_WAITING


def advised_workers(v: Verdict) -> int | None:
    """A larger number of workers that may help; None if there is none."""
    workers, needed = v.workers, needed_workers(v)
    if v.one_at_a_time or workers.kind == "unknown" or threads_bring_nothing(v):
        return None
    # Without a step to keep up with: all CPUs, or enough waiting transforms to keep one CPU busy.
    enough = workers.cpus
    if v.waits and v.bottleneck == TRANSFORMS:
        enough = math.ceil(1 / max(v.alone_computes, 1 / MOST_WAITING))
    most_useful = most_waiting(v) if v.waits else workers.cpus
    count = min(needed if needed is not None else enough, most_useful)
    return count if count > workers.count else None
