"""The bottleneck, how sure it is, and what to change, computed from the times of the parts.

Figures are doubted if they contradict each other or if the machine was busy: each rule for them
holds on an idle machine, so figures that break it were disturbed by other work.

Predictions assume that work which waits scales with the number of workers, and work which computes
with the number of CPUs. If several threads were measured to bring nothing, more threads bring
nothing either; nor do they for a source that serves one thread at a time. A loader with workers
computes batches during the step, so the slower of the two decides; without workers, the two times
add up.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

STORAGE, TRANSFORMS, COLLATION = "storage", "transforms", "collation"
COPY, STEP = "copy", "step"

NAMES = {
    "whole": "the whole, loader and step",
    "loader": "the loader alone",
    "storage": "fetching alone",
    "memory": "without fetching: samples in memory",
    "collation": "collation alone",
    "alone": "one batch, made by one thread",
    "same": "the step, with the same batch again and again",
    "copy": "its copy to the device",
}

# The device counts as busy if it is idle for less than this share of the time.
_BUSY_SHARE = 0.1
# A loader keeps up if it alone is this many times as fast as the step.
_KEEPS_UP = 3
# A faster copy is never the bottleneck.
_COPY_SECONDS = 0.0005
# Work counts as waiting if it uses the CPU for a smaller share of its time, otherwise as computing.
# Low, as other programs may use the CPUs.
_COMPUTES = 0.3
# A batch counts as ready if it was late by no more than this share of the step, or these seconds.
_LATE_SHARE, _LATE_SECONDS = 0.05, 0.0001
# Share of the batches that must be ready within the time of a step.
REQUIRED_SHARE = 0.99
# On two idle cores, figures that must be equal differed by up to a third; for short batches, the
# cost of handing one over is added.
_TOLERANCE, _TOLERATED_SECONDS = 1.6, 0.0005
# Loader and step that contend for the interpreter lock take up to this multiple of their sum.
_TURNS = 2.0
# Accepted range from the fastest round to the slowest, as a share of the median.
_STEADY = 0.5
# A thread that has to wait for a CPU for a larger share of the time in which it needs one is
# disturbed by other programs.
_QUEUED = 0.3
# A spread of the step below this share of the total doesn't matter.
_STEP_MATTERS = 0.25
# Figures that the advice depends on.
_DECIDING = ("whole", "loader", "same", "alone")
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
_ONE_AT_A_TIME = (
    "thread_safe=True, if several threads may run your code at once: without it, one does at a time"
)


@dataclass(frozen=True)
class Workers:
    """The workers that compute batches."""

    kind: str
    """``"inline"``, ``"threads"``, ``"processes"``, ``"unknown"`` (foreign), or another kind."""
    count: int
    cpus: int
    """Number of CPUs that this process may use."""
    keyword: str = "workers"
    """Name of the loader's argument for the number of workers."""


@dataclass(frozen=True)
class Figures:
    """Times of one round, in seconds per batch; None if not measured.

    Args:
        loader: The loader alone; its batches aren't used.
        whole: Loader and step together.
        same: The step with the same batch again and again, including its copy to the device.
        copy: That copy alone.
        storage: Fetching alone, with the loader's workers.
        memory: The loader without fetching: samples in memory.
        collation: Collating finished samples alone.
        alone: One batch computed by one thread.
    """

    loader: float
    whole: float | None = None
    same: float | None = None
    copy: float | None = None
    storage: float | None = None
    memory: float | None = None
    collation: float | None = None
    alone: float | None = None


def medians_of(rounds: Sequence[Figures]) -> dict[str, Any]:
    """The median over the rounds of each figure that was measured."""
    known = {name: values for name in NAMES if (values := values_of(rounds, name))}
    return {name: statistics.median(values) for name, values in known.items()}


