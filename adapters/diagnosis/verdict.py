"""From the times of the parts to the bottleneck: arithmetic only, and no words."""

from __future__ import annotations

from dataclasses import dataclass, field

from adapters.diagnosis.contention import Contention
from adapters.diagnosis.figures import COLLATION, COPY, STEP, STORAGE, TRANSFORMS, Figures

# The device is taken to be busy where it stands still for less than that share of the time.
_BUSY_SHARE = 0.1
# A loader that alone is that many times as fast as the step keeps up with it.
_KEEPS_UP = 3
# The copy of a batch is nobody's bottleneck below that.
_COPY_SECONDS = 0.0005
# Below, work is taken to wait, a fetch for its storage, and above to compute, on a machine that may
# have other things to do.
_COMPUTES = 0.3
# A batch that came that late, as a share of the step, still was there in time.
_LATE_SHARE, _LATE_SECONDS = 0.05, 0.0001
# Of the mini-batches, must be ready within the time of a step.
REQUIRED_SHARE = 0.99


@dataclass(frozen=True)
class Workers:
    """Who computes batches.

    Args:
        kind: ``"inline"``, ``"threads"``, ``"processes"``, another kind that the engine has, or
            ``"unknown"`` for a foreign loader.
        count: How many.
        cpus: How many CPUs this process may use.
        keyword: What the loader calls their number.
        finding: What they have found out about themselves, in words.
    """

    kind: str
    count: int
    cpus: int
    keyword: str = "workers"
    finding: str = ""


@dataclass(frozen=True)
class Hints:
    """What to change, of what only some loaders have: in words, and "" where there is nothing.

    Args:
        transforms: Where transforms take the time.
        one_at_a_time: Where threads would have to ask the source one at a time.
        processes: How the loader is told that its workers are processes.
    """

    transforms: str = ""
    one_at_a_time: str = ""
    processes: str = ""


@dataclass(frozen=True)
class Verdict:
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
        alone_computes: Of the time of ``alone``, the share in which it computed, 0 to 1.
        workers: Who made them.
        replaced: What the loader was examined as, where it isn't of this package; else "".
        trained_on_replaced: Whether ``whole`` is of the loader that was replaced.
        one_at_a_time: Whether the source gives whole batches to one thread at a time.
        copied: The same, where worker processes have a copy of it each.
        has_transform: Whether a function of the user's makes something of each sample.
        kernel_missing: Whether images were decoded without the image kernel.
        gathers: Whether fetching is collating at once, as rows are gathered out of arrays.
        decodes: Whether the transforms are decoding images, too.
        store: ``"uncached"`` or ``"cached"`` where samples come from a store behind URLs, else "".
        packed: As ``memory``, of pictures that were packed at 256 pixels.
        t: The step time that was asked for.
        rounds: What each round found; the figures above are the medians.
        contention: Who had the CPUs meanwhile.
        hints: What can be changed about this kind of loader.
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
    trained_on_replaced: bool = False
    one_at_a_time: bool = False
    copied: bool = False
    has_transform: bool = True
    kernel_missing: bool = False
    gathers: bool = False
    decodes: bool = False
    store: str = ""
    packed: float | None = None
    t: float | None = None
    rounds: tuple[Figures, ...] = ()
    contention: Contention = field(default_factory=Contention)
    hints: Hints = field(default_factory=Hints, repr=False)

    @property
    def busy_share(self) -> float | None:
        """Of the time, what the device has work; None without a step."""
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
        # What was fetched ahead from a store is here at once, which says nothing of the waiting.
        is_computed = self.fetch_computes > _COMPUTES and not self.store
        fetched = computes if is_computed else STORAGE
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
        elif self.t is not None and _KEEPS_UP * self.loader < self.t:
            return STEP
        parts = self.parts
        return max(parts, key=lambda part: parts[part]) if parts else "loader"

    @property
    def waits(self) -> bool:
        """Whether the bottleneck waits rather than computes, so that workers need no CPU each."""
        transforms_wait = self.bottleneck == TRANSFORMS and self.alone_computes <= _COMPUTES
        return self.bottleneck == STORAGE or transforms_wait

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
