"""Advice on what to change, as text, derived from the times of the parts.

A number in parentheses is the gain predicted by ``prediction``; on a noisy machine it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from adapters.diagnosis.doubts import Doubts
from adapters.diagnosis.figures import COLLATION, COPY, STEP, STORAGE, TRANSFORMS
from adapters.diagnosis.prediction import (
    Prediction,
    advised_workers,
    cached,
    gain_in_words,
    most,
    most_waiting,
    needed_workers,
    process_count,
    threads_bring_nothing,
    with_threads,
    with_workers,
    without_storage,
)
from adapters.diagnosis.registry import texts_of
from adapters.diagnosis.remoteness import CACHED, UNCACHED
from adapters.diagnosis.verdict import Verdict

# A smaller gain isn't noticeable.
_NOTHING = 1.05


def advice_of(v: Verdict, doubts: Doubts) -> Iterator[str]:
    """Advice on a verdict, most useful first."""
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
    elif _counted(v) and (limit := most(v)) is not None:
        yield (
            f"nothing brings more than {gain_in_words(limit)} here, the pace of the step; "
            "what is in parentheses is expected of one change alone"
        )


def _gain(prediction: Prediction | None, quiet: bool, rest: str = "") -> str:
    """The gain of a change in parentheses, as a suffix; "" if it is unknown or uncertain."""
    return f" ({prediction}{rest})" if prediction is not None and quiet else ""


def _workers_gain(v: Verdict, quiet: bool) -> str:
    """The gain of the advised number of workers, and of a smaller number, as a suffix."""
    count, *fewer = advised_workers(v) or (0,)
    if not count:
        return ""
    rest = "".join(
        f"; {v.workers.keyword}={few}: {found}"
        for few in fewer
        if (found := with_workers(v, few)) is not None
    )
    return _gain(with_workers(v, count), quiet, rest)


def _counted(v: Verdict) -> bool:
    """True if more workers might help."""
    return v.bottleneck in (STORAGE, TRANSFORMS, COLLATION) and not v.one_at_a_time


def _needed_workers(v: Verdict, quiet: bool) -> int | None:
    """Number of workers that keep up with the step; None if unknown or uncertain."""
    return needed_workers(v) if quiet else None


def _about_replacement(v: Verdict) -> Iterator[str]:
    if not v.replaced or v.bottleneck in (COPY, STEP) or with_threads(v) is not None:
        return
    yield (
        f"{v.replaced}: its batches are made while the step runs; alone, it made "
        f"{v.samples / v.loader:,.0f} samples/s here"
    )


def _about_threads(v: Verdict, quiet: bool) -> Iterator[str]:
    """Advice if threads must read the source one at a time."""
    if not (v.one_at_a_time or v.copied) or not v.hints.one_at_a_time:
        return
    found = with_threads(v)
    if found is None or found.workers is None or found.gain < _NOTHING:
        yield v.hints.one_at_a_time
        return
    asked = f"{v.workers.keyword}={found.workers}"
    if v.replaced:
        asked = f"{v.replaced}, with {asked}"
    yield f"{asked}, and {v.hints.one_at_a_time}{_gain(found, quiet)}"


def _about_storage(v: Verdict, quiet: bool) -> Iterator[str]:
    needed = _needed_workers(v, quiet)
    yield from _about_threads(v, quiet)
    if v.store == UNCACHED:
        yield (
            'cache="/a/local/folder", or Cache(folder, "200GB"), in open_records or open_images: '
            "what was read once, in the first epoch or by `adapters cache warm`, then comes from a "
            f"local disk{_gain(cached(v), quiet, ' from there')}"
        )
    elif v.store == CACHED:
        yield (
            "let the cache fill, in the first epoch or by `adapters cache warm`, with a limit that "
            "holds the data: what it has doesn't come from the store"
            f"{_gain(without_storage(v), quiet, ' from there')}"
        )
    if (
        not v.one_at_a_time
        and needed is not None
        and v.workers.kind != "unknown"
        and min(needed, most_waiting(v)) > v.workers.count
    ):
        # Waiting threads need no CPU.
        count, effect = min(needed, most_waiting(v)), "keep up with the step"
        if needed > count:
            effect = f"are the most that pay as a rule, where it would take {needed:,} to keep up"
        gain = _workers_gain(v, quiet)
        asked = f"{v.workers.keyword}={count}"
        if v.workers.kind == "processes":
            asked += f", {v.hints.processes or 'processes'} as now"
        yield f"{asked}: that many fetches at once {effect}{gain}"
    if v.store:
        yield (
            "pack what lies in a store one file a sample into record files (adapters pack): fewer "
            "and larger requests"
        )
        return
    yield (
        "pack the samples into record files once (adapters pack), which are read in long "
        "stretches, and from the page cache where they fit into memory"
        f"{_gain(without_storage(v), quiet, ' from there')}"
    )
    yield "keep the files on a local disk rather than on a network share"


def _about_transforms(v: Verdict, quiet: bool) -> Iterator[str]:
    workers, needed = v.workers, _needed_workers(v, quiet)
    if v.kernel_missing:
        yield (
            "build the image kernel: apt-get install gcc libjpeg62-turbo-dev (Debian), then "
            "install this package again, or take a wheel of it for Linux; `adapters doctor` "
            "without a script says how, and estimates in two seconds what the kernel brings here"
        )
    if v.waits:
        yield from _about_waiting(v, quiet)
    elif workers.kind == "inline" and workers.cpus > 1:
        gain = _gain(with_workers(v, workers.cpus), quiet, " at best")
        yield (
            f'{workers.keyword}="auto", which finds out whether threads or processes help: this '
            f"loader has no workers{gain}"
        )
    elif (
        needed is not None
        and workers.count < min(needed, workers.cpus)
        and not threads_bring_nothing(v)
    ):
        gain = _workers_gain(v, quiet)
        yield f"{workers.keyword}={min(needed, workers.cpus)}: there are CPUs left{gain}"
    if threads_bring_nothing(v) and v.alone is not None and quiet:
        count = process_count(v)
        yield (
            f"worker processes: {workers.count} threads make {v.alone / v.loader:.2g} times as "
            "many batches as one, so the transform holds the interpreter lock"
            f"{_gain(with_workers(v, count, processes=True), quiet, f' with {count}')}"
        )
    once = "do once, before training, what is the same in every epoch, and keep the result"
    if not v.gathers:  # Arrays don't have to be decoded.
        once = (
            "do once, out of band, what is the same in every epoch; of pictures, decode and resize "
            "to what training needs (adapters pack --resize 256; --compare says what each "
            "--encoding gives)"
        )
    yield once
    if v.hints.transforms and v.has_transform and not v.waits:
        yield v.hints.transforms
    if needed is not None and needed > workers.cpus and not v.waits:
        yield (
            f"{needed:,} CPUs would keep up with the step, and there are {workers.cpus}: more "
            "of them, or less work for each sample"
        )


def _about_waiting(v: Verdict, quiet: bool) -> Iterator[str]:
    """Advice on workers if the transform mostly waits."""
    workers, count = v.workers, next(iter(advised_workers(v)), None)
    if count is None:
        return
    named = f'"auto", or {count}' if workers.kind == "inline" else f"{count}"
    asked = f"{workers.keyword}={named}"
    yield (
        f"{asked}: the transform waits for {1 - v.alone_computes:.0%} of its time, which takes no "
        f"CPU{_workers_gain(v, quiet)}"
    )


def _about_collation(v: Verdict, quiet: bool) -> Iterator[str]:
    yield "leave out a batchify_fn of your own, and give few large arrays rather than many"
    yield ("keep samples small on their way (uint8 rather than float32), and convert on the device")
    needed = _needed_workers(v, quiet)
    if needed is not None and v.workers.count < min(needed, v.workers.cpus):
        count = min(needed, v.workers.cpus)
        yield f"{v.workers.keyword}={count}: there are CPUs left{_workers_gain(v, quiet)}"


def _about_copy(v: Verdict, quiet: bool) -> Iterator[str]:
    yield "send uint8, and convert and normalise on the device: a quarter of the bytes"
    by = "; ".join(texts_of("copies"))
    yield f"pinned memory, and a copy of the next batch during the step ({by})"


def _about_step(v: Verdict, quiet: bool) -> Iterator[str]:
    if v.same is None:
        yield "nothing about the loader: it keeps up with t"
        return
    yield "nothing about the loader: the device is busy"
    yield "a larger batch_size, if the device has room for it, or mixed precision"


def _about_foreign(v: Verdict, quiet: bool) -> Iterator[str]:
    yield (
        f"{' or '.join(texts_of('made_by'))} around the same data set: faster as a rule, and their "
        "parts can be told apart here"
    )


# Keys are bottlenecks. The second argument is true if the machine was quiet enough for predictions.
_ADVICE: dict[str, Callable[[Verdict, bool], Iterator[str]]] = {
    STORAGE: _about_storage,
    TRANSFORMS: _about_transforms,
    COLLATION: _about_collation,
    COPY: _about_copy,
    STEP: _about_step,
    "loader": _about_foreign,
}
