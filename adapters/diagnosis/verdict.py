"""From the times of the parts to the bottleneck, and to what to change: arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

STORAGE, TRANSFORMS, COLLATION = "storage", "transforms", "collation"
COPY, STEP = "copy", "step"

# The accelerator is taken to be busy where it stands still for less than that share of the time.
_BUSY_SHARE = 0.1
# A loader that alone is that many times as fast as the step keeps up with it.
_KEEPS_UP = 3
# The copy of a batch is nobody's bottleneck below that.
_COPY_SECONDS = 0.0005
# Below, a fetch is taken to wait for its storage, and above to compute, on a machine that may have
# other things to do.
_COMPUTES = 0.3
# A batch that came that late, as a share of the step, still was there in time.
_LATE_SHARE, _LATE_SECONDS = 0.05, 0.0001
# Threads that wait; as many as workers="auto" would take at the most.
_MOST_FETCHES = 64
# Of the mini-batches, must be ready within the time of a step.
REQUIRED_SHARE = 0.99
# What the image kernel is worth for JPEGs of 500x375.
_KERNEL_GAIN = "1.4 to 2.2 times as many images/s in our benchmarks"


@dataclass(frozen=True)
class Workers:
    """Who computes batches.

    Args:
        kind: ``"inline"``, ``"threads"``, ``"processes"``, or ``"unknown"`` for a foreign loader.
        count: How many.
        cpus: How many CPUs this process may use.
        keyword: What the loader calls their number.
    """

    kind: str
    count: int
    cpus: int
    keyword: str = "workers"


@dataclass(frozen=True)
class Diagnosis:
    """Where the time goes; all in seconds per batch, None where it wasn't measured.

    Args:
        samples: In a batch.
        whole: Loader and step together.
        loader: The loader alone, nobody uses what it gives.
        same: The step with the same batch again and again, and its copy to the device.
        copy: That copy alone.
        storage: Fetching alone, by the loader's workers.
        memory: The loader without fetching: samples in memory.
        collation: Making batches of finished samples alone.
        alone: One batch made by one thread.
        fetch_computes: Of a fetch's time, the share in which it computed, 0 to 1.
        waits_seconds: Of the batches of the whole.
        workers: Who made them.
        replaced: What the loader was examined as, where it isn't of this package; else "".
        one_at_a_time: Whether the source gives whole batches to one thread at a time.
        kernel_missing: Whether images were decoded without the image kernel.
        gathers: Whether fetching is collating at once, as rows are gathered out of arrays.
        t: The step time that was asked for.
    """

    samples: int
    whole: float | None
    loader: float
    same: float | None
    copy: float | None
    storage: float | None
    memory: float | None
    collation: float | None
    alone: float | None
    fetch_computes: float
    waits_seconds: tuple[float, ...]
    workers: Workers
    replaced: str = ""
    one_at_a_time: bool = False
    kernel_missing: bool = False
    gathers: bool = False
    t: float | None = None

    def __str__(self) -> str:
        from adapters.diagnosis.report import lines_of

        return "\n".join(lines_of(self))

    @property
    def busy_share(self) -> float | None:
        """Of the time, what the accelerator has work; None without a step."""
        if self.whole is None or self.same is None:
            return None
        return min(1.0, self.same / self.whole)

    @property
    def step_seconds(self) -> float | None:
        """The t of the requirement: given, or that of the step here."""
        return self.t if self.t is not None else self.same

    @property
    def ready_share(self) -> float | None:
        """Of the batches, those that were there when the step asked for them."""
        if self.step_seconds is None or not self.waits_seconds:
            return None
        late = max(_LATE_SECONDS, _LATE_SHARE * self.step_seconds)
        return sum(wait <= late for wait in self.waits_seconds) / len(self.waits_seconds)

    @property
    def parts(self) -> dict[str, float]:
        """What each part of the loader takes, by what it takes without the others."""
        if self.storage is None or self.memory is None:
            return {}
        collation = self.collation or 0.0
        computes = COLLATION if self.gathers else TRANSFORMS
        fetched = computes if self.fetch_computes > _COMPUTES else STORAGE
        parts = {STORAGE: 0.0, TRANSFORMS: max(0.0, self.memory - collation), COLLATION: collation}
        # Rows that are gathered once are counted once.
        parts[fetched] += max(0.0, self.storage - collation) if self.gathers else self.storage
        return parts

    @property
    def bottleneck(self) -> str:
        """``"storage"``, ``"transforms"`` (decoding too), ``"collation"``, ``"copy"``, ``"step"``.

        ``"loader"`` for a foreign one, whose parts can't be told apart.
        """
        if self.same is not None and self.busy_share is not None:
            busy = self.busy_share > 1 - _BUSY_SHARE or _KEEPS_UP * self.loader < self.same
            copy = self.copy or 0.0
            if busy:
                return COPY if copy > max(self.same / 2, _COPY_SECONDS) else STEP
        parts = self.parts
        return max(parts, key=lambda part: parts[part]) if parts else "loader"

    @property
    def gain(self) -> float | None:
        """How many times as fast training would be at the most, without the bottleneck."""
        if self.whole is None or self.same is None:
            return None
        if self.bottleneck == COPY:
            return self.whole / max(self.same - (self.copy or 0.0), 1e-6)
        if self.bottleneck == STEP:
            return 1.0
        others = [seconds for part, seconds in self.parts.items() if part != self.bottleneck]
        return max(1.0, self.whole / max(self.same, *others, 1e-6))

    @property
    def advice(self) -> tuple[str, ...]:
        """What to change, the most useful first."""
        advice = {
            STORAGE: self._about_storage,
            TRANSFORMS: self._about_transforms,
            COLLATION: self._about_collation,
            COPY: self._about_copy,
            STEP: self._about_step,
            "loader": self._about_foreign,
        }
        return (*self._about_replacement(), *advice[self.bottleneck]())

    @property
    def _needed_workers(self) -> int | None:
        """As many as make batches as fast as the step takes them."""
        if self.alone is None or not self.step_seconds:
            return None
        return math.ceil(self.alone / self.step_seconds)

    def _about_replacement(self) -> Iterator[str]:
        if self.replaced and self.bottleneck not in (COPY, STEP):
            speed = self.samples / self.loader
            yield f"{self.replaced}: alone, it made {speed:,.0f} samples/s here"

    def _about_storage(self) -> Iterator[str]:
        needed = self._needed_workers
        if self.one_at_a_time:
            yield (
                "thread_safe = True in the PyDataset, if several threads may ask it at once: they "
                "do so one at a time now; or a source of single samples"
            )
        elif needed is not None and self.workers.kind != "unknown" and needed > self.workers.count:
            # Threads that wait need no CPU.
            count, effect = min(needed, _MOST_FETCHES), "keep up with the step"
            if needed > count:
                effect = (
                    f"are the most that pay as a rule, where it would take {needed:,} to keep up"
                )
            yield f"{self.workers.keyword}={count}: that many fetches at once {effect}"
        yield (
            "pack the samples into record files once (adapters pack), which are read in long "
            "stretches, and from the page cache where they fit into memory"
        )
        yield "keep the files on a local disk rather than on a network share"

    def _about_transforms(self) -> Iterator[str]:
        workers, needed = self.workers, self._needed_workers
        if self.kernel_missing:
            yield (
                "build the image kernel: apt-get install gcc libjpeg62-turbo-dev (Debian), then "
                f"install this package again: {_KERNEL_GAIN}"
            )
        if workers.kind == "inline" and workers.cpus > 1:
            yield f'{workers.keyword}="auto", or {workers.cpus}: this loader has no workers'
        elif needed is not None and workers.count < min(needed, workers.cpus):
            yield f"{workers.keyword}={min(needed, workers.cpus)}: there are CPUs left"
        if workers.kind == "threads" and self.alone is not None and workers.count > 1:
            scale = self.alone / self.loader
            if scale < 1.3:
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

    def _about_collation(self) -> Iterator[str]:
        yield "leave out a batchify_fn of your own, and give few large arrays rather than many"
        yield (
            "keep samples small on their way (uint8 rather than float32), and convert on the device"
        )
        needed = self._needed_workers
        if needed is not None and self.workers.count < min(needed, self.workers.cpus):
            yield f"{self.workers.keyword}={min(needed, self.workers.cpus)}: there are CPUs left"

    def _about_copy(self) -> Iterator[str]:
        yield "send uint8, and convert and normalise on the device: a quarter of the bytes"
        yield "pinned memory, and a copy of the next batch during the step (gluon_loader: ctx=)"

    def _about_step(self) -> Iterator[str]:
        yield "nothing about the loader: the accelerator is busy"
        yield "a larger batch_size, if the accelerator has room for it, or mixed precision"

    def _about_foreign(self) -> Iterator[str]:
        yield (
            "SafeSequence (Keras) or gluon_loader (Gluon) around the same data set: faster as a "
            "rule, and their parts can be told apart here"
        )
