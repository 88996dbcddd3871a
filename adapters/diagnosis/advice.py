"""What to change, from the times of the parts: words only where the figures are good for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from adapters.diagnosis.figures import COLLATION, COPY, STEP, STORAGE, TRANSFORMS

if TYPE_CHECKING:
    from adapters.diagnosis.verdict import Diagnosis

# Threads that wait; as many as workers="auto" would take at the most.
_MOST_FETCHES = 64
# What the image kernel is worth for JPEGs of 500x375.
_KERNEL_GAIN = "1.4 to 2.2 times as many images/s in our benchmarks"


def advice_of(d: Diagnosis) -> Iterator[str]:
    """The most useful first."""
    if not d.certain:
        yield (
            "nothing, on the strength of these figures: measure again when the machine has nothing "
            "else to do, and for longer (--seconds, or seconds=)"
        )
        return
    yield from _about_replacement(d)
    yield from _ADVICE[d.bottleneck](d)
    if d.noise and _counted(d):
        yield (
            "for how many workers it takes, measure again when the machine has nothing else to do: "
            "these figures are too uncertain to say"
        )


def _counted(d: Diagnosis) -> bool:
    """Whether more workers might help."""
    return d.bottleneck in (STORAGE, TRANSFORMS, COLLATION) and not d.one_at_a_time


def _needed_workers(d: Diagnosis) -> int | None:
    """As many as make batches as fast as the step takes them; None where that can't be told."""
    if d.alone is None or not d.step_seconds or d.noise:
        return None
    return math.ceil(d.alone / d.step_seconds)


def _about_replacement(d: Diagnosis) -> Iterator[str]:
    if d.replaced and d.bottleneck not in (COPY, STEP):
        speed = d.samples / d.loader
        yield f"{d.replaced}: alone, it made {speed:,.0f} samples/s here"


def _about_storage(d: Diagnosis) -> Iterator[str]:
    needed = _needed_workers(d)
    if d.one_at_a_time:
        yield (
            "thread_safe = True in the PyDataset, if several threads may ask it at once: they "
            "do so one at a time now; or a source of single samples"
        )
    elif needed is not None and d.workers.kind != "unknown" and needed > d.workers.count:
        # Threads that wait need no CPU.
        count, effect = min(needed, _MOST_FETCHES), "keep up with the step"
        if needed > count:
            effect = f"are the most that pay as a rule, where it would take {needed:,} to keep up"
        yield f"{d.workers.keyword}={count}: that many fetches at once {effect}"
    yield (
        "pack the samples into record files once (adapters pack), which are read in long "
        "stretches, and from the page cache where they fit into memory"
    )
    yield "keep the files on a local disk rather than on a network share"


def _about_transforms(d: Diagnosis) -> Iterator[str]:
    workers, needed = d.workers, _needed_workers(d)
    if d.kernel_missing:
        yield (
            "build the image kernel: apt-get install gcc libjpeg62-turbo-dev (Debian), then "
            f"install this package again: {_KERNEL_GAIN}"
        )
    if workers.kind == "inline" and workers.cpus > 1:
        yield f'{workers.keyword}="auto", or {workers.cpus}: this loader has no workers'
    elif needed is not None and workers.count < min(needed, workers.cpus):
        yield f"{workers.keyword}={min(needed, workers.cpus)}: there are CPUs left"
    if workers.kind == "threads" and d.alone is not None and workers.count > 1:
        scale = d.alone / d.loader
        if scale < 1.3 and not d.noise:
            yield (
                f"worker processes: {workers.count} threads make {scale:.2g} times as many "
                "batches as one, so the transform holds the interpreter lock"
            )
    yield (
        "do once, out of band, what is the same in every epoch: decode, and resize to what "
        "training needs (adapters pack --resize 256)"
    )
    if workers.keyword == "num_workers":
        yield (
            "Gluon's own transforms in the place of functions of yours, where they do the "
            "same: they run a batch at a time; loader.explain() tells which do"
        )
    else:
        yield "move what NumPy can do to a whole batch from transform into batch_transform"
    if needed is not None and needed > workers.cpus:
        yield (
            f"{needed:,} CPUs would keep up with the step, and there are {workers.cpus}: more "
            "of them, or less work for each sample"
        )


def _about_collation(d: Diagnosis) -> Iterator[str]:
    yield "leave out a batchify_fn of your own, and give few large arrays rather than many"
    yield ("keep samples small on their way (uint8 rather than float32), and convert on the device")
    needed = _needed_workers(d)
    if needed is not None and d.workers.count < min(needed, d.workers.cpus):
        yield f"{d.workers.keyword}={min(needed, d.workers.cpus)}: there are CPUs left"


def _about_copy(d: Diagnosis) -> Iterator[str]:
    yield "send uint8, and convert and normalise on the device: a quarter of the bytes"
    yield "pinned memory, and a copy of the next batch during the step (gluon_loader: ctx=)"


def _about_step(d: Diagnosis) -> Iterator[str]:
    yield "nothing about the loader: the accelerator is busy"
    yield "a larger batch_size, if the accelerator has room for it, or mixed precision"


def _about_foreign(d: Diagnosis) -> Iterator[str]:
    yield (
        "SafeSequence (Keras) or gluon_loader (Gluon) around the same data set: faster as a "
        "rule, and their parts can be told apart here"
    )


_ADVICE: dict[str, Callable[[Diagnosis], Iterator[str]]] = {
    STORAGE: _about_storage,
    TRANSFORMS: _about_transforms,
    COLLATION: _about_collation,
    COPY: _about_copy,
    STEP: _about_step,
    "loader": _about_foreign,
}
