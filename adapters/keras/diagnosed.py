"""Keras support of ``adapters.diagnose``: models, data sets and ``fit``."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np

from adapters.diagnosis.ablation import Ablations, ablations_of
from adapters.diagnosis.front_end import FrontEnd, Observer, settled_of
from adapters.diagnosis.timing import SKIPPED, Clock, Timing, wait_for_devices
from adapters.engine import Engine
from adapters.keras.sequence import SafeSequence
from adapters.keras.trainingstate import restored
from adapters.keras.waits import WaitReport
from adapters.sources import holds_arrays
from adapters.structure import flatten, map_leaves

_SKIPPED_OF_THE_SAME = 5
_ENDLESS = 1_000_000
# Default of ``fit`` for arrays.
_BATCH_SIZE = 32


class KerasFrontEnd(FrontEnd):
    """Keras front end for ``adapters.diagnose``."""

    def owns(self, loader: Any) -> bool:
        """True for a ``SafeSequence``."""
        return isinstance(loader, SafeSequence)

    def in_place_of(self, loader: Any) -> tuple[Any, str] | None:
        """``SafeSequence`` of the same batches and its description, for a stock ``PyDataset``."""
        if not isinstance(loader, keras.utils.PyDataset):
            return None
        workers = loader.workers if loader.workers > 1 else 0
        processes = loader.use_multiprocessing
        sequence = SafeSequence(loader, workers=workers, use_multiprocessing=processes)
        return sequence, "SafeSequence in the place of the PyDataset"

    def twin(self, loader: SafeSequence) -> SafeSequence:
        """Copy of the sequence at the same position, with separate workers."""
        twin = copy.copy(loader)
        twin._measured = True
        return twin

    def engine(self, loader: SafeSequence) -> Engine:
        """Engine of a sequence."""
        return loader._engine

    def ablations(self, loader: SafeSequence) -> Ablations:
        """Ablations for the current epoch."""
        return ablations_of(loader._plan, loader.epoch)

    def call(self, kind: str, workers: str) -> str:
        """Text of the call to ``SafeSequence``."""
        return f"SafeSequence(..., workers={workers}, use_multiprocessing={kind == 'processes'})"

    def trainer(self, step: Any) -> ModelTrainer | None:
        """Trainer for a Keras model; None for another kind of step."""
        return ModelTrainer(step) if isinstance(step, keras.Model) else None

    @contextmanager
    def intercepted(self, observer: Observer) -> Iterator[None]:
        """Report every call of ``fit`` within the block to the observer first."""

        def fit(
            self: Any, x: Any = None, y: Any = None, batch_size: Any = None, *args: Any, **kw: Any
        ) -> Any:
            keras.Model.fit = own
            try:
                loader = partial(_loader_of, x, y, batch_size)
                observer.fit(loader, partial(ModelTrainer, self), x)
                return own(self, x, y, batch_size, *args, **kw)
            finally:
                keras.Model.fit = fit

        own = keras.Model.fit
        keras.Model.fit = fit
        try:
            yield
        finally:
            keras.Model.fit = own


def _loader_of(x: Any, y: Any, batch_size: int | None) -> Any:
    """Loader of the batches that a ``fit`` with these arguments trains on."""
    if y is not None or isinstance(x, dict) or holds_arrays(x):
        return SafeSequence(x if y is None else (x, y), batch_size or _BATCH_SIZE, shuffle=True)
    if hasattr(x, "__next__"):
        raise TypeError(
            "fit was given a generator, which gives its batches once: make a PyDataset of it, or "
            "give SafeSequence the data behind it"
        )
    return x


class ModelTrainer:
    """Trains a compiled model with ``fit``, and restores its state afterwards."""

    def __init__(self, model: Any) -> None:
        if not getattr(model, "compiled", False):
            raise TypeError(
                f"step must be a function of a batch or a compiled Keras model, got {model!r}, "
                "which isn't compiled: call its compile() first"
            )
        self._model = model
        self.on_cpu = False

    def whole(self, loader: Any, seconds: float) -> Timing:
        """Train on the loader's batches."""
        return self._fit(loader, seconds, SKIPPED)

    def same(self, batch: Any, seconds: float) -> Timing:
        """Train on one batch repeatedly."""
        numbers = np.empty(_ENDLESS, np.uint8)
        with SafeSequence(numbers, 1, batch_transform=lambda _: batch, workers=0) as again:
            again._measured = True
            return self._fit(again, seconds, _SKIPPED_OF_THE_SAME)

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        """Seconds to copy a batch to Keras's device; None if it has non-numeric arrays."""

        def copy(each: Any) -> None:
            wait_for_devices(map_leaves(keras.ops.convert_to_tensor, each))

        leaves = flatten(batch)[0]
        self.on_cpu = "cpu" in str(keras.ops.zeros(()).device).lower()
        if any(np.asarray(leaf).dtype.kind not in "biuf" for leaf in leaves):
            return None
        return Clock(seconds, 2).timed(itertools.repeat(batch), copy).batch_seconds

    def _fit(self, data: Any, seconds: float, skipped: int) -> Timing:
        sequence = data if isinstance(data, SafeSequence) else None
        ticks = _Ticks(Clock(seconds, skipped, settled_of(data)))
        report = [] if sequence is None else [WaitReport(sequence)]
        _build(self._model, data)
        with restored(self._model):
            # In one endless epoch of Keras, a SafeSequence runs on through its own epochs.
            self._model.fit(
                data,
                epochs=_ENDLESS if sequence is None else 1,
                steps_per_epoch=None if sequence is None else _ENDLESS,
                shuffle=False,
                verbose=0,
                callbacks=[ticks, *report],
            )
        assert ticks.timing is not None
        waits = tuple(wait for each in report for wait in each.waits_seconds)
        return replace(ticks.timing, waits_seconds=waits[-ticks.timing.batches :])


class _Ticks(keras.callbacks.Callback):  # type: ignore[misc]
    """Stops ``fit`` when a clock has timed enough batches."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.timing: Timing | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the batches of an execution."""
        count = getattr(self.model, "steps_per_execution", 1)
        if self.timing is None and self._clock.tick(count):
            self.timing = self._clock.stop()
            self.model.stop_training = True


def _build(model: Any, data: Any) -> None:
    """Build a model from the first batch, so that it has the variables to restore later."""
    if model.built:
        return
    batch = data[0] if isinstance(data, keras.utils.PyDataset) else next(iter(data))
    inputs = keras.utils.unpack_x_y_sample_weight(batch)[0]
    try:
        model(map_leaves(keras.ops.convert_to_tensor, inputs))
    except NotImplementedError:
        return  # A model without call(): its train_step calls its parts.


FRONT_END = KerasFrontEnd()
