"""``diagnose``: the published method, which measures training part by part.

Measured are loader and step together; the loader alone; fetching alone, the loader without fetching
and collation alone, each with the loader's own workers; a batch without workers; the step with the
same batch again and again; and the copy to the device. Every round measures each part once, so that
a slow moment of the machine doesn't affect only one of them. The measurements use a copy of the
loader with its own workers, so the loader's position doesn't change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from adapters.diagnosis.contention import Account, Contention
from adapters.diagnosis.figures import Figures, medians_of
from adapters.diagnosis.front_end import Trainer
from adapters.diagnosis.loaders import go_on, rest, samples_in, settled_of, taken_as_own
from adapters.diagnosis.parts import Parts, least_batches
from adapters.diagnosis.randomness import undisturbed
from adapters.diagnosis.report import Diagnosis
from adapters.diagnosis.timing import LEAST_OF_A_ROUND, endless, timed
from adapters.diagnosis.trainers import SKIPPED, SKIPPED_AGAIN, FunctionTrainer, trainer_of
from adapters.diagnosis.verdict import Workers
from adapters.engine import Engine, Settings, usable_cpus
from adapters.images.kernel import load

Progress = Callable[[int, int], Any]
# Rounds of each measurement, and the maximum if the figures are uncertain.
ROUNDS, MOST_ROUNDS = 3, 6


def diagnose(
    loader: Any,
    step: Any = None,
    *,
    to_device: Callable[[Any], Any] | None = None,
    t: float | None = None,
    seconds: float = 2.0,
) -> Diagnosis:
    """Find out what limits the speed of a training run.

    Args:
        loader: A ``SafeSequence``, the result of ``gluon_loader``, a Keras ``PyDataset``, or any
            object that gives batches each time it is iterated over. It isn't changed.
        step: ``step(batch)``, one training step; it should return the loss, so that the measurement
            can wait for it. Or a compiled Keras model, whose weights are restored. None examines
            the loader only.
        to_device: ``to_device(batch)`` copies a batch to the device; ``step`` receives its result.
            None leaves the copy to the step.
        t: The step time in seconds that the loader must keep up with; None takes that of ``step``.
        seconds: Duration of each of up to seven measurements, spread over three rounds. If the
            figures are uncertain, up to three more rounds follow.

    Returns:
        The diagnosis: ``bottleneck`` (``"storage"``, ``"transforms"``, ``"collation"``, ``"copy"``,
        ``"step"``, or ``"loader"`` if its parts can't be separated), the times, ``certain``,
        ``advice``, and ``predictions`` of the effect of changes. ``print(diagnosis)`` shows a
        report.

    Raises:
        TypeError: ``step`` is neither a function nor a compiled Keras model, or the loader can't be
            iterated over.
        ValueError: ``seconds`` or ``t`` isn't above 0, ``to_device`` is given without a function as
            ``step``, or the loader has no batches.

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
    return examine(loader, trainer_of(step, to_device), t, seconds)


def examine(
    loader: Any,
    trainer: Trainer | None,
    t: float | None,
    seconds: float,
    progress: Progress = lambda done, total: None,
) -> Diagnosis:
    """Diagnose a loader with any kind of trainer."""
    with Examination(loader, trainer, t, seconds, progress) as examination:
        while examination.goes_on:
            examination.round()
        return examination.diagnosis


class Examination:
    """The measurements of one loader; a context manager that ends all workers.

    For use by one thread: call ``round`` while ``goes_on`` is true, then read ``diagnosis``.

    Args:
        loader: See ``diagnose``.
        trainer: Trains on its batches; None examines the loader only.
        t: See ``diagnose``.
        seconds: See ``diagnose``.
        progress: Called with the number of measured rounds and the total.

    Raises:
        TypeError: The loader can't be iterated over.
    """

    def __init__(
        self,
        loader: Any,
        trainer: Trainer | None,
        t: float | None,
        seconds: float,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self._progress = progress
        self._trainer = trainer
        self._t = t
        self._seconds = seconds / ROUNDS
        self._rounds: list[Figures] = []
        self._waits: list[float] = []
        self._before: Account | None = None
        self._after: Account | None = None
        self._batch: Any = None
        self._parts: Parts | None = None
        self._read: Any
        with undisturbed():
            own = self._own = taken_as_own(loader)
            if own is None:
                # Its readers share one iterator: each resumes where the previous one stopped.
                self._read = endless(loader)
            else:
                self._read = own.front_end.twin(own.loader)
                # Keep the workers alive between calls of fit, too.
                self._engine.retain()
        # A framework's own training reads foreign loaders itself; a function is given the batches.
        own_way = own is None or own.replaced
        others = not isinstance(trainer, FunctionTrainer)
        self._trained_on = loader if own_way and others else self._read

    def __enter__(self) -> Examination:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        self._read.close()
        if self._parts is not None:
            self._parts.close()

    @property
    def goes_on(self) -> bool:
        """True if another round is needed and the maximum isn't reached."""
        done = len(self._rounds)
        return done < ROUNDS or (done < MOST_ROUNDS and not self.diagnosis.certain)

    def round(self) -> None:
        """Measure each part once."""
        with undisturbed():
            before = Account.now()
            self._rounds.append(self._measured())
            self._before, self._after = self._before or before, Account.now()
        done = len(self._rounds)
        self._progress(done, ROUNDS if done <= ROUNDS else MOST_ROUNDS)

    def _measured(self) -> Figures:
        trainer, seconds = self._trainer, self._seconds
        whole = same = copy = None
        if trainer is not None:
            timing = trainer.whole(self._trained_on, seconds)
            whole, waits = timing.batch_seconds, timing.waits_seconds
            self._waits += waits
            if self._own is not None:
                rest(self._engine, whole)
                go_on(self._read)
        loader = self._loader_seconds()
        parts = {}
        if self._own is not None:
            if self._parts is None:
                ablations = self._own.front_end.ablations(self._own.loader)
                self._parts = Parts(ablations, self._settings)
            parts = self._parts.round(seconds / 2)
        if trainer is not None:
            same = trainer.same(self._batch, seconds).batch_seconds
            copy = trainer.copy_seconds(self._batch, seconds / 2)
        return Figures(loader=loader, whole=whole, same=same, copy=copy, **parts)

    def _loader_seconds(self) -> float:
        """Measure the loader alone, in seconds per batch, and keep a batch for later."""
        skipped = SKIPPED_AGAIN if self._rounds else SKIPPED
        least = LEAST_OF_A_ROUND if self._own is None else least_batches(self._settings)
        batches = endless(self._read)
        try:
            settled = settled_of(self._read)
            timing = timed(batches, None, self._seconds, skipped, settled, least)
            if self._batch is None:
                self._batch = next(batches)
        finally:
            batches.close()
        if self._own is not None:
            rest(self._engine, timing.batch_seconds)
            go_on(self._read)
        return timing.batch_seconds

    @property
    def _engine(self) -> Engine:
        assert self._own is not None
        return self._own.front_end.engine(self._read)

    @property
    def _settings(self) -> Settings:
        return self._engine.chosen

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis from the rounds measured so far."""
        contention = Contention()
        if self._before is not None and self._after is not None:
            contention = self._before.until(self._after)
        found = Diagnosis(
            samples=samples_in(self._batch),
            **dataclasses.asdict(medians_of(self._rounds)),
            fetch_computes=0.0,
            waits_seconds=tuple(self._waits),
            workers=Workers("unknown", 0, usable_cpus()),
            replaced=self._own.replaced if self._own is not None else "",
            t=self._t,
            rounds=tuple(self._rounds),
            contention=contention,
        )
        if self._own is None or self._parts is None:
            return found
        ablations, settings = self._parts.ablations, self._settings
        front_end, finding = self._own.front_end, self._engine.finding
        asked_by_one = ablations.whole.serial
        return dataclasses.replace(
            found,
            fetch_computes=self._parts.fetch_computes,
            alone_computes=self._parts.alone_computes,
            workers=_workers(settings, front_end.workers_keyword, finding),
            hints=front_end.hints,
            has_transform=ablations.has_transform,
            one_at_a_time=asked_by_one and not settings.use_multiprocessing,
            copied=asked_by_one and settings.use_multiprocessing,
            kernel_missing=ablations.decodes and load() is None,
            gathers=ablations.gathers,
            store=ablations.store,
        )


def _workers(settings: Settings, keyword: str, finding: str) -> Workers:
    count = 0 if settings.workers == "auto" else settings.workers
    kind = ("processes" if settings.use_multiprocessing else "threads") if count else "inline"
    return Workers(settings.kind or kind, count, usable_cpus(), keyword, finding)