def values_of(rounds: Sequence[Figures], name: str) -> list[float]:
    """The values of a figure in the rounds that measured it."""
    values = (getattr(each, name) for each in rounds)
    return [value for value in values if value is not None]


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


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Figures):
    """The result of ``diagnose``: where the time goes and what to change; ``print`` shows a report.

    The figures are medians over the rounds, in seconds per batch.

    Args:
        samples: Number of samples in a batch.
        waits_seconds: Wait for each batch while measuring ``whole``.
        workers: The loader's workers.
        fetch_computes: Share of a fetch's time in which it used the CPU, 0 to 1.
        alone_computes: Share of the time of ``alone`` in which any thread used the CPU, 0 to 1.
        replaced: The replacement that was examined if the loader is a framework's own; else "".
        serial: True if the user's code runs in one thread at a time.
        has_transform: True if a user function transforms each sample.
        kernel_missing: True if images were decoded without the native kernel.
        gathers: True if one gather from arrays both fetches and collates.
        store: ``"uncached"`` or ``"cached"`` if samples come from a remote store, else "".
        t: The requested step time.
        rounds: The figures of each round.
        queued_share: Share of the time in which one thread needed a CPU, but others had them all.
    """

    samples: int
    waits_seconds: tuple[float, ...]
    workers: Workers
    fetch_computes: float = 0.0
    alone_computes: float = 1.0
    replaced: str = ""
    serial: bool = False
    has_transform: bool = True
    kernel_missing: bool = False
    gathers: bool = False
    store: str = ""
    t: float | None = None
    rounds: tuple[Figures, ...] = ()
    queued_share: float = 0.0

    @property
    def one_at_a_time(self) -> bool:
        """True if only one batch at a time is computed; worker processes have copies."""
        return self.serial and self.workers.kind != "processes"

    @property
    def busy_share(self) -> float | None:
        """Share of the time in which the device is busy, 0 to 1; None without a step."""
        if self.whole is None or self.same is None:
            return None
        return min(1.0, self.same / self.whole)

    @property
    def step_seconds(self) -> float | None:
        """The step time to keep up with: ``t`` if given, else the measured step."""
        return self.t if self.t is not None else self.same

    @property
    def ready_share(self) -> float | None:
        """Share of the batches that were ready when the step needed them; None if unknown."""
        if self.step_seconds is None or not self.waits_seconds:
            return None
        late = max(_LATE_SECONDS, _LATE_SHARE * self.step_seconds)
        return sum(wait <= late for wait in self.waits_seconds) / len(self.waits_seconds)

    @property
    def parts(self) -> dict[str, float]:
        """The time of each part of the loader, derived from the ablations."""
        if self.storage is None or self.memory is None:
            return {}
        collation = self.collation or 0.0
        computes = COLLATION if self.gathers else TRANSFORMS
        # Prefetched data of a store arrives at once, so its CPU share doesn't show the waiting.
        is_computed = self.fetch_computes > _COMPUTES and not self.store
        fetched = computes if is_computed else STORAGE
        parts = {STORAGE: 0.0, TRANSFORMS: max(0.0, self.memory - collation), COLLATION: collation}
        # A gather also collates, and must be counted only once.
        parts[fetched] += max(0.0, self.storage - collation) if self.gathers else self.storage
        return parts

    @property
    def bottleneck(self) -> str:
        """``"storage"``, ``"transforms"`` (decoding too), ``"collation"``, ``"copy"``, ``"step"``.

        ``"loader"`` for a foreign loader, whose parts can't be separated.
        """
        if self.same is not None and self.busy_share is not None:
            if self.busy_share > 1 - _BUSY_SHARE or _KEEPS_UP * self.loader < self.same:
                return COPY if (self.copy or 0.0) > max(self.same / 2, _COPY_SECONDS) else STEP
        elif self.t is not None and _KEEPS_UP * self.loader < self.t:
            return STEP
        parts = self.parts
        return max(parts, key=lambda part: parts[part]) if parts else "loader"

    @property
    def waits(self) -> bool:
        """True if the bottleneck waits rather than computes: workers don't need a CPU each."""
        transforms_wait = self.bottleneck == TRANSFORMS and self.alone_computes <= _COMPUTES
        return self.bottleneck == STORAGE or transforms_wait

    # --- doubts ---

    @property
    def certain(self) -> bool:
        """True if the figures identify the bottleneck.

        No figures contradict each other and, on a noisy machine, each round taken by itself gives
        the same bottleneck.
        """
        if self.contradictions:
            return False
        single = (dataclasses.replace(self, **dataclasses.asdict(each)) for each in self.rounds)
        return not self.noise or all(each.bottleneck == self.bottleneck for each in single)

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Descriptions of figures that contradict each other."""
        found, alone, workers = [], self.alone, self.workers
        if alone is not None and workers.kind != "unknown":
            by = f"{workers.count} {workers.kind}" if workers.count else "no workers"
            too_fast = _longer(alone / max(1, workers.count), self.loader)
            if too_fast or (not workers.count and _longer(self.loader, alone)):
                found.append(f"{self._shown('loader')}, with {by}, and {self._shown('alone')}")
        parts = [("same", "whole"), ("memory", "loader"), ("collation", "loader"), ("copy", "same")]
        # A replacement may be faster or slower than the original loader.
        if not self.replaced:
            parts.append(("loader", "whole"))
        # A gather into new memory may take longer than one into reused memory.
        if not self.gathers:
            parts.append(("storage", "loader"))
        found += [
            f"{self._shown(part)}, and {self._shown(whole)}, of which that is a part"
            for part, whole in parts
            if _longer(getattr(self, part), getattr(self, whole))
        ]
        if self.whole is not None and self.same is not None and not self.replaced:
            turns = _TURNS * (self.loader + self.same)
            if self.whole > turns + _TOLERATED_SECONDS:
                names = map(self._shown, ("whole", "loader", "same"))
                found.append("{}, {}, and {}".format(*names))
        return tuple(found)

    @property
    def noise(self) -> tuple[str, ...]:
        """Reasons why the figures are uncertain: other programs, rounds that differ."""
        found = []
        if self.queued_share > _QUEUED:
            found.append(f"other programs had the CPUs for {self.queued_share:.0%} of the time")
        for name in _DECIDING:
            values = values_of(self.rounds, name)
            if not values:
                continue
            spread = max(values) - min(values)
            if name == "same" and self.whole is not None and spread < _STEP_MATTERS * self.whole:
                continue
            if spread > _TOLERATED_SECONDS and spread > _STEADY * sorted(values)[len(values) // 2]:
                least, most = 1000 * min(values), 1000 * max(values)
                found.append(
                    f"{NAMES[name]} took {least:.3g} to {most:.3g} ms, from round to round"
                )
        return tuple(found)

    # --- text ---

    def __str__(self) -> str:
        return "\n".join(_lines_of(self))

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice, most useful first; without numbers on a noisy machine.

        If the bottleneck isn't ``certain``, the only advice is to measure again.
        """
        again = "measure again when the machine has nothing else to do"
        if not self.certain:
            return (
                f"nothing, on the strength of these figures: {again}, and for longer (--seconds, "
                "or seconds=)",
            )
        if self.noise:
            texts = [change.text for change in _changes(self)]
            return (*texts, f"for what each brings, {again}: these figures are too uncertain")
        return tuple(change.in_words(self.workers.keyword) for change in _changes(self))

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Predicted times after a single change each, fastest first.

        Available even if the bottleneck isn't ``certain``.
        """
        found = (change.prediction for change in _changes(self))
        return tuple(sorted(filter(None, found), key=lambda each: each.seconds))

    def _shown(self, name: str) -> str:
        return f"{NAMES[name]} takes {1000 * getattr(self, name):.3g} ms"


def _longer(part: float | None, whole: float | None) -> bool:
    """True if a part took longer than the whole, by more than figures differ by chance."""
    if part is None or whole is None:
        return False
    return part > _TOLERANCE * whole + _TOLERATED_SECONDS


# --- the effect of a change ---


def with_workers(v: Diagnosis, count: int, change: str = WORKERS) -> Prediction | None:
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


def _without_storage(v: Diagnosis) -> Prediction | None:
    """Predict the speed with samples in memory; None if fetching can't be told apart."""
    return _predicted(v, "without storage", None, v.memory or 0.0) if v.parts else None


