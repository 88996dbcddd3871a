"""What to change, from the times of the parts: words only where the figures are good for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from adapters.diagnosis.doubts import Doubts
from adapters.diagnosis.figures import COLLATION, COPY, STEP, STORAGE, TRANSFORMS
from adapters.diagnosis.registry import told
from adapters.diagnosis.verdict import Verdict

# Threads that wait; as many as workers="auto" would take at the most.
_MOST_FETCHES = 64
# What the image kernel is worth for JPEGs of 500x375.
_KERNEL_GAIN = "1.4 to 2.2 times as many images/s in our benchmarks"


def advice_of(v: Verdict, doubts: Doubts) -> Iterator[str]:
    """The most useful first."""
    if not doubts.certain:
        yield (
            "nothing, on the strength of these figures: measure again when the machine has nothing "
            "else to do, and for longer (--seconds, or seconds=)"
        )
        return
    yield from _about_replacement(v)
    yield from _ADVICE[v.bottleneck](v, not doubts.noise)
    if doubts.noise and _counted(v):
        yield (
            "for how many workers it takes, measure again when the machine has nothing else to do: "
            "these figures are too uncertain to say"
        )


def _counted(v: Verdict) -> bool:
    """Whether more workers might help."""
    return v.bottleneck in (STORAGE, TRANSFORMS, COLLATION) and not v.one_at_a_time


def _needed_workers(v: Verdict, quiet: bool) -> int | None:
    """As many as make batches as fast as the step takes them; None where that can't be told."""
    if v.alone is None or not v.step_seconds or not quiet:
        return None
    return math.ceil(v.alone / v.step_seconds)


def _about_replacement(v: Verdict) -> Iterator[str]:
    if v.replaced and v.bottleneck not in (COPY, STEP):
        speed = v.samples / v.loader
        yield f"{v.replaced}: alone, it made {speed:,.0f} samples/s here"


def _about_storage(v: Verdict, quiet: bool) -> Iterator[str]:
    needed = _needed_workers(v, quiet)
    if v.one_at_a_time:
        if v.hints.one_at_a_time:
            yield v.hints.one_at_a_time
    elif needed is not None and v.workers.kind != "unknown" and needed > v.workers.count:
        # Threads that wait need no CPU.
        count, effect = min(needed, _MOST_FETCHES), "keep up with the step"
        if needed > count:
            effect = f"are the most that pay as a rule, where it would take {needed:,} to keep up"
        yield f"{v.workers.keyword}={count}: that many fetches at once {effect}"
    yield (
        "pack the samples into record files once (adapters pack), which are read in long "
        "stretches, and from the page cache where they fit into memory"
    )
    yield "keep the files on a local disk rather than on a network share"


def _about_transforms(v: Verdict, quiet: bool) -> Iterator[str]:
    workers, needed = v.workers, _needed_workers(v, quiet)
    if v.kernel_missing:
        yield (
            "build the image kernel: apt-get install gcc libjpeg62-turbo-dev (Debian), then "
            f"install this package again: {_KERNEL_GAIN}"
        )
    if workers.kind == "inline" and workers.cpus > 1:
        yield f'{workers.keyword}="auto", or {workers.cpus}: this loader has no workers'
    elif needed is not None and workers.count < min(needed, workers.cpus):
        yield f"{workers.keyword}={min(needed, workers.cpus)}: there are CPUs left"
    if workers.kind == "threads" and v.alone is not None and workers.count > 1:
        scale = v.alone / v.loader
        if scale < 1.3 and quiet:
            yield (
                f"worker processes: {workers.count} threads make {scale:.2g} times as many "
                "batches as one, so the transform holds the interpreter lock"
            )
    yield (
        "do once, out of band, what is the same in every epoch: decode, and resize to what "
        "training needs (adapters pack --resize 256; --compare says what each --encoding gives)"
    )
    if v.hints.transforms:
        yield v.hints.transforms
    if needed is not None and needed > workers.cpus:
        yield (
            f"{needed:,} CPUs would keep up with the step, and there are {workers.cpus}: more "
            "of them, or less work for each sample"
        )


def _about_collation(v: Verdict, quiet: bool) -> Iterator[str]:
    yield "leave out a batchify_fn of your own, and give few large arrays rather than many"
    yield ("keep samples small on their way (uint8 rather than float32), and convert on the device")
    needed = _needed_workers(v, quiet)
    if needed is not None and v.workers.count < min(needed, v.workers.cpus):
        yield f"{v.workers.keyword}={min(needed, v.workers.cpus)}: there are CPUs left"


def _about_copy(v: Verdict, quiet: bool) -> Iterator[str]:
    yield "send uint8, and convert and normalise on the device: a quarter of the bytes"
    by = "; ".join(told("copies"))
    yield f"pinned memory, and a copy of the next batch during the step ({by})"


def _about_step(v: Verdict, quiet: bool) -> Iterator[str]:
    yield "nothing about the loader: the accelerator is busy"
    yield "a larger batch_size, if the accelerator has room for it, or mixed precision"


def _about_foreign(v: Verdict, quiet: bool) -> Iterator[str]:
    yield (
        f"{' or '.join(told('made_by'))} around the same data set: faster as a rule, and their "
        "parts can be told apart here"
    )


# By the bottleneck; they are told whether the machine was quiet enough to count workers.
_ADVICE: dict[str, Callable[[Verdict, bool], Iterator[str]]] = {
    STORAGE: _about_storage,
    TRANSFORMS: _about_transforms,
    COLLATION: _about_collation,
    COPY: _about_copy,
    STEP: _about_step,
    "loader": _about_foreign,
}
