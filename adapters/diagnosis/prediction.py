"""What a change would bring, from the times of the parts: arithmetic only, and no words.

Work that waits is done by as many workers at once as there are, and work that computes by as many
as there are CPUs. Threads that were measured to bring nothing bring nothing more; a source that
gives one thread at a time does neither. A loader with workers makes batches during the step, so
that the slower of the two decides; one without takes turns with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from adapters.diagnosis.figures import COLLATION, COPY, STORAGE, TRANSFORMS
from adapters.diagnosis.remoteness import UNCACHED
from adapters.diagnosis.verdict import Verdict

# Threads that wait; as many as workers="auto" would take at the most. Processes that do, for each
# CPU: more of them take minutes to start, and memory.
MOST_WAITING, _MOST_PROCESSES = 64, 4
# What a step has of the interpreter lock, at the most, while threads make batches.
_STEP_LOCKED = 0.001
# Two threads or more that make so few times the batches of one hold the interpreter lock in turn.
_SCALES = 1.3
# What training took beyond the slower of loader and step: up to that, they disturb each other, and
# would with another loader; above, they took turns.
_MOST_DISTURBED = 1.6
# From there on, nobody counts in hundredths.
_MANY_TIMES = 5
WORKERS, PROCESSES, THREADS = "workers", "processes", "threads"
WITHOUT_STORAGE, WITHOUT_TRANSFORMS, WITHOUT_COLLATION = (
    f"without {part}" for part in (STORAGE, TRANSFORMS, COLLATION)
)
CACHE = "cache"
PACKED, COPY_AHEAD, REPLACED = "packed at 256 pixels", "copy ahead", "replaced"


@dataclass(frozen=True)
class Prediction:
    """What training would take after one change.

    Args:
        change: ``"workers"``, ``"processes"`` (workers of that kind), ``"threads"`` (that ask a
            source at once which was asked by one at a time), ``"replaced"`` (by a loader of this
            package), ``"cache"`` (one that is full, of what comes from a store),
            ``"without storage"``,
            ``"without transforms"``, ``"without collation"``, ``"packed at 256 pixels"``, or
            ``"copy ahead"``.
        workers: How many; None where they stay.
        seconds: For a batch: of training, or of the loader alone where there was no step.
        gain: How many times as fast that is as now, at least 1.
    """

    change: str
    workers: int | None
    seconds: float
    gain: float

    def __str__(self) -> str:
        """As in ``+70%``, or ``20 times as fast``."""
        return gain_in_words(self.gain)


def gain_in_words(gain: float) -> str:
    """As in ``+70%``, or ``20 times as fast``."""
    return f"+{gain - 1:.0%}" if gain < _MANY_TIMES else f"{gain:,.0f} times as fast"


def needed_workers(v: Verdict) -> int | None:
    """As many as make batches as fast as the step takes them; None where that can't be told."""
    if v.alone is None or not v.step_seconds:
        return None
    return math.ceil(v.alone / v.step_seconds - 1e-9)


def threads_bring_nothing(v: Verdict) -> bool:
    """Whether several threads were seen to make no more than one."""
    workers = v.workers
    if workers.kind != "threads" or workers.count < 2 or v.alone is None:
        return False
    return v.alone / v.loader < _SCALES


def with_workers(v: Verdict, count: int, processes: bool = False) -> Prediction | None:
    """With so many workers; None where nothing is known of one's work.

    Args:
        v: What was found.
        count: How many, from 1.
        processes: Whether they are processes, where they aren't now.
    """
    if v.alone is None or v.workers.kind == "unknown":
        return None
    change = PROCESSES if processes else WORKERS
    if v.one_at_a_time and not processes:
        return _predicted(v, change, count, v.loader, ahead=True)
    hands, now = _hands(v, count), _hands(v, v.workers.count)
    loader = v.alone / hands
    if not processes and now > 1:
        # As well as they do now.
        loader = v.loader if threads_bring_nothing(v) else v.loader * now / hands
    locked = 0.0
    if v.waits and not processes and v.workers.kind != "processes":
        # What is computed beside waiting, threads may have to do one at a time.
        locked = _computed(v)
    return _predicted(v, change, count, loader, ahead=True, locked=locked)


def with_threads(v: Verdict) -> Prediction | None:
    """With threads that ask the source at once; None where they may, or bring nothing.

    Only its author can say that they may: ``thread_safe``.
    """
    if v.alone is None or not v.waits or not (v.one_at_a_time or v.copied):
        return None
    count = max(2, min(needed_workers(v) or MOST_WAITING, MOST_WAITING))
    return _predicted(v, THREADS, count, v.alone / count, ahead=True, locked=_computed(v))


def replaced(v: Verdict) -> Prediction | None:
    """With ours in the place of the loader that training was timed with; None where it was ours."""
    if not v.replaced or not v.trained_on_replaced or v.whole is None:
        return None
    return _predicted(v, REPLACED, None, v.loader, ahead=True)


