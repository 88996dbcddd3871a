"""Trainers: they run training steps for one round of a measurement."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from adapters.diagnosis.front_end import Trainer, front_ends_near, settled_of
from adapters.diagnosis.registry import texts_of
from adapters.diagnosis.timing import (
    LEAST_OF_A_ROUND,
    SKIPPED,
    SKIPPED_AGAIN,
    SKIPPED_OF_THE_SAME,
    Timing,
    endless,
    timed,
    wait_for_devices,
)


class FunctionTrainer:
    """Trains with the user's function ``step(batch)``."""

    def __init__(self, step: Callable[[Any], Any], to_device: Callable[[Any], Any] | None) -> None:
        self._step = step if to_device is None else lambda batch: step(to_device(batch))
        self._to_device = to_device
        self._skipped = SKIPPED

    def whole(self, loader: Any, seconds: float) -> Timing:
        """Train on the loader's batches; the first call skips more warm-up batches."""
        skipped, self._skipped = self._skipped, SKIPPED_AGAIN
        batches, settled = endless(loader), settled_of(loader)
        try:
            return timed(batches, self._step, seconds, skipped, settled, LEAST_OF_A_ROUND)
        finally:
            batches.close()

    def same(self, batch: Any, seconds: float) -> Timing:
        """Train on one batch, again and again."""
        again, skipped = itertools.repeat(batch), SKIPPED_OF_THE_SAME
        return timed(again, self._step, seconds, skipped, least=LEAST_OF_A_ROUND)

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        """Time ``to_device`` in seconds per batch; None without one."""
        if self._to_device is None:
            return None
        copy = self._to_device
        return timed(
            itertools.repeat(batch), lambda each: wait_for_devices(copy(each)), seconds, 1
        ).batch_seconds


def trainer_of(step: Any, to_device: Callable[[Any], Any] | None) -> Trainer | None:
    """The trainer for a function or a model of a registered front end; None without a step."""
    found = (front_end.trainer(step) for front_end in front_ends_near(step))
    trainer = next((each for each in found if each is not None), None)
    if to_device is not None and (step is None or trainer is not None):
        raise ValueError(
            "to_device must be None unless step is a function, which is given what it returns; got "
            f"to_device={to_device!r} with step={step!r}"
        )
    if step is None or trainer is not None:
        return trainer
    if not callable(step):
        kinds = " or ".join(["a function of a batch", *texts_of("step")])
        raise TypeError(f"step must be {kinds}, got {step!r}")
    return FunctionTrainer(step, to_device)
