"""A diagnosis: the verdict in words, what to change, and what each change brings.

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

from adapters.arguments import counted
from adapters.diagnosis.verdict import (
    COLLATION,
    COPY,
    NAMES,
    QUEUED,
    STEP,
    STORAGE,
    TRANSFORMS,
    Verdict,
    values_of,
)

# Share of the batches that must be ready within the time of a step.
REQUIRED_SHARE = 0.99
# Maximum number of waiting threads, as for workers="auto", and of waiting processes per CPU: more
# processes would take minutes to start, and memory.
_MOST_WAITING, _MOST_PROCESSES = 64, 4
# Several threads with a speedup below this hold the interpreter lock in turn.
_SCALES = 1.3
# Gains from here on are shown as a factor, not in per cent.
_MANY_TIMES = 5
# A smaller gain isn't noticeable.
_NOTHING = 1.05
_BOTTLENECKS = {
    STORAGE: "storage: fetching the samples",
    TRANSFORMS: "decoding and transforms",
    COLLATION: "collation: making batches of samples",
    COPY: "the copy to the device",
    STEP: "the step itself",
    "loader": "the loader",
}
# Indented in the table.
_PARTS = ("storage", "memory", "collation", "copy")


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


def gain_in_words(gain: float) -> str:
    """Format a gain as ``+70%`` or ``20 times as fast``."""
    return f"+{gain - 1:.0%}" if gain < _MANY_TIMES else f"{gain:,.0f} times as fast"


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Verdict):
    """The result of ``diagnose``: where the time goes and what to change; ``print`` shows a report.

    The arguments are those of ``Verdict``.
    """

    def __str__(self) -> str:
        return "\n".join(_lines_of(self))

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice, most useful first; without numbers on a noisy machine.

        If the bottleneck isn't ``certain``, the only advice is to measure again.
        """
        again = "measure again on an idle machine"
        if not self.certain:
            return (
                f"nothing yet: these figures are too uncertain; {again}, and for longer "
                "(--seconds, or seconds=)",
            )
        if self.noise:
            doubt = f"for what each brings, {again}: these figures are too uncertain"
            return (*(text for text, _ in _changes(self)), doubt)
        said = []
        for text, effect in _changes(self):
            if effect is not None:
                given = f"{self.workers.keyword}={effect.workers}: " if effect.workers else ""
                text += f" ({given}{gain_in_words(effect.gain)})"
            said.append(text)
        return tuple(said)

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Predicted times after a single change each, fastest first.

        Available even if the bottleneck isn't ``certain``.
        """
        found = (effect for _, effect in _changes(self) if effect is not None)
        return tuple(sorted(found, key=lambda each: each.seconds))


def _lines_of(d: Diagnosis) -> Iterator[str]:
    """The report as lines of text: the bottleneck, the figures, the advice."""
    if d.certain:
        network = " over the network" if d.store and d.bottleneck == STORAGE else ""
        yield f"bottleneck: {_BOTTLENECKS[d.bottleneck]}{network}"
        if d.busy_share is not None:
            yield f"the device has work for {d.busy_share:.0%} of the time"
    else:
        reason = "figures contradict each other" if d.contradictions else "the machine is too noisy"
        yield f"bottleneck: can't be told, {reason}"
    yield ""
    rounds = f"   in {counted(len(d.rounds), 'round')}" if d.rounds else ""
    yield f"{f'a batch of {d.samples}':<52}{'ms':>9}{'samples/s':>13}{rounds}"
    for name, label in NAMES.items():
        if (seconds := getattr(d, name)) is None:
            continue
        if name == "storage" and seconds and d.parts.get(STORAGE) == 0.0:
            label += f" (computing {d.fetch_computes:.0%} of it)"
        speed = d.samples / seconds if seconds > 1e-9 else float("inf")
        line = f"{'  ' * (name in _PARTS) + label:<52}{1000 * seconds:>9.3g}{speed:>13,.0f}"
        if spread := values_of(d.rounds, name):
            line += f"   {1000 * min(spread):.3g} to {1000 * max(spread):.3g} ms"
        yield line
    if d.workers.kind != "unknown":
        yield f"workers: {d.workers}, on {d.workers.cpus} CPUs"
    if d.ready_share is not None and d.step_seconds is not None:
        enough = "enough" if d.ready_share >= REQUIRED_SHARE else "too few"
        yield (
            f"ready within t = {1000 * d.step_seconds:.3g} ms: {d.ready_share:.1%} of the batches, "
            f"{enough} (wanted: {REQUIRED_SHARE:.0%})"
        )
    elif d.t is not None:
        enough = "enough" if d.loader <= d.t else "too slow"
        yield f"t = {1000 * d.t:.3g} ms: a batch comes every {1000 * d.loader:.3g} ms, {enough}"
    yield from (f"contradiction: {each}" for each in d.contradictions)
    yield from (f"noise: {each}" for each in d.noise)
    yield ""
    yield "what to change:"
    yield from (f"- {each}" for each in d.advice)


# --- what to change ---


def _changes(v: Verdict) -> list[tuple[str, Prediction | None]]:
    """The advice that applies, most useful first, and its effect if that can be predicted."""
    workers, needed, more = v.workers, _needed_workers(v), _more_workers(v)
    part, cpus, waits = v.bottleneck, v.workers.cpus, v.waits
    fetches, transforms, collates = (part == each for each in (STORAGE, TRANSFORMS, COLLATION))
    inline = transforms and not waits and workers.kind == "inline" and cpus > 1
    # If threads must run the user's code one at a time.
    safe = with_workers(v, max(2, min(needed or _MOST_WAITING, _MOST_WAITING)), "threads")
    safe = safe if safe and safe.gain >= _NOTHING else None
    processes = with_workers(v, max(1, min(cpus, needed or cpus)), "processes")
    without = _predicted(v, "without storage", None, v.memory or 0.0) if v.parts else None
    rows = [
        (bool(v.replaced) and part not in (COPY, STEP), "replaced", None),
        (part == "loader" and not v.replaced, "loader", None),
        (transforms and v.kernel_missing, "kernel", None),
        ((fetches or (transforms and waits)) and v.one_at_a_time, "safe", safe),
        (fetches and v.store == "uncached", "cache", without),
        (fetches and v.store == "cached", "fill", without),
        (fetches and bool(more), "fetches", more),
        (fetches and bool(v.store), "objects", None),
        (fetches and not v.store, "pack", without),
        (fetches and not v.store, "local", None),
        (transforms and waits and bool(more), "waits", more),
        (inline, "auto", more),
        (collates, "batchify", None),
        (collates, "small", None),
        ((collates or (transforms and not waits and not inline)) and bool(more), "more", more),
        (
            transforms and _threads_bring_nothing(v) and v.queued_share <= QUEUED,
            "processes",
            processes,
        ),
        (transforms, "once", None),
        (transforms and v.has_transform and not waits, "batches", None),
        (transforms and not waits and (needed or 0) > cpus, "cpus", None),
        (part == COPY, "uint8", None),
        (part == COPY, "pinned", None),
        (part == STEP and v.same is None, "fast", None),
        (part == STEP and v.same is not None, "busy", None),
        (part == STEP and v.same is not None, "larger", None),
    ]
    words = {
        "keyword": workers.keyword,
        "ctx": " (gluon_loader: ctx=)" if workers.keyword == "num_workers" else "",
        "replaced": v.replaced,
        "ahead": "its batches are made while the step runs; " if workers.count else "",
        "speed": f"{v.samples / v.loader:,.0f}",
    }
    return [(_ADVICE[name].format(**words), effect) for applies, name, effect in rows if applies]


_ADVICE = {
    "replaced": "{replaced}: {ahead}alone, it made {speed} samples/s here",
    "loader": "SafeSequence (Keras) or gluon_loader (Gluon) around the same data set: faster as a "
    "rule, and their parts can be told apart here",
    "kernel": "build the native kernel: apt-get install gcc libjpeg62-turbo-dev (Debian), then "
    "install this package again, or take a wheel of it for Linux; `adapters doctor` without a "
    "script says how",
    "safe": "thread_safe=True, if several threads may run your code at once: without it, one does "
    "at a time",
    "cache": 'cache="/a/local/folder", or Cache(folder, "200GB"), in open_records or open_images: '
    "what was read once, in the first epoch or by `adapters cache warm`, then comes from a local "
    "disk",
    "fill": "let the cache fill, in the first epoch or by `adapters cache warm`, with a limit that "
    "holds the data: what it has doesn't come from the store",
    "fetches": "more workers, for as many fetches at once",
    "objects": "pack what lies in a store one file a sample into record files (adapters pack): "
    "fewer and larger requests",
    "pack": "pack the samples into record files once (adapters pack), which are read in long "
    "stretches, and from the page cache where they fit into memory",
    "local": "keep the files on a local disk rather than on a network share",
    "waits": "more workers, as the transform waits, which takes no CPU",
    "auto": '{keyword}="auto", which finds out whether threads or processes help: this loader has '
    "no workers",
    "batchify": "leave out a batchify_fn of your own, and give few large arrays rather than many",
    "small": "keep samples small on their way (uint8 rather than float32), and convert on the "
    "device",
    "more": "more workers: there are CPUs left",
    "processes": "worker processes (use_multiprocessing=True; in Gluon, thread_pool=False): "
    "several threads make hardly more batches than one, as the transform holds the interpreter "
    "lock",
    "once": "do once, before training, what is the same in every epoch, and keep the result; of "
    "images, decode and resize to what training needs (adapters pack --resize 256)",
    "batches": "functions of a whole batch in the place of your functions of samples: what NumPy "
    "can do as a batch_transform, or Gluon's own transforms (loader.explain() tells which)",
    "cpus": "more CPUs, or less work for each sample: all of these can't keep up",
    "uint8": "send uint8, and convert and normalise on the device: a quarter of the bytes",
    "pinned": "pinned memory, and a copy of the next batch during the step{ctx}",
    "fast": "nothing about the loader: it keeps up with t",
    "busy": "nothing about the loader: the device is busy",
    "larger": "a larger batch_size, if the device has room for it, or mixed precision",
}


def _more_workers(v: Verdict) -> Prediction | None:
    """The effect of as many workers as are useful; None if more than now bring nothing."""
    if v.one_at_a_time or _threads_bring_nothing(v):
        return None
    most = v.workers.cpus
    if v.waits:  # Waiting threads need no CPU.
        processes = v.workers.kind == "processes"
        most = min(_MOST_PROCESSES * most, _MOST_WAITING) if processes else _MOST_WAITING
    # Without a step to keep up with, one for each CPU.
    count = min(_needed_workers(v) or v.workers.cpus, most)
    found = with_workers(v, count) if v.workers.count < count else None
    return found if found is not None and found.gain >= _NOTHING else None


# --- the effect of a change ---


def with_workers(v: Verdict, count: int, change: str = "workers") -> Prediction | None:
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
    if change == "workers" and now > 1:  # Assume that they scale as well as they do now.
        loader = v.loader * now / at_once
    if v.waits and change != "processes" and v.workers.kind != "processes":
        loader = max(loader, v.alone * v.alone_computes)  # Threads compute one at a time.
    return _predicted(v, change, count, loader)


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
