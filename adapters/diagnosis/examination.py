"""``diagnose``: the published method, which measures training part by part.

Measured are loader and step together; the loader alone; fetching alone, the loader without fetching
and collation alone, each with the loader's own workers; a batch without workers; the step with the
same batch again and again; and the copy to the device. Every round measures each part once, so that
a slow moment of the machine doesn't affect only one of them. The measurements use a copy of the
loader with its own workers, so the loader's position doesn't change.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from adapters.alignment import aligned_empty
from adapters.arguments import check_above
from adapters.batch.plan import BatchKey, Plan
from adapters.clock import Spent
from adapters.diagnosis.ablation import Ablations
from adapters.diagnosis.front_end import (
    FrontEnd,
    Trainer,
    engine_of,
    examinable,
    front_ends_near,
    settled_of,
)
from adapters.diagnosis.report import Diagnosis
from adapters.diagnosis.timing import (
    SKIPPED,
    SKIPPED_AGAIN,
    SKIPPED_OF_THE_SAME,
    Clock,
    Timing,
    endless,
    rest,
    samples_in,
    undisturbed,
    wait_for_devices,
)
from adapters.diagnosis.verdict import NAMES, Round, Workers, values_of
from adapters.engine import Engine, Settings, usable_cpus
from adapters.images.kernel import load

Progress = Callable[[int, int], Any]
# Rounds of each measurement, and the maximum if the figures are uncertain.
ROUNDS, MOST_ROUNDS = 3, 6
# A round has a batch from each worker, as all may deliver at once, but no more than this.
_MOST_AT_ONCE = 16
# Batches computed inline; the fastest counts, so that one-time work of the first doesn't.
_INLINE_BATCHES = 3
_PARTS = ("storage", "memory", "collation")
_STORES = {None: "", False: "uncached", True: "cached"}


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
        TypeError: ``step`` is neither a function nor a compiled Keras model, ``seconds`` or ``t``
            no number, or the loader can't be iterated over.
        ValueError: ``seconds`` or ``t`` isn't above 0, ``to_device`` is given without a function as
            ``step``, or the loader has no batches.

    Example:
        >>> import numpy as np, time
        >>> from adapters import diagnose
        >>> batches = [np.zeros((64, 28, 28))] * 10
        >>> diagnose(batches, lambda batch: time.sleep(0.001), seconds=0.1).bottleneck
        'step'
    """
    check_above("seconds", seconds, 0, " seconds")
    if t is not None:
        check_above("t", t, 0, " seconds")
    return Examination(loader, trainer_of(step, to_device), t, seconds).run()


class FunctionTrainer:
    """Trains with the user's function ``step(batch)``."""

    def __init__(self, step: Callable[[Any], Any], to_device: Callable[[Any], Any] | None) -> None:
        self._step = step if to_device is None else lambda batch: step(to_device(batch))
        self._to_device = to_device
        self._skipped = SKIPPED

    def whole(self, loader: Any, seconds: float) -> Timing:
        """Train on the loader's batches; the first call skips more warm-up batches."""
        skipped, self._skipped = self._skipped, SKIPPED_AGAIN
        settled = settled_of(loader)
        with contextlib.closing(endless(loader)) as batches:
            return Clock(seconds, skipped, settled).timed(batches, self._step)

    def same(self, batch: Any, seconds: float) -> Timing:
        """Train on one batch, again and again."""
        return Clock(seconds, SKIPPED_OF_THE_SAME).timed(itertools.repeat(batch), self._step)

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        """Time ``to_device`` in seconds per batch; None without one."""
        if (copy := self._to_device) is None:
            return None
        again, wait = itertools.repeat(batch), wait_for_devices
        return Clock(seconds, 1).timed(again, lambda each: wait(copy(each))).batch_seconds


