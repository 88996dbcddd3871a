"""Advice on what to change, and predictions of the effect, from the times of the parts.

Work that waits scales with the number of workers, and work that computes with the number of CPUs.
If several threads were measured to bring nothing, more threads bring nothing either; nor do they
for a source that serves one thread at a time. A loader with workers computes batches during the
step, so the slower of the two decides; without workers, the two times add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from adapters.diagnosis.registry import texts_of
from adapters.diagnosis.verdict import COLLATION, COPY, STEP, STORAGE, TRANSFORMS, Verdict

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
# A smaller gain isn't noticeable.
_NOTHING = 1.05
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


class Change(NamedTuple):
    """A change to make, its effect, and when it has it."""

    text: str
    prediction: Prediction | None = None
    condition: str = ""
    counted: bool = False
    """True if the advice is a number computed from the figures."""

    def __str__(self) -> str:
        """The advice, with the predicted gain in parentheses."""
        gain = "" if self.prediction is None else f" ({self.prediction}{self.condition})"
        return self.text + gain


def gain_in_words(gain: float) -> str:
    """Format a gain as ``+70%`` or ``20 times as fast``."""
    return f"+{gain - 1:.0%}" if gain < _MANY_TIMES else f"{gain:,.0f} times as fast"


def advice_of(v: Verdict) -> Iterator[str]:
    """Advice on a verdict, most useful first; without numbers on a noisy machine."""
    if not v.certain:
        yield (
            "nothing, on the strength of these figures: measure again when the machine has nothing "
            "else to do, and for longer (--seconds, or seconds=)"
        )
    elif not v.noise:
        yield from map(str, _changes(v))
    else:
        yield from (change.text for change in _changes(v) if not change.counted)
        if v.bottleneck in (STORAGE, TRANSFORMS, COLLATION) and not v.one_at_a_time:
            yield (
                "for how many workers it takes, measure again when the machine has nothing else to "
                "do: these figures are too uncertain to say"
            )


def predictions_of(v: Verdict) -> tuple[Prediction, ...]:
    """The effect of each change that concerns the bottleneck, fastest first."""
    found = (change.prediction for change in _changes(v))
    return tuple(sorted(filter(None, found), key=lambda each: each.seconds))


# --- the effect of a change ---


def with_workers(v: Verdict, count: int, change: str = WORKERS) -> Prediction | None:
    """Predict the speed with ``count`` workers; None if the time of a single worker is unknown.

    ``change`` is ``"workers"`` of the present kind, if several may work at once and are faster;
    ``"processes"``; or ``"threads"``, for a source that served one at a time.
    """
    if v.alone is None or v.workers.kind == "unknown":
        return None
    # Work that computes needs a CPU for each worker.
    most = math.inf if v.waits else v.workers.cpus
    at_once, now = min(count, most), min(v.workers.count, most)
    loader, locked = v.alone / at_once, 0.0
    if change == WORKERS and now > 1:  # Assume that they scale as well as they do now.
        loader = v.loader * now / at_once
    of_threads = change == WORKERS and v.workers.kind != "processes"
    if change == THREADS or (of_threads and v.waits):
        locked = _computed(v, v.alone)
    return _predicted(v, change, count, loader, locked)


def with_threads(v: Verdict) -> Prediction | None:
    """Predict the speed if threads may read a source that served one; None if that can't be."""
    if not (v.waits and v.serial):
        return None
    return with_workers(v, max(2, min(_needed_workers(v) or MOST_WAITING, MOST_WAITING)), THREADS)


def _without_storage(v: Verdict, change: str = WITHOUT_STORAGE) -> Prediction | None:
    """Predict the speed with samples in memory; None if fetching can't be told apart."""
    return _predicted(v, change, None, v.memory or 0.0) if v.parts else None


