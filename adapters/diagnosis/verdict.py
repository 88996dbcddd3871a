"""The bottleneck and how sure it is, computed from the times of the parts.

Figures are doubted if they contradict each other or if the machine was busy: each rule for them
holds on an idle machine, so figures that break it were disturbed by other work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

STORAGE, TRANSFORMS, COLLATION = "storage", "transforms", "collation"
COPY, STEP = "copy", "step"

# The figures, as people know them.
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
# A loader with workers keeps up if it alone is this many times as fast as the step.
_KEEPS_UP = 3
# A faster copy is never the bottleneck.
_COPY_SECONDS = 0.0005
# Work counts as waiting if it uses the CPU for a smaller share of its time, otherwise as computing.
# Low, as other programs may use the CPUs.
_COMPUTES = 0.3
# A batch counts as ready if it was late by no more than this share of the step, or these seconds.
_LATE_SHARE, _LATE_SECONDS = 0.05, 0.0001
# On two idle cores, figures that must be equal differed by up to a third; for short batches, the
# cost of handing one over is added.
_TOLERANCE, _TOLERATED_SECONDS = 1.6, 0.0005
# Loader and step that contend for the interpreter lock take up to this multiple of their sum.
_TURNS = 2.0
# Accepted range from the fastest round to the slowest, as a share of the median.
_STEADY = 0.5
# A thread that has to wait for a CPU for a larger share of the time in which it needs one is
# disturbed by other programs.
QUEUED = 0.3
# A spread of the step below this share of the total doesn't matter.
_STEP_MATTERS = 0.25
# Figures that the advice depends on.
_DECIDING = ("whole", "loader", "same", "alone")


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

    def __str__(self) -> str:
        one = {"threads": "thread", "processes": "process"} if self.count == 1 else {}
        return f"{self.count} {one.get(self.kind, self.kind)}"


Round = dict[str, float]
"""Figures of one round, in seconds per batch, by their names in ``NAMES``."""


def values_of(rounds: Sequence[Round], name: str) -> list[float]:
    """The values of a figure in the rounds that measured it."""
    return [each[name] for each in rounds if name in each]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Where the time goes.

    Args:
        loader: Median over the rounds, in seconds per batch, of what ``NAMES`` describes; so are
            all figures up to ``alone``, or None if not measured.
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
        on_cpu: True if the step is computed on the CPU, so that no copy to a device limits it.
        t: The requested step time.
        rounds: The figures of each round.
        queued_share: Share of the time in which one thread needed a CPU, but others had them all.
    """

    samples: int
    waits_seconds: tuple[float, ...]
    workers: Workers
    loader: float
    whole: float | None = None
    same: float | None = None
    copy: float | None = None
    storage: float | None = None
    memory: float | None = None
    collation: float | None = None
    alone: float | None = None
    fetch_computes: float = 0.0
    alone_computes: float = 1.0
    replaced: str = ""
    serial: bool = False
    has_transform: bool = True
    kernel_missing: bool = False
    gathers: bool = False
    store: str = ""
    on_cpu: bool = False
    t: float | None = None
    rounds: tuple[Round, ...] = ()
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
        """Share of the batches that were ready when the step needed them.

        None if unknown: without a step, or if batches were ready at a step that is longer than
        ``t``, and so perhaps not within ``t``.
        """
        if self.same is None or not self.waits_seconds:
            return None
        t = self.t or self.same
        late = max(_LATE_SECONDS, _LATE_SHARE * t)
        ready = sum(wait <= late for wait in self.waits_seconds)
        return None if ready and t < self.same else ready / len(self.waits_seconds)

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

        ``"loader"`` for a foreign loader, whose parts can't be separated, and for one whose
        replacement keeps up.
        """
        if self.whole is not None and self.same is not None:
            keeps_up, busy = self.keeps_up, (1 - _BUSY_SHARE) * self.whole
            if keeps_up and self.replaced:  # Other programs only make rounds longer.
                busy = (1 - _BUSY_SHARE) * min([self.whole, *values_of(self.rounds, "whole")])
            if self.same > busy or (keeps_up and not self.replaced):
                copies = not self.on_cpu and (self.copy or 0.0) > max(self.same / 2, _COPY_SECONDS)
                return COPY if copies else STEP
            if keeps_up:
                return "loader"
        elif self.t is not None and _KEEPS_UP * self.loader < self.t:
            return STEP
        parts = self.parts
        return max(parts, key=lambda part: parts[part]) if parts else "loader"

    @property
    def keeps_up(self) -> bool:
        """True if what was measured as the loader takes too little time to hold the step up.

        The time of a loader without workers adds to the step's.
        """
        if self.same is None or self.workers.count:
            return _KEEPS_UP * self.loader < (self.same or 0.0)
        return self.loader < _BUSY_SHARE * (self.loader + self.same)

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
        single = (dataclasses.replace(self, **each) for each in self.rounds)  # type: ignore[arg-type]
        return not self.noise or all(each.bottleneck == self.bottleneck for each in single)

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Descriptions of figures that contradict each other."""
        found, alone, workers = [], self.alone, self.workers
        if alone is not None and workers.kind != "unknown":
            by = workers if workers.count else "no workers"
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
        if self.queued_share > QUEUED:
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

    def _shown(self, name: str) -> str:
        return f"{NAMES[name]} takes {1000 * getattr(self, name):.3g} ms"


def _longer(part: float | None, whole: float | None) -> bool:
    """True if a part took longer than the whole, by more than figures differ by chance."""
    if part is None or whole is None:
        return False
    return part > _TOLERANCE * whole + _TOLERATED_SECONDS
