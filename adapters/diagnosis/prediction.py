"""Predictions of the effect of a change, computed from the times of the parts.

Work that waits scales with the number of workers, and work that computes with the number of CPUs.
If several threads were measured to bring nothing, more threads bring nothing either; nor do they
for a source that serves one thread at a time. A loader with workers computes batches during the
step, so the slower of the two decides; without workers, the two times add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from adapters.diagnosis.figures import COLLATION, STORAGE, TRANSFORMS
from adapters.diagnosis.remoteness import UNCACHED
from adapters.diagnosis.verdict import Verdict

# Maximum number of waiting threads, as for workers="auto", and of waiting processes per CPU: more
# processes would take minutes to start, and memory.
MOST_WAITING, _MOST_PROCESSES = 64, 4
# Seconds for which a step needs the interpreter lock, at most, while threads compute batches.
_STEP_LOCKED = 0.001
# Several threads with a speedup below this hold the interpreter lock in turn.
_SCALES = 1.3
# Total time relative to the slower of loader and step. Up to this, they overlap and disturb each
# other, as they would with another loader; above it, they don't overlap.
_MOST_DISTURBED = 1.6
# Gains from here on are shown as a factor, not in per cent.
_MANY_TIMES = 5
WORKERS, PROCESSES, THREADS = "workers", "processes", "threads"
CACHE, WITHOUT_STORAGE = "cache", "without storage"


@dataclass(frozen=True)
class Prediction:
    """The predicted speed after one change.

    Args:
        change: ``"workers"``, ``"processes"`` (worker processes instead of threads), ``"threads"``
            (several threads read a source that served one at a time), ``"cache"`` (a full cache of
            a remote store), or ``"without storage"`` (packed records in memory).
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
    change = PROCESSES if processes else WORKERS
    if v.one_at_a_time and not processes:
        return _predicted(v, change, count, v.loader, ahead=True)
    hands, now = _hands(v, count), _hands(v, v.workers.count)
    loader = v.alone / hands
    if not processes and now > 1:
        # Assume that they scale as well as they do now.
        loader = v.loader if threads_bring_nothing(v) else v.loader * now / hands
    locked = 0.0
    if v.waits and not processes and v.workers.kind != "processes":
        # The part that computes may be limited to one thread at a time.
        locked = _computed(v)
    return _predicted(v, change, count, loader, ahead=True, locked=locked)


def with_threads(v: Verdict) -> Prediction | None:
    """Predict the speed if threads may read the source concurrently; None if it isn't applicable.

    Only the source's author can permit that: ``thread_safe``.
    """
    if v.alone is None or not v.waits or not (v.one_at_a_time or v.copied):
        return None
    count = max(2, min(needed_workers(v) or MOST_WAITING, MOST_WAITING))
    return _predicted(v, THREADS, count, v.alone / count, ahead=True, locked=_computed(v))


def _hands(v: Verdict, count: int) -> int:
    """Number of workers that can work at once, out of ``count``."""
    return count if v.waits else min(count, v.workers.cpus)


def _computed(v: Verdict) -> float:
    """Seconds for which one thread computes for a batch, without waiting."""
    assert v.alone is not None
    waited = v.alone * (1 - v.alone_computes)
    if v.bottleneck == STORAGE:
        at_once = 1 if v.one_at_a_time else max(1, _hands(v, v.workers.count))
        waited = (v.storage or 0.0) * at_once * (1 - v.fetch_computes)
    return max(0.0, v.alone - waited)


def without_storage(v: Verdict) -> Prediction | None:
    """Predict the speed with samples in memory; None if fetching can't be told apart."""
    if not v.parts:
        return None
    return _predicted(v, WITHOUT_STORAGE, None, v.memory or 0.0, ahead=v.workers.count > 0)


def cached(v: Verdict) -> Prediction | None:
    """Predict the speed with a full cache of a remote store; None without an uncached store."""
    found = without_storage(v) if v.store == UNCACHED else None
    return None if found is None else replace(found, change=CACHE)


def most(v: Verdict) -> float | None:
    """The largest speedup that a loader can bring, given the step; None without a step."""
    if v.whole is None or v.same is None:
        return None
    return max(1.0, v.whole / max(v.same, 1e-9))


def _predicted(
    v: Verdict, change: str, count: int | None, loader: float, ahead: bool, locked: float = 0.0
) -> Prediction:
    """Predict training with a loader that takes ``loader`` seconds alone.

    ``locked`` is the part of them in which threads take turns.
    """
    loader = max(loader, locked)
    if v.whole is None or v.same is None:
        now, seconds = v.loader, loader
    else:
        now, slower = v.whole, max(v.loader, v.same, 1e-9)
        overlap = v.whole / slower <= _MOST_DISTURBED and v.whole < 0.9 * (v.loader + v.same)
        if ahead or overlap:
            disturbed = v.whole / slower if overlap and v.workers.count else 1.0
            seconds = max(loader, v.same) * max(1.0, disturbed)
            if locked:  # The step needs the interpreter, too.
                seconds = max(seconds, locked + min(v.same, _STEP_LOCKED))
        else:
            seconds = loader + v.same
    seconds = min(max(seconds, 1e-9), now)
    return Prediction(change, count, seconds, now / seconds)


def predictions_of(v: Verdict) -> tuple[Prediction, ...]:
    """The effect of each change that concerns the bottleneck, fastest first."""
    if v.bottleneck not in (STORAGE, TRANSFORMS, COLLATION):
        return ()
    found = [with_workers(v, count) for count in advised_workers(v)]
    found.append(with_threads(v))
    if v.bottleneck == TRANSFORMS and threads_bring_nothing(v):
        found.append(with_workers(v, process_count(v), processes=True))
    if v.bottleneck == STORAGE:
        found += [cached(v), without_storage(v)]
    known = [each for each in found if each is not None]
    return tuple(sorted(known, key=lambda each: each.seconds))


def process_count(v: Verdict) -> int:
    """Number of processes to try instead of threads."""
    return max(1, min(v.workers.cpus, needed_workers(v) or v.workers.cpus))


def most_waiting(v: Verdict) -> int:
    """Maximum useful number of workers that mostly wait."""
    processes = v.workers.kind == "processes"
    return min(_MOST_PROCESSES * v.workers.cpus, MOST_WAITING) if processes else MOST_WAITING


def advised_workers(v: Verdict) -> tuple[int, ...]:
    """Larger numbers of workers that may help: as many as are useful, and two more than now.

    The second is given only if it is smaller than the first.
    """
    workers, needed = v.workers, needed_workers(v)
    if v.one_at_a_time or workers.kind == "unknown" or threads_bring_nothing(v):
        return ()
    most_useful = most_waiting(v) if v.waits else workers.cpus
    # Without a step to keep up with: all CPUs, or enough waiting transforms to keep one CPU busy.
    enough = workers.cpus
    if v.waits and v.bottleneck == TRANSFORMS:
        enough = math.ceil(1 / max(v.alone_computes, 1 / MOST_WAITING))
    count = min(needed if needed is not None else enough, most_useful)
    if count <= workers.count:
        return ()
    few = max(workers.count, 1 if workers.kind == "inline" else 0) + 2
    return (count, few) if few < count else (count,)