def _predicted(v: Diagnosis, change: str, count: int | None, loader: float) -> Prediction:
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


def _needed_workers(v: Diagnosis) -> int | None:
    """Number of workers that keep up with the step; None if it is unknown."""
    if v.alone is None or not v.step_seconds:
        return None
    return math.ceil(v.alone / v.step_seconds - 1e-9)


def _threads_bring_nothing(v: Diagnosis) -> bool:
    """True if several threads were measured to be hardly faster than one."""
    several = v.workers.kind == "threads" and v.workers.count >= 2
    return several and v.alone is not None and v.alone / v.loader < _SCALES


def _more_workers(v: Diagnosis) -> Prediction | None:
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


def _changes(v: Diagnosis) -> Iterator[Change]:
    if v.replaced and v.bottleneck not in (COPY, STEP):
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
            yield Change("more workers: there are CPUs left", more)
    elif v.bottleneck == COPY:
        yield Change("send uint8, and convert and normalise on the device: a quarter of the bytes")
        yield Change(
            "pinned memory, and a copy of the next batch during the step (gluon_loader: ctx=)"
        )
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


def _about_storage(v: Diagnosis) -> Iterator[Change]:
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


def _about_threads(v: Diagnosis) -> Iterator[Change]:
    """Advice if threads must run the user's code one at a time."""
    if not v.one_at_a_time:
        return
    count = max(2, min(_needed_workers(v) or MOST_WAITING, MOST_WAITING))
    found = with_workers(v, count, THREADS)
    yield Change(_ONE_AT_A_TIME, found if found and found.gain >= _NOTHING else None)


