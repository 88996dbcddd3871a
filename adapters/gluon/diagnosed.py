"""Gluon support of ``adapters.diagnose``: loaders, and ablations of their plans.

While ``adapters doctor`` runs a script, loops over MXNet's loaders and ours are intercepted.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon.data import dataloader as _dataloader

from adapters.batch.order import DrawnOrder
from adapters.batch.plan import Allocate, Assembled, BatchKey
from adapters.diagnosis.ablation import Ablations, Repeated, made_of
from adapters.diagnosis.front_end import FrontEnd, Observer
from adapters.engine import Engine
from adapters.gluon.loader import DataLoader, gluon_loader
from adapters.gluon.pipeline import Pipeline, PythonOp
from adapters.gluon.plan import GluonPlan
from adapters.gluon.samplers import drawn_batches, sampler_twin
from adapters.resuming.lock import read_only

_KEPT_BATCHES = 4
# Most batches drawn from a sampler for the measurement, which cycles through them.
_DRAWN_BATCHES = 256
_BATCHIFY_DEFAULTS = (_dataloader.default_batchify_fn, _dataloader.default_mp_batchify_fn)


class GluonFrontEnd(FrontEnd):
    """Gluon front end for ``adapters.diagnose``."""

    workers_keyword = "num_workers"

    def owns(self, loader: Any) -> bool:
        """True for a loader of ``gluon_loader``."""
        return isinstance(loader, DataLoader)

    def in_place_of(self, loader: Any) -> tuple[Any, str] | None:
        """``gluon_loader`` with the arguments of an MXNet ``DataLoader``, and its description."""
        if not isinstance(loader, mx.gluon.data.DataLoader):
            return None
        batchify = loader._batchify_fn
        same = gluon_loader(
            loader._dataset,
            batch_sampler=sampler_twin(loader._batch_sampler),
            batchify_fn=None if batchify in _BATCHIFY_DEFAULTS else batchify,
            num_workers=loader._num_workers,
            thread_pool=loader._thread_pool if loader._num_workers else "auto",
        )
        return same, "gluon_loader in the place of DataLoader, same arguments"

    def twin(self, loader: DataLoader) -> DataLoader:
        """Copy of the loader, with separate workers."""
        return loader._twin()

    def engine(self, loader: DataLoader) -> Engine:
        """Engine of a loader."""
        return loader._engine

    def ablations(self, loader: DataLoader) -> Ablations:
        """Ablations for the batches of the loader's sampler."""
        return ablations_of(loader._plan, loader._dataset, sampler_twin(loader._batch_sampler))

    def call(self, kind: str, workers: str) -> str:
        """Text of the call to ``gluon_loader``."""
        pool = {"threads": ", thread_pool=True", "processes": ", thread_pool=False"}
        return f"gluon_loader(..., num_workers={workers}{pool.get(kind, '')})"

    @contextmanager
    def intercepted(self, observer: Observer) -> Iterator[None]:
        """Let the observer supply every loop over a loader, MXNet's or ours, within the block.

        ``Resume`` saves nothing meanwhile: a running training may use its folder.
        """
        kinds: list[Any] = [mx.gluon.data.DataLoader, DataLoader]
        own = [kind.__iter__ for kind in kinds]
        for kind, plain in zip(kinds, own):
            kind.__iter__ = lambda self, plain=plain: observer.loop(self, lambda: plain(self))
        try:
            with read_only():
                yield
        finally:
            for kind, plain in zip(kinds, own):
                kind.__iter__ = plain


class GluonFetching(GluonPlan):
    """Plan that only fetches the samples of a batch from the base data set, and drops them."""

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Fetch the samples, and return a dummy batch of one number."""
        names, pipeline = self.samples(key), self.pipeline
        try:
            if pipeline.columns is not None:
                self._runner.gathered(pipeline.columns, names, np.empty)
            elif pipeline.records is not None:
                numbers = np.asarray(pipeline.base_numbers(names), np.int64)
                pipeline.records.read_and_discard(numbers)
            else:
                list(pipeline.read(names))
        except Exception:
            if self.on_error == "raise":
                raise
        return Assembled((np.zeros(1), None), 0)


def ablations_of(plan: GluonPlan, data: Any, batch_sampler: Any) -> Ablations:
    """Make the ablations of a loader's plan, from its data set and its batch sampler."""
    batches = itertools.islice(drawn_batches(batch_sampler, 0, 0), _DRAWN_BATCHES)
    drawn = list(map(list, batches))
    if not drawn:
        raise ValueError(
            f"loader must have batches each time, got none from its {type(batch_sampler).__name__}"
        )
    pipeline, records = plan.pipeline, plan.pipeline.records
    known_order = not isinstance(plan.order, DrawnOrder)
    whole = plan if known_order else dataclasses.replace(plan, order=Repeated.of(drawn))
    storage = GluonFetching(
        whole.order, pipeline, on_error=plan.on_error, thread_safe=plan.thread_safe
    )
    made, left = made_of(drawn[:_KEPT_BATCHES], data.__getitem__, plan.on_error)
    kept_batches, keys = left or drawn[:_KEPT_BATCHES], list(made)
    if pipeline.columns is None and records is None:
        samples = {number: pipeline.base[number] for number in pipeline.base_numbers(keys)}
        pipeline = dataclasses.replace(pipeline, base=samples)
    elif records is not None and records is pipeline.base:
        held = records.in_memory(np.asarray(pipeline.base_numbers(keys), np.int64))
        pipeline = dataclasses.replace(pipeline, records=held, base=held)
    memory = dataclasses.replace(plan, order=Repeated.of(kept_batches), pipeline=pipeline)
    alone = dataclasses.replace(memory, batch_transform=None)
    collation: GluonPlan | None = None
    lowered = plan.batchify is None and not any(isinstance(op, PythonOp) for op in pipeline.ops)
    gathers = pipeline.columns is not None or (records is not None and records.gathers)
    if lowered and gathers:
        collation = dataclasses.replace(alone, pipeline=dataclasses.replace(pipeline, ops=[]))
    elif not lowered or records is None:
        collation = dataclasses.replace(alone, pipeline=Pipeline(made))
    decodes = records is not None and records.holds_images
    is_cached = None if records is None else records.store_is_cached
    return Ablations(whole, storage, memory, collation, decodes, gathers, is_cached)


FRONT_END = GluonFrontEnd()