def _hands(v: Verdict, count: int) -> int:
    """Of so many workers, those that are busy at once."""
    return count if v.waits else min(count, v.workers.cpus)


def _computed(v: Verdict) -> float:
    """Of a batch, what one thread computes while it doesn't wait."""
    assert v.alone is not None
    waited = v.alone * (1 - v.alone_computes)
    if v.bottleneck == STORAGE:
        at_once = 1 if v.one_at_a_time else max(1, _hands(v, v.workers.count))
        waited = (v.storage or 0.0) * at_once * (1 - v.fetch_computes)
    return max(0.0, v.alone - waited)


def without(v: Verdict, part: str) -> Prediction | None:
    """Without a part of the loader's work, by the same workers; None where it wasn't measured.

    Args:
        v: What was found.
        part: ``"storage"``, ``"transforms"`` or ``"collation"``.
    """
    if part not in v.parts:
        return None
    if part == STORAGE:
        left = v.memory or 0.0
    elif part == TRANSFORMS and v.decodes:
        return None  # Pictures that are packed anew are still to be decoded.
    else:
        others = (seconds for name, seconds in v.parts.items() if name != part)
        left = max(v.loader - v.parts[part], *others)
    return _predicted(v, f"without {part}", None, left, ahead=v.workers.count > 0)


def cached(v: Verdict) -> Prediction | None:
    """With a full cache on a local disk in the place of a store; None where there is no store.

    Reading it costs next to nothing beside the wait for a store, and is taken for nothing.
    """
    found = without(v, STORAGE) if v.store == UNCACHED else None
    return None if found is None else replace(found, change=CACHE)


def packed(v: Verdict) -> Prediction | None:
    """With pictures that are packed at 256 pixels; None where that wasn't measured."""
    if v.packed is None or v.memory is None:
        return None
    others = (seconds for name, seconds in v.parts.items() if name != TRANSFORMS)
    left = max(v.loader - max(0.0, v.memory - v.packed), *others)
    return _predicted(v, PACKED, None, left, ahead=v.workers.count > 0)


def copied_ahead(v: Verdict) -> Prediction | None:
    """With each batch copied to the device during the step before; None without a copy."""
    if v.copy is None or v.same is None or v.whole is None:
        return None
    seconds = max(v.copy, v.same - v.copy, v.loader, 1e-9)
    return Prediction(COPY_AHEAD, None, min(seconds, v.whole), max(1.0, v.whole / seconds))


def most(v: Verdict) -> float | None:
    """How many times as fast training can become by its loader: the step is left; None without."""
    if v.whole is None or v.same is None:
        return None
    return max(1.0, v.whole / max(v.same, 1e-9))


def _predicted(
    v: Verdict, change: str, count: int | None, loader: float, ahead: bool, locked: float = 0.0
) -> Prediction:
    """Of training with a loader that takes so long alone, and ``locked`` where it has one CPU."""
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
    """Of what can be changed about the bottleneck, the most useful first."""
    found = []
    if v.bottleneck == COPY:
        found.append(copied_ahead(v))
    elif v.bottleneck in (STORAGE, TRANSFORMS, COLLATION):
        found += [with_workers(v, count) for count in advised_workers(v)]
        found += [with_threads(v), replaced(v)]
        if v.bottleneck == TRANSFORMS and threads_bring_nothing(v):
            found.append(with_workers(v, process_count(v), processes=True))
        found.append(cached(v) if v.bottleneck == STORAGE else None)
        found.append(packed(v) if v.bottleneck == TRANSFORMS else None)
        found.append(without(v, v.bottleneck))
    told = [each for each in found if each is not None]
    return tuple(sorted(told, key=lambda each: each.seconds))


def process_count(v: Verdict) -> int:
    """How many processes are worth a try in the place of threads."""
    return max(1, min(v.workers.cpus, needed_workers(v) or v.workers.cpus))


def most_waiting(v: Verdict) -> int:
    """How many workers that wait pay."""
    processes = v.workers.kind == "processes"
    return min(_MOST_PROCESSES * v.workers.cpus, MOST_WAITING) if processes else MOST_WAITING


def advised_workers(v: Verdict) -> tuple[int, ...]:
    """More workers that may help: as many as are needed, or pay; two more, where that is fewer."""
    workers, needed = v.workers, needed_workers(v)
    if v.one_at_a_time or workers.kind == "unknown" or threads_bring_nothing(v):
        return ()
    most_useful = most_waiting(v) if v.waits else workers.cpus
    # Without a step to keep up with, all CPUs; of a transform that waits, what they then hold.
    enough = workers.cpus
    if v.waits and v.bottleneck == TRANSFORMS:
        enough = math.ceil(1 / max(v.alone_computes, 1 / MOST_WAITING))
    count = min(needed if needed is not None else enough, most_useful)
    if count <= workers.count:
        return ()
    few = max(workers.count, 1 if workers.kind == "inline" else 0) + 2
    return (count, few) if few < count else (count,)