def _predicted(
    v: Verdict, change: str, count: int | None, loader: float, locked: float = 0.0
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
        if count or v.workers.count or overlap:
            disturbed = v.whole / slower if overlap and v.workers.count else 1.0
            seconds = max(loader, v.same) * max(1.0, disturbed)
            if locked:  # The step needs the interpreter, too.
                seconds = max(seconds, locked + min(v.same, _STEP_LOCKED))
        else:
            seconds = loader + v.same
    seconds = min(max(seconds, 1e-9), now)
    return Prediction(change, count, seconds, now / seconds)


def _computed(v: Verdict, alone: float) -> float:
    """Seconds for which one thread computes for a batch, without waiting."""
    waited = alone * (1 - v.alone_computes)
    if v.bottleneck == STORAGE:
        at_once = 1 if v.one_at_a_time else max(1, v.workers.count)
        waited = (v.storage or 0.0) * at_once * (1 - v.fetch_computes)
    return max(0.0, alone - waited)


# --- numbers of workers ---


def _needed_workers(v: Verdict) -> int | None:
    """Number of workers that keep up with the step; None if it is unknown."""
    if v.alone is None or not v.step_seconds:
        return None
    return math.ceil(v.alone / v.step_seconds - 1e-9)


def _threads_bring_nothing(v: Verdict) -> bool:
    """True if several threads were measured to be hardly faster than one."""
    several = v.workers.kind == "threads" and v.workers.count >= 2
    return several and v.alone is not None and v.alone / v.loader < _SCALES


def _more_workers(v: Verdict) -> Prediction | None:
    """The effect of as many workers as are useful; None if those are no more than now."""
    workers, needed = v.workers, _needed_workers(v)
    if v.one_at_a_time or _threads_bring_nothing(v):
        return None
    # Without a step to keep up with: all CPUs, or enough waiting transforms to keep one CPU busy.
    most_useful = enough = workers.cpus
    if v.waits:
        processes = workers.kind == "processes"
        most_useful = (
            min(_MOST_PROCESSES * workers.cpus, MOST_WAITING) if processes else MOST_WAITING
        )
        if v.bottleneck == TRANSFORMS:
            enough = math.ceil(1 / max(v.alone_computes, 1 / MOST_WAITING))
    count = min(needed if needed is not None else enough, most_useful)
    return with_workers(v, count) if workers.count < count else None


# --- changes by bottleneck ---


def _changes(v: Verdict) -> Iterator[Change]:
    if v.replaced and v.bottleneck not in (COPY, STEP) and with_threads(v) is None:
        yield Change(
            f"{v.replaced}: its batches are made while the step runs; alone, it made "
            f"{v.samples / v.loader:,.0f} samples/s here"
        )
    if v.bottleneck == STORAGE:
        yield from _about_storage(v)
    elif v.bottleneck == TRANSFORMS:
        yield from _about_transforms(v)
    elif v.bottleneck == COLLATION:
        yield Change(
            "leave out a batchify_fn of your own, and give few large arrays rather than many"
        )
        yield Change(
            "keep samples small on their way (uint8 rather than float32), and convert on the device"
        )
        if more := _more_workers(v):
            yield _left_cpus(v, more)
    elif v.bottleneck == COPY:
        yield Change("send uint8, and convert and normalise on the device: a quarter of the bytes")
        by = "; ".join(texts_of("copies"))
        yield Change(f"pinned memory, and a copy of the next batch during the step ({by})")
    elif v.bottleneck != STEP:
        yield Change(
            f"{' or '.join(texts_of('made_by'))} around the same data set: faster as a rule, and "
            "their parts can be told apart here"
        )
    elif v.same is None:
        yield Change("nothing about the loader: it keeps up with t")
    else:
        yield Change("nothing about the loader: the device is busy")
        yield Change("a larger batch_size, if the device has room for it, or mixed precision")


def _about_storage(v: Verdict) -> Iterator[Change]:
    yield from _about_threads(v)
    if v.store == "uncached":
        yield Change(
            'cache="/a/local/folder", or Cache(folder, "200GB"), in open_records or open_images: '
            "what was read once, in the first epoch or by `adapters cache warm`, then comes from a "
            "local disk",
            _without_storage(v, CACHE),
            " from there",
        )
    elif v.store == "cached":
        yield Change(
            "let the cache fill, in the first epoch or by `adapters cache warm`, with a limit that "
            "holds the data: what it has doesn't come from the store",
            _without_storage(v),
            " from there",
        )
    if more := _more_workers(v):  # Waiting threads need no CPU.
        count, needed, effect = more.workers, _needed_workers(v), ""
        asked = f"{v.workers.keyword}={count}"
        if v.workers.kind == "processes":
            asked += f", {v.hints.processes or 'processes'} as now"
        if needed == count:
            effect = " keep up with the step"
        elif needed is not None:
            effect = f" are the most that pay as a rule, where it would take {needed:,} to keep up"
        yield Change(f"{asked}: that many fetches at once{effect}", more, counted=True)
    if v.store:
        yield Change(
            "pack what lies in a store one file a sample into record files (adapters pack): fewer "
            "and larger requests"
        )
        return
    yield Change(
        "pack the samples into record files once (adapters pack), which are read in long "
        "stretches, and from the page cache where they fit into memory",
        _without_storage(v),
        " from there",
    )
    yield Change("keep the files on a local disk rather than on a network share")


def _about_threads(v: Verdict) -> Iterator[Change]:
    """Advice if threads must run the user's code one at a time."""
    if not v.serial or not v.hints.one_at_a_time:
        return
    found = with_threads(v)
    if found is None or found.gain < _NOTHING:
        yield Change(v.hints.one_at_a_time)
        return
    asked = f"{v.workers.keyword}={found.workers}"
    if v.replaced:
        asked = f"{v.replaced}, with {asked}"
    yield Change(f"{asked}, and {v.hints.one_at_a_time}", found)


def _about_transforms(v: Verdict) -> Iterator[Change]:
    workers, needed, more = v.workers, _needed_workers(v), _more_workers(v)
    if v.kernel_missing:
        yield Change(
            "build the image kernel: apt-get install gcc libjpeg62-turbo-dev (Debian), then "
            "install this package again, or take a wheel of it for Linux; `adapters doctor` "
            "without a script says how"
        )
    if v.waits:
        yield from _about_threads(v)
    inline = workers.kind == "inline"
    if v.waits and more:
        count = f'"auto", or {more.workers}' if inline else f"{more.workers}"
        yield Change(
            f"{workers.keyword}={count}: the transform waits for {1 - v.alone_computes:.0%} of its "
            "time, which takes no CPU",
            more,
        )
    elif inline and workers.cpus > 1 and not v.waits:
        yield Change(
            f'{workers.keyword}="auto", which finds out whether threads or processes help: this '
            "loader has no workers",
            more,
            " at best",
        )
    elif more:
        yield _left_cpus(v, more)
    if _threads_bring_nothing(v) and v.alone is not None:
        found = with_workers(v, max(1, min(workers.cpus, needed or workers.cpus)), PROCESSES)
        yield Change(
            f"worker processes: {workers.count} threads make {v.alone / v.loader:.2g} times as "
            "many batches as one, so the transform holds the interpreter lock",
            found,
            "" if found is None else f" with {found.workers}",
            counted=True,
        )
    if v.gathers:  # Arrays don't have to be decoded.
        yield Change(
            "do once, before training, what is the same in every epoch, and keep the result"
        )
    else:
        yield Change(
            "do once, out of band, what is the same in every epoch; of pictures, decode and resize "
            "to what training needs (adapters pack --resize 256)"
        )
    if v.hints.transforms and v.has_transform and not v.waits:
        yield Change(v.hints.transforms)
    if needed is not None and needed > workers.cpus and not v.waits:
        yield Change(
            f"{needed:,} CPUs would keep up with the step, and there are {workers.cpus}: more "
            "of them, or less work for each sample",
            counted=True,
        )


def _left_cpus(v: Verdict, more: Prediction) -> Change:
    text = f"{v.workers.keyword}={more.workers}: there are CPUs left"
    return Change(text, more, counted=True)
