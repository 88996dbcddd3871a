"""The bottleneck, computed from the times of the parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapters.diagnosis.contention import Contention
from adapters.diagnosis.figures import COLLATION, COPY, STEP, STORAGE, TRANSFORMS, Figures

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


@dataclass(frozen=True)
class Workers:
    """The workers that compute batches.

    Args:
        kind: ``"inline"``, ``"threads"``, ``"processes"``, another kind of the engine, or
            ``"unknown"`` for a foreign loader.
        count: Number of workers.
        cpus: Number of CPUs that this process may use.
        keyword: Name of the loader's argument for the number of workers.
        finding: The engine's own finding about its workers, as text.
    """

    kind: str
    count: int
    cpus: int
    keyword: str = "workers"
    finding: str = ""


@dataclass(frozen=True)
class Hints:
    """Advice that depends on the kind of loader, as text; "" for none.

    Args:
        transforms: Advice if transforms are the bottleneck.
        one_at_a_time: Advice if the source serves one thread at a time.
        processes: The argument that makes the loader's workers processes.
    """

    transforms: str = ""
    one_at_a_time: str = ""
    processes: str = ""


@dataclass(frozen=True)
class Verdict:
    """Breakdown of the training time; times are in seconds per batch, None if not measured.

    Args:
        samples: Number of samples in a batch.
        whole: Loader and step together.
        loader: The loader alone; its batches aren't used.
        same: The step with the same batch again and again, including its copy to the device.
        copy: That copy alone.
        storage: Fetching alone, with the loader's workers.
        memory: The loader without fetching: samples in memory.
        collation: Collating finished samples alone.
        alone: One batch computed by one thread.
        fetch_computes: Share of a fetch's time in which it used the CPU, 0 to 1.
        waits_seconds: Wait for each batch while measuring ``whole``.
        alone_computes: Share of the time of ``alone`` in which any thread used the CPU, 0 to 1.
        workers: The loader's workers.
        replaced: The replacement that was examined if the loader is a framework's own; else "".
        one_at_a_time: True if only one thread at a time may compute batches.
        copied: True if that holds, but each worker process has its own copy.
        has_transform: True if a user function transforms each sample.
        kernel_missing: True if images were decoded without the native kernel.
        gathers: True if one gather from arrays both fetches and collates.
        store: ``"uncached"`` or ``"cached"`` if samples come from a remote store, else "".
        t: The requested step time.
        rounds: The figures of each round; those above are the medians.
        contention: Use of the CPUs by other programs during the measurement.
        hints: Advice that depends on the kind of loader.
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
    alone_computes: float = 1.0
    replaced: str = ""
    one_at_a_time: bool = False
    copied: bool = False
    has_transform: bool = True
    kernel_missing: bool = False
    gathers: bool = False
    store: str = ""
    t: float | None = None
    rounds: tuple[Figures, ...] = ()
    contention: Contention = field(default_factory=Contention)
    hints: Hints = field(default_factory=Hints, repr=False)

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
            busy = self.busy_share > 1 - _BUSY_SHARE or _KEEPS_UP * self.loader < self.same
            copy = self.copy or 0.0
            if busy:
                return COPY if copy > max(self.same / 2, _COPY_SECONDS) else STEP
        elif self.t is not None and _KEEPS_UP * self.loader < self.t:
            return STEP
        parts = self.parts
        return max(parts, key=lambda part: parts[part]) if parts else "loader"

    @property
    def waits(self) -> bool:
        """True if the bottleneck waits rather than computes: workers don't need a CPU each."""
        transforms_wait = self.bottleneck == TRANSFORMS and self.alone_computes <= _COMPUTES
        return self.bottleneck == STORAGE or transforms_wait

    @property
    def gain(self) -> float | None:
        """The largest possible speedup of training without the bottleneck; None without a step."""
        if self.whole is None or self.same is None:
            return None
        if self.bottleneck == COPY:
            return self.whole / max(self.same - (self.copy or 0.0), 1e-6)
        if self.bottleneck == STEP:
            return 1.0
        others = [seconds for part, seconds in self.parts.items() if part != self.bottleneck]
        return max(1.0, self.whole / max(self.same, *others, 1e-6))