def _about_transforms(v: Diagnosis) -> Iterator[Change]:
    workers, needed, more = v.workers, _needed_workers(v), _more_workers(v)
    if v.kernel_missing:
        yield Change(
            "build the image kernel: apt-get install gcc libjpeg62-turbo-dev (Debian), then "
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
    if _threads_bring_nothing(v):
        yield Change(
            "worker processes (use_multiprocessing=True; in Gluon, thread_pool=False): several "
            "threads make hardly more batches than one, as the transform holds the interpreter "
            "lock",
            with_workers(v, max(1, min(workers.cpus, needed or workers.cpus)), PROCESSES),
        )
    yield Change(
        "do once, before training, what is the same in every epoch, and keep the result; of "
        "pictures, decode and resize to what training needs (adapters pack --resize 256)"
    )
    if v.has_transform and not v.waits:
        yield Change(
            "functions of a whole batch in the place of your functions of samples: what NumPy can "
            "do as a batch_transform, or Gluon's own transforms (loader.explain() tells which)"
        )
    if needed is not None and needed > workers.cpus and not v.waits:
        yield Change("more CPUs, or less work for each sample: all of these can't keep up")


# --- the report ---


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
    rounds = f"   in {len(d.rounds)} rounds" if d.rounds else ""
    yield f"{f'a batch of {d.samples}':<52}{'ms':>9}{'samples/s':>13}{rounds}"
    for name, label in NAMES.items():
        seconds, spread = getattr(d, name), values_of(d.rounds, name)
        if seconds is None:
            continue
        if name == "storage" and seconds and d.parts.get(STORAGE) == 0.0:
            label += f" (computing {d.fetch_computes:.0%} of it)"
        speed = d.samples / seconds if seconds > 1e-9 else float("inf")
        line = f"{'  ' * (name in _PARTS) + label:<52}{1000 * seconds:>9.3g}{speed:>13,.0f}"
        if spread:
            line += f"   {1000 * min(spread):.3g} to {1000 * max(spread):.3g} ms"
        yield line
    workers = d.workers
    if workers.kind != "unknown":
        yield f"workers: {workers.count} {workers.kind}, on {workers.cpus} CPUs"
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
