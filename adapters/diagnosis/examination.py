"""``diagnose``: the published method, part by part.

The whole; the loader alone; without storage, without transforms, collation alone, all with the
loader's own workers; the same batch again and again; the copy to the device. What is examined is a
twin of the loader, with workers of its own, so that the loader stands afterwards where it stood.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from adapters.ablation import Ablations
from adapters.assemble import Plan, aligned_empty
from adapters.diagnosis.randomness import undisturbed
from adapters.diagnosis.verdict import Diagnosis, Workers
from adapters.engine import Engine, Settings, usable_cpus
from adapters.images.kernel import load
from adapters.sources import SequenceSource
from adapters.structure import flatten
from adapters.timing import Timing, endless, settle, timed

# "auto" takes up to a dozen batches to choose its workers.
_SKIPPED = 14
_SKIPPED_OF_A_PART = 6
# A batch made inline, often enough that what only the first one does doesn't count.
_ALONE = 3


class Loader(Protocol):
    """A loader of this package."""

    def twin(self) -> Any:
        """The same loader once more, with workers of its own."""
        ...

    def ablations(self) -> Ablations:
        """What is left of its work without a part of it."""
        ...


class Trainer(Protocol):
    """Something that takes batches from a loader, on a clock."""

    def whole(self, loader: Any, seconds: float) -> Timing:
        """Train on the loader's batches."""
        ...

    def same(self, batch: Any, seconds: float) -> Timing:
        """Train on one batch, again and again."""
        ...

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        """The time of its copy to the device; None where that is part of the step."""
        ...


