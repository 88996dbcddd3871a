"""``diagnose``: the published method, part by part.

The whole; the loader alone; without storage, without transforms, collation alone, all with the
loader's own workers; a batch without them; the same batch again and again; the copy to the device.
Each is measured in several rounds, which take turns, so that a slow moment of the machine doesn't
fall on one of them alone. What is examined is a twin of the loader, with workers of its own, so
that the loader stands afterwards where it stood.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from adapters.diagnosis.contention import Account, Contention
from adapters.diagnosis.faces import Trainer
from adapters.diagnosis.figures import Figures, medians_of
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
# Of each measurement; where they leave doubts, as many again.
ROUNDS, MOST_ROUNDS = 3, 6


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
        seconds: For each of up to eight measurements, in three rounds. Where the figures leave
            doubts, they are taken again, in as many rounds more at the most.

    Returns:
        The diagnosis: ``bottleneck`` (``"storage"``, ``"transforms"``, ``"collation"``, ``"copy"``,
        ``"step"``, or ``"loader"`` where its parts can't be told apart), the times, ``certain``,
        ``advice``, and ``predictions`` of what each change would bring; ``print(diagnosis)`` for
        people.

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
    return examine(loader, trainer_of(step, to_device), t, seconds)


def examine(
    loader: Any,
    trainer: Trainer | None,
    t: float | None,
    seconds: float,
    progress: Progress = lambda done, total: None,
) -> Diagnosis:
    """As ``diagnose``, for a trainer of any kind."""
    with Examination(loader, trainer, t, seconds, progress) as examination:
        while examination.goes_on:
            examination.round()
        return examination.diagnosis


class Examination:
    """The measurements of one loader; a context manager, which ends all workers.

    One thread uses it: ``round`` while it ``goes_on``, then ``diagnosis``.

    Args:
        loader: As in ``diagnose``.
        trainer: What trains on its batches; None examines the loader only.
        t: As in ``diagnose``.
        seconds: As in ``diagnose``.
        progress: Called with the number of rounds that are measured, and of all.

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
                # Whoever reads it goes on where the one before ended.
                self._read = endless(loader)
            else:
                self._read = own.face.twin(own.loader)
                # Between two calls of fit, too, its workers are kept.
                self._engine.retain()
        # A framework's own training reads any data in its own way; a function can't be asked to.
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
        """Whether another round is needed, and may be measured."""
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
                ablations = self._own.face.ablations(self._own.loader)
                self._parts = Parts(ablations, self._settings)
            parts = self._parts.round(seconds / 2)
        if trainer is not None:
            same = trainer.same(self._batch, seconds).batch_seconds
            copy = trainer.copy_seconds(self._batch, seconds / 2)
        return Figures(loader=loader, whole=whole, same=same, copy=copy, **parts)

    def _loader_seconds(self) -> float:
        """Of a batch that nobody uses; also keeps one."""
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
        return self._own.face.engine(self._read)

    @property
    def _settings(self) -> Settings:
        return self._engine.chosen

    @property
    def diagnosis(self) -> Diagnosis:
        """What the rounds up to now say."""
        contention = Contention()
        if self._before is not None and self._after is not None:
            contention = self._before.until(self._after)
        told = Diagnosis(
            samples=samples_in(self._batch),
            **dataclasses.asdict(medians_of(self._rounds)),
            fetch_computes=0.0,
            waits_seconds=tuple(self._waits),
            workers=Workers("unknown", 0, usable_cpus()),
            replaced=self._own.replaced if self._own is not None else "",
            trained_on_replaced=self._trained_on is not self._read,
            t=self._t,
            rounds=tuple(self._rounds),
            contention=contention,
        )
        if self._own is None or self._parts is None:
            return told
        ablations, settings = self._parts.ablations, self._settings
        face, finding = self._own.face, self._engine.finding
        asked_by_one = ablations.whole.serial
        return dataclasses.replace(
            told,
            fetch_computes=self._parts.fetch_computes,
            alone_computes=self._parts.alone_computes,
            workers=_workers(settings, face.workers_keyword, finding),
            hints=face.hints,
            has_transform=ablations.has_transform,
            one_at_a_time=asked_by_one and not settings.use_multiprocessing,
            copied=asked_by_one and settings.use_multiprocessing,
            kernel_missing=ablations.decodes and load() is None,
            gathers=ablations.gathers,
            decodes=ablations.decodes,
            store=ablations.store,
        )


def _workers(settings: Settings, keyword: str, finding: str) -> Workers:
    count = 0 if settings.workers == "auto" else settings.workers
    kind = ("processes" if settings.use_multiprocessing else "threads") if count else "inline"
    return Workers(settings.kind or kind, count, usable_cpus(), keyword, finding)
