"""Advice: the change for the bottleneck that was found, and what it brings.

Predictions assume that work which waits scales with the number of workers, and work which computes
with the number of CPUs. If several threads were measured to bring nothing, more threads bring
nothing either; nor do they for a source that serves one thread at a time. A loader with workers
computes batches during the step, so the slower of the two decides; without workers, the two times
add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from adapters.diagnosis.verdict import COLLATION, COPY, QUEUED, STEP, STORAGE, TRANSFORMS, Verdict

# Maximum number of waiting threads, as for workers="auto", and of waiting processes per CPU: more
# processes would take minutes to start, and memory.
MOST_WAITING, _MOST_PROCESSES = 64, 4
# Several threads with a speedup below this hold the interpreter lock in turn.
_SCALES = 1.3
# Gains from here on are shown as a factor, not in per cent.
_MANY_TIMES = 5
# A smaller gain isn't noticeable.
_NOTHING = 1.05
WORKERS, PROCESSES, THREADS = "workers", "processes", "threads"


@dataclass(frozen=True)
class Prediction:
    """The predicted speed after one change.

    Args:
        change: ``"workers"``, ``"processes"`` (worker processes instead of threads), ``"threads"``
            (several threads read a source that served one at a time), or ``"without storage"``
            (packed records in memory, or a full cache of a remote store).
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
    """A change to make, and its effect."""

    text: str
    prediction: Prediction | None = None

    def in_words(self, keyword: str) -> str:
        """The advice, with the predicted gain and the argument for it in parentheses."""
        if self.prediction is None:
            return self.text
        count = self.prediction.workers
        return f"{self.text} ({'' if count is None else f'{keyword}={count}: '}{self.prediction})"


def gain_in_words(gain: float) -> str:
    """Format a gain as ``+70%`` or ``20 times as fast``."""
    return f"+{gain - 1:.0%}" if gain < _MANY_TIMES else f"{gain:,.0f} times as fast"


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
    loader = v.alone / at_once
    if change == WORKERS and now > 1:  # Assume that they scale as well as they do now.
        loader = v.loader * now / at_once
    if v.waits and change != PROCESSES and v.workers.kind != "processes":
        loader = max(loader, v.alone * v.alone_computes)  # Threads compute one at a time.
    return _predicted(v, change, count, loader)


def _without_storage(v: Verdict) -> Prediction | None:
    """Predict the speed with samples in memory; None if fetching can't be told apart."""
    return _predicted(v, "without storage", None, v.memory or 0.0) if v.parts else None


def _predicted(v: Verdict, change: str, count: int | None, loader: float) -> Prediction:
    """Predict training with a loader that takes ``loader`` seconds alone."""
    if v.whole is None or v.same is None:
        now, seconds = v.loader, loader
    elif v.workers.count:  # Loader and step slow each other down, and will again.
        now = v.whole
        seconds = max(loader, v.same) * max(1.0, v.whole / max(v.loader, v.same, 1e-9))
    else:
        now, seconds = v.whole, max(loader, v.same) if count else loader + v.same
    seconds = min(max(seconds, 1e-9), now)
    return Prediction(change, count, seconds, now / seconds)


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
    """The effect of as many workers as are useful; None if more than now bring nothing."""
    if v.one_at_a_time or _threads_bring_nothing(v):
        return None
    most = v.workers.cpus
    if v.waits:
        processes = v.workers.kind == "processes"
        most = min(_MOST_PROCESSES * most, MOST_WAITING) if processes else MOST_WAITING
    # Without a step to keep up with, one for each CPU.
    count = min(_needed_workers(v) or v.workers.cpus, most)
    found = with_workers(v, count) if v.workers.count < count else None
    return found if found is not None and found.gain >= _NOTHING else None


# --- changes by bottleneck ---


def changes_for(v: Verdict) -> Iterator[Change]:
    """The changes that help against the bottleneck, most useful first."""
    if v.replaced and v.bottleneck not in (COPY, STEP):
        ahead = "its batches are made while the step runs; " if v.workers.count else ""
        speed = f"{v.samples / v.loader:,.0f} samples/s"
        yield Change(f"{v.replaced}: {ahead}alone, it made {speed} here")
        if v.keeps_up:
            return
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
            yield Change("more workers: there are CPUs left", more)
    elif v.bottleneck == COPY:
        yield Change("send uint8, and convert and normalise on the device: a quarter of the bytes")
        ctx = " (gluon_loader: ctx=)" if v.workers.keyword == "num_workers" else ""
        yield Change(f"pinned memory, and a copy of the next batch during the step{ctx}")
    elif v.bottleneck != STEP:
        yield Change(
            "SafeSequence (Keras) or gluon_loader (Gluon) around the same data set: faster as a "
            "rule, and their parts can be told apart here"
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
            _without_storage(v),
        )
    elif v.store == "cached":
        yield Change(
            "let the cache fill, in the first epoch or by `adapters cache warm`, with a limit that "
            "holds the data: what it has doesn't come from the store",
            _without_storage(v),
        )
    if more := _more_workers(v):  # Waiting threads need no CPU.
        yield Change("more workers, for as many fetches at once", more)
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
    )
    yield Change("keep the files on a local disk rather than on a network share")


def _about_threads(v: Verdict) -> Iterator[Change]:
    """Advice if threads must run the user's code one at a time."""
    if not v.one_at_a_time:
        return
    count = max(2, min(_needed_workers(v) or MOST_WAITING, MOST_WAITING))
    found = with_workers(v, count, THREADS)
    yield Change(
        "thread_safe=True, if several threads may run your code at once: without it, one does at "
        "a time",
        found if found and found.gain >= _NOTHING else None,
    )


def _about_transforms(v: Verdict) -> Iterator[Change]:
    workers, needed, more = v.workers, _needed_workers(v), _more_workers(v)
    if v.kernel_missing:
        yield Change(
            "build the native kernel: apt-get install gcc libjpeg62-turbo-dev (Debian), then "
            "install this package again, or take a wheel of it for Linux; `adapters doctor` "
            "without a script says how"
        )
    if v.waits:
        yield from _about_threads(v)
        if more:
            yield Change("more workers, as the transform waits, which takes no CPU", more)
    elif workers.kind == "inline" and workers.cpus > 1:
        yield Change(
            f'{workers.keyword}="auto", which finds out whether threads or processes help: this '
            "loader has no workers",
            more,
        )
    elif more:
        yield Change("more workers: there are CPUs left", more)
    if _threads_bring_nothing(v) and v.queued_share <= QUEUED:
        yield Change(
            "worker processes (use_multiprocessing=True; in Gluon, thread_pool=False): several "
            "threads make hardly more batches than one, as the transform holds the interpreter "
            "lock",
            with_workers(v, max(1, min(workers.cpus, needed or workers.cpus)), PROCESSES),
        )
    yield Change(
        "do once, before training, what is the same in every epoch, and keep the result; of "
        "images, decode and resize to what training needs (adapters pack --resize 256)"
    )
    if v.has_transform and not v.waits:
        yield Change(
            "functions of a whole batch in the place of your functions of samples: what NumPy can "
            "do as a batch_transform, or Gluon's own transforms (loader.explain() tells which)"
        )
    if needed is not None and needed > workers.cpus and not v.waits:
        yield Change("more CPUs, or less work for each sample: all of these can't keep up")