def diagnose(
    loader: Any,
    step: Any = None,
    *,
    to_device: Callable[[Any], Any] | None = None,
    t: float | None = None,
    seconds: float = 2.0,
) -> Diagnosis:
    """Find out what keeps a training run from being faster.

    Args:
        loader: A ``SafeSequence``, what ``gluon_loader`` returns, a Keras ``PyDataset``, or
            anything that gives batches each time that it is iterated over. It stays as it is.
        step: ``step(batch)``, one step of training; return the loss, so that it can be waited for.
            Or a compiled Keras model, whose weights are put back. None examines the loader only.
        to_device: ``to_device(batch)`` copies a batch to the device, and ``step`` is then given
            what it returns. None leaves the copy to the step.
        t: The step time in seconds that batches must keep up with; None takes that of ``step``.
        seconds: For each of up to eight measurements.

    Returns:
        The diagnosis: ``bottleneck``, the times, ``advice``; ``print(diagnosis)`` for people.

    Raises:
        TypeError: ``step`` is neither a function nor a compiled Keras model, or the loader can't be
            iterated over.
        ValueError: ``seconds`` or ``t`` not above 0, ``to_device`` without a function as ``step``,
            or a loader without batches.

    Example:
        >>> import numpy as np, time
        >>> from adapters import diagnose
        >>> batches = [np.zeros((64, 28, 28))] * 10
        >>> diagnose(batches, lambda batch: time.sleep(0.001), seconds=0.1).bottleneck
        'step'
    """
    for name, value in (("seconds", seconds), ("t", t)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be > 0 seconds, got {value!r}")
    return examine(loader, _trainer_of(step, to_device), t, seconds)


def examine(loader: Any, trainer: Trainer | None, t: float | None, seconds: float) -> Diagnosis:
    """As ``diagnose``, for a trainer of any kind."""
    with undisturbed():
        return _examined(loader, trainer, t, seconds)


def _examined(loader: Any, trainer: Trainer | None, t: float | None, seconds: float) -> Diagnosis:
    examined, replaced = _as_own(loader)
    whole = None
    if examined is None:
        alone = timed(endless(loader), None, seconds, _SKIPPED)
        batch = next(endless(loader))
        whole = trainer.whole(loader, seconds) if trainer else None
        return _told(trainer, whole, alone.batch_seconds, batch, Parts(), t, seconds)
    with examined.twin() as twin:
        if trainer is not None:
            # Keras reads a PyDataset in its own way; nobody else can be asked to.
            own_way = replaced and not isinstance(trainer, FunctionTrainer)
            whole = trainer.whole(loader if own_way else twin, seconds)
        alone = timed(endless(twin), None, seconds, _SKIPPED, settled_of(twin))
        batch = next(iter(twin))
        settings = twin._engine.chosen
    parts = _parts(examined.ablations(), settings, seconds)
    parts = dataclasses.replace(
        parts, workers=_workers(settings, examined.workers_keyword), replaced=replaced
    )
    return _told(trainer, whole, alone.batch_seconds, batch, parts, t, seconds)


@dataclass(frozen=True)
class Parts:
    """What the parts of a loader take, in seconds per batch; see ``Diagnosis``."""

    storage: float | None = None
    memory: float | None = None
    collation: float | None = None
    alone: float | None = None
    fetch_computes: float = 0.0
    workers: Workers | None = None
    replaced: str = ""
    one_at_a_time: bool = False
    kernel_missing: bool = False
    gathers: bool = False


def _parts(ablations: Ablations, settings: Settings, seconds: float) -> Parts:
    def measured(plan: Plan | None) -> float | None:
        if plan is None:
            return None
        part = Engine(plan, settings)
        try:
            stream = part.stream(0, 0, False)
            batches = (stream.next() for _ in itertools.count())
            settled = settled_of(part)
            return timed(batches, None, seconds / 2, _SKIPPED_OF_A_PART, settled).batch_seconds
        finally:
            part.close()

    source, shared = ablations.whole.source, not settings.use_multiprocessing
    wall, computing = _inline(ablations.storage)
    return Parts(
        storage=measured(ablations.storage),
        memory=measured(ablations.memory),
        collation=measured(ablations.collation),
        alone=_inline(ablations.whole)[0],
        fetch_computes=computing / max(wall, 1e-9),
        one_at_a_time=shared and isinstance(source, SequenceSource) and not source.thread_safe,
        kernel_missing=ablations.decodes and load() is None,
        gathers=ablations.gathers,
    )


def _workers(settings: Settings, keyword: str) -> Workers:
    count = 0 if settings.workers == "auto" else settings.workers
    kind = ("processes" if settings.use_multiprocessing else "threads") if count else "inline"
    return Workers(kind, count, usable_cpus(), keyword)


def _inline(plan: Plan) -> tuple[float, float]:
    """Seconds of a batch that is made in this thread, and how long the CPU worked for it."""
    best = float("inf"), 0.0
    for index in range(min(_ALONE, len(plan))):
        started, cpu = time.perf_counter(), time.thread_time()
        plan.settle(plan.batch(0, index, aligned_empty))
        best = min(best, (time.perf_counter() - started, time.thread_time() - cpu))
    return best


def _told(
    trainer: Trainer | None,
    whole: Timing | None,
    loader_seconds: float,
    batch: Any,
    parts: Parts,
    t: float | None,
    seconds: float,
) -> Diagnosis:
    same = trainer.same(batch, seconds).batch_seconds if trainer else None
    return Diagnosis(
        samples=samples_in(batch),
        whole=whole.batch_seconds if whole else None,
        loader=loader_seconds,
        same=same,
        copy=trainer.copy_seconds(batch, seconds / 2) if trainer else None,
        storage=parts.storage,
        memory=parts.memory,
        collation=parts.collation,
        alone=parts.alone,
        fetch_computes=parts.fetch_computes,
        waits_seconds=whole.waits_seconds if whole else (),
        workers=parts.workers or Workers("unknown", 0, usable_cpus()),
        replaced=parts.replaced,
        one_at_a_time=parts.one_at_a_time,
        kernel_missing=parts.kernel_missing,
        gathers=parts.gathers,
        t=t,
    )


def samples_in(batch: Any) -> int:
    """How many samples a batch has, by the first axis of its first array."""
    for leaf in flatten(batch)[0]:
        shape = getattr(leaf, "shape", None)
        if shape:
            return int(shape[0])
    return 1


def settled_of(loader: Any) -> Callable[[], bool]:
    """Whether a loader, or an engine, has the workers that it will have; True for foreign ones."""
    engine = getattr(loader, "_engine", loader)
    return lambda: getattr(engine, "settled", True)


class FunctionTrainer:
    """``step(batch)``, by the caller's own function."""

    def __init__(self, step: Callable[[Any], Any], to_device: Callable[[Any], Any] | None) -> None:
        self._step = step
        self._to_device = to_device

    def _whole_step(self, batch: Any) -> Any:
        return self._step(batch if self._to_device is None else self._to_device(batch))

    def whole(self, loader: Any, seconds: float) -> Timing:
        """Train on the loader's batches."""
        settled = settled_of(loader)
        return timed(endless(loader), self._whole_step, seconds, _SKIPPED, settled)

    def same(self, batch: Any, seconds: float) -> Timing:
        """Train on one batch, again and again."""
        return timed(itertools.repeat(batch), self._whole_step, seconds, _ALONE)

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        """The time of ``to_device``; None without one."""
        if self._to_device is None:
            return None
        copy = self._to_device
        return timed(
            itertools.repeat(batch), lambda each: settle(copy(each)), seconds, 1
        ).batch_seconds


def _trainer_of(step: Any, to_device: Callable[[Any], Any] | None) -> Trainer | None:
    model = hasattr(step, "train_function") and hasattr(step, "fit")
    if to_device is not None and (step is None or model):
        raise ValueError(
            "to_device must be None unless step is a function, which is given what it returns; got "
            f"to_device={to_device!r} with step={step!r}"
        )
    if step is None:
        return None
    if model:
        from adapters.keras.fitting import ModelTrainer

        return ModelTrainer(step)
    if not callable(step):
        raise TypeError(
            f"step must be a function of a batch or a compiled Keras model, got {step!r}"
        )
    return FunctionTrainer(step, to_device)


def _as_own(loader: Any) -> tuple[Any, str]:
    """The loader, or one of ours for the same, and what that replaces; None for others."""
    if hasattr(loader, "twin") and hasattr(loader, "ablations"):
        return loader, ""
    bases = {f"{base.__module__}.{base.__name__}" for base in type(loader).__mro__}
    if any(base.startswith("keras.") and base.endswith(".PyDataset") for base in bases):
        from adapters.keras import SafeSequence

        workers = loader.workers if loader.workers > 1 else 0
        processes = loader.use_multiprocessing
        sequence = SafeSequence(loader, workers=workers, use_multiprocessing=processes)
        return sequence, "SafeSequence in the place of the PyDataset"
    if "mxnet.gluon.data.dataloader.DataLoader" in bases:
        from adapters.gluon.interception import same_loader

        return same_loader(loader), "gluon_loader in the place of DataLoader, same arguments"
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        raise TypeError(
            "loader must be a SafeSequence, what gluon_loader returns, a PyDataset, or something "
            f"else that gives batches when it is iterated over, got {type(loader).__name__}"
        )
    return None, ""