def trainer_of(step: Any, to_device: Callable[[Any], Any] | None) -> Trainer | None:
    """The trainer for a function or a model of a registered front end; None without a step."""
    found = (front_end.trainer(step) for front_end in front_ends_near(step))
    trainer = next((each for each in found if each is not None), None)
    if step is None or trainer is not None:
        if to_device is None:
            return trainer
        raise ValueError(
            "to_device must be None unless step is a function, which is given what it returns; got "
            f"to_device={to_device!r} with step={step!r}"
        )
    if not callable(step):
        raise TypeError(
            f"step must be a function of a batch or a compiled Keras model, got {step!r}"
        )
    return FunctionTrainer(step, to_device)


class Examination:
    """The measurements of one loader with any kind of trainer, by one thread.

    ``run`` calls ``round`` while ``goes_on`` is true, reads ``diagnosis``, and ends all workers by
    ``close``. ``progress`` is given rounds done and in all.
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
        self._rounds: list[Round] = []
        self._waits: list[float] = []
        self._fetch_computes = self._alone_computes = 0.0
        self._inline = Spent()
        self._batch: Any = None
        self._ablations: Ablations | None = None
        self._positions = dict.fromkeys(_PARTS, (0, 0))
        self._read: Any
        with undisturbed():
            self._loader, self._front_end, self._replaced = examinable(loader)
            if self._front_end is None:
                # Its readers share one iterator: each resumes where the previous one stopped.
                self._read = endless(loader)
            else:
                self._read = self._front_end.twin(self._loader)
                # Keep the workers alive between calls of fit, too.
                self._front_end.engine(self._read).retain()
        # A framework's own training reads foreign loaders itself; a function is given the batches.
        own_way = self._front_end is None or self._replaced
        others = not isinstance(trainer, FunctionTrainer)
        self._trained_on = loader if own_way and others else self._read

    def run(self) -> Diagnosis:
        """Measure until the figures are certain, or there are enough of them."""
        with contextlib.closing(self):
            while self.goes_on:
                self.round()
            return self.diagnosis

    def close(self) -> None:
        """End all workers."""
        self._read.close()

    @property
    def goes_on(self) -> bool:
        """True if another round is needed and the maximum isn't reached."""
        done = len(self._rounds)
        return done < ROUNDS or (done < MOST_ROUNDS and not self.diagnosis.certain)

    def round(self) -> None:
        """Measure each part once."""
        trainer, seconds = self._trainer, self._seconds
        found: Round = {}
        with undisturbed():
            if trainer is not None:
                timing = trainer.whole(self._trained_on, seconds)
                found["whole"] = timing.batch_seconds
                self._waits += timing.waits_seconds
                self._pause(timing.batch_seconds)
            found["loader"] = self._loader_seconds()
            if self._front_end is not None:
                found |= self._part_seconds(self._front_end)
            if trainer is not None:
                found["same"] = trainer.same(self._batch, seconds).batch_seconds
                if (copy := trainer.copy_seconds(self._batch, seconds / 2)) is not None:
                    found["copy"] = copy
        self._rounds.append(found)
        done = len(self._rounds)
        self._progress(done, ROUNDS if done <= ROUNDS else MOST_ROUNDS)

    def _loader_seconds(self) -> float:
        """Measure the loader alone, in seconds per batch, and keep a batch for later."""
        skipped = SKIPPED_AGAIN if self._rounds else SKIPPED
        engine = engine_of(self._read)
        least = 1 if engine is None else _least_batches(engine.chosen)
        with contextlib.closing(endless(self._read)) as batches:
            timing = Clock(self._seconds, skipped, settled_of(self._read), least).timed(batches)
            if self._batch is None:
                self._batch = next(batches)
        self._pause(timing.batch_seconds)
        return timing.batch_seconds

    def _part_seconds(self, front_end: FrontEnd) -> dict[str, float]:
        """Measure each part of the loader's work with workers like the loader's, and inline."""
        if self._ablations is None:
            self._ablations = front_end.ablations(self._loader)
        settings, found = front_end.engine(self._read).chosen, {}
        for name in _PARTS:
            if (plan := getattr(self._ablations, name)) is not None:
                found[name] = self._seconds_of(name, plan, settings)
        first = _INLINE_BATCHES * len(self._rounds)
        _, fetching, _ = self._seconds_inline(self._ablations.storage, first)
        alone, _, computing = self._seconds_inline(self._ablations.whole, first)
        self._fetch_computes = max(self._fetch_computes, fetching)
        self._alone_computes = max(self._alone_computes, computing)
        return {**found, "alone": alone}

    def _seconds_inline(self, plan: Plan, first: int) -> tuple[float, float, float]:
        """The seconds of the fastest of a few batches, computed in the calling thread.

        And the shares of them, 0 to 1, in which this thread, and any thread, such as those of
        libraries, used the CPU, without time in which other programs had it.
        """
        num_batches = plan.num_batches
        found = []
        for index in range(first, first + min(_INLINE_BATCHES, num_batches or _INLINE_BATCHES)):
            before, cpu = Spent.now(), time.thread_time()
            key = BatchKey(0, index if num_batches is None else index % num_batches)
            plan.wait_for(plan.batch(key, aligned_empty))
            spent, cpu = before.until_now(), time.thread_time() - cpu
            own, busy = max(spent.own_seconds, cpu), max(cpu, spent.busy_seconds)
            found.append((spent.seconds, cpu / own, busy / own))
            self._inline = Spent._make(a + b for a, b in zip(self._inline, spent))
        return min(found)

    def _seconds_of(self, name: str, plan: Plan, settings: Settings) -> float:
        """Time a part with these workers; resume where its last measurement stopped."""
        with contextlib.closing(Engine(plan, settings)) as engine:
            with contextlib.closing(engine.stream(*self._positions[name], False)) as stream:
                full, least = (lambda: engine.at_full_speed), _least_batches(settings)
                clock = Clock(self._seconds / 2, SKIPPED_AGAIN, full, least)
                timing = clock.timed(stream.next() for _ in itertools.count())
                self._positions[name] = stream.position
            rest(engine, timing.batch_seconds)
        return timing.batch_seconds

    def _pause(self, batch_seconds: float) -> None:
        """Let the loader's workers finish, and make its next pass resume where this one stopped.

        Reading the first batches again would be served by the page cache.
        """
        rest(engine_of(self._read), batch_seconds)
        if hasattr(self._read, "load_state_dict"):
            with contextlib.suppress(ValueError):  # A loader whose passes differ has no state.
                self._read.load_state_dict(self._read.state_dict())

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis from the rounds measured so far."""
        known: dict[str, Any] = {"workers": Workers("unknown", 0, usable_cpus())}
        queued = self._inline.queued_seconds
        figures = {name: values_of(self._rounds, name) for name in NAMES}
        medians: Any = {name: statistics.median(each) for name, each in figures.items() if each}
        ablations, front_end = self._ablations, self._front_end
        if ablations is not None and front_end is not None:
            engine, keyword = front_end.engine(self._read), front_end.workers_keyword
            settings, count = engine.chosen, _count(engine.chosen)
            computing = "processes" if settings.use_multiprocessing else "threads"
            kind = settings.kind or (computing if count else "inline")
            known = {
                "workers": Workers(kind, count, usable_cpus(), keyword),
                "fetch_computes": self._fetch_computes,
                "alone_computes": self._alone_computes,
                "has_transform": ablations.has_transform,
                "serial": ablations.whole.one_thread_at_a_time,
                "kernel_missing": ablations.decodes and load() is None,
                "gathers": ablations.gathers,
                "store": _STORES[ablations.store_is_cached],
            }
        return Diagnosis(
            samples=samples_in(self._batch),
            **medians,
            waits_seconds=tuple(self._waits),
            replaced=self._replaced,
            on_cpu=getattr(self._trainer, "on_cpu", False),
            t=self._t,
            rounds=tuple(self._rounds),
            queued_share=queued / max(queued + self._inline.cpu_seconds, 1e-9),
            **known,
        )


def _count(settings: Settings) -> int:
    return 0 if settings.workers == "auto" else settings.workers


def _least_batches(settings: Settings) -> int:
    """Minimum number of batches in a round with these workers."""
    return max(1, min(_count(settings), _MOST_AT_ONCE))
