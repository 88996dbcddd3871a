"""What ``adapters.diagnose`` must know of Gluon: its loaders, and their plans taken apart.

While ``adapters doctor`` runs a script, loops over loaders are intercepted, MXNet's and ours.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon.data import dataloader as _dataloader

from adapters.batch.key import BatchKey
from adapters.batch.order import DrawnOrder
from adapters.batch.plan import Allocate, Assembled
from adapters.diagnosis.ablation import Ablations, KeptSamples, Repeated
from adapters.diagnosis.faces import Face, Observer
from adapters.diagnosis.remoteness import held_of, store_of
from adapters.diagnosis.verdict import Hints
from adapters.engine import Engine
from adapters.gluon.loader import DataLoader, gluon_loader
from adapters.gluon.pipeline import Pipeline, PythonOp
from adapters.gluon.plan import GluonPlan
from adapters.gluon.samplers import EpochBatchSampler, sampler_twin
from adapters.resuming import read_only

_KEPT_BATCHES = 4
# What a sampler is asked for: its batches are fetched in turn.
_DRAWN_BATCHES = 256
_BATCHIFY_DEFAULTS = (_dataloader.default_batchify_fn, _dataloader.default_mp_batchify_fn)


class GluonFace(Face):
    """The face towards Gluon."""

    workers_keyword = "num_workers"
    hints = Hints(
        transforms="Gluon's own transforms in the place of functions of yours, where they do the "
        "same: they run a batch at a time; loader.explain() tells which do",
        one_at_a_time="thread_safe=True, if several threads may run your code at once: without it, "
        "one does at a time",
        processes="thread_pool=False",
    )

    def owns(self, loader: Any) -> bool:
        """What ``gluon_loader`` returns."""
        return isinstance(loader, DataLoader)

    def in_place_of(self, loader: Any) -> tuple[Any, str] | None:
        """``gluon_loader`` with the arguments that MXNet's DataLoader was given."""
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
        """The same loader once more."""
        return loader._twin()

    def engine(self, loader: DataLoader) -> Engine:
        """Of a loader."""
        return loader._engine

    def ablations(self, loader: DataLoader) -> Ablations:
        """Of the batches that its sampler gives."""
        return ablations_of(loader._plan, loader._dataset, sampler_twin(loader._batch_sampler))

    def call(self, kind: str, workers: str, queue: int) -> str:
        """The call of ``gluon_loader``."""
        pool = {"threads": ", thread_pool=True", "processes": ", thread_pool=False"}
        ahead = f", prefetch={queue}" if kind != "inline" else ""
        return f"gluon_loader(..., num_workers={workers}{pool.get(kind, '')}{ahead})"

    @contextmanager
    def intercepted(self, observer: Observer) -> Iterator[None]:
        """Within, every loop over a loader, MXNet's or ours, reads from what the observer gives.

        No training is kept: one that is under way may have the folder of ``Resume``.
        """
        kinds: list[Any] = [mx.gluon.data.DataLoader, DataLoader]
        own = [kind.__iter__ for kind in kinds]
        for kind, plain in zip(kinds, own):
            kind.__iter__ = _observed(plain, observer)
        try:
            with read_only():
                yield
        finally:
            for kind, plain in zip(kinds, own):
                kind.__iter__ = plain


def _observed(plain: Callable[[Any], Iterator[Any]], observer: Observer) -> Any:
    """An ``__iter__`` that tells the observer of the loop that begins."""
    return lambda self: observer.loop(self, lambda: plain(self))


class GluonFetching(GluonPlan):
    """Fetches the samples of a batch from the data set at the bottom, and forgets them."""

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """One number, as there must be something to deliver."""
        try:
            self._fetch(self.samples(key))
        except Exception:
            if self.on_error == "raise":
                raise
        return Assembled((np.zeros(1), None), 0)

    def _fetch(self, drawn: Any) -> None:
        pipeline = self.pipeline
        keys = drawn.tolist() if isinstance(drawn, np.ndarray) else drawn
        if pipeline.records is not None:
            pipeline.records.fetch(np.asarray(pipeline.base_numbers(keys), np.int64))
        elif self._runner.gathered(drawn, np.empty) is None:
            for number in pipeline.base_numbers(keys):
                pipeline.base[number]

    def __getstate__(self) -> dict[str, Any]:
        """For a worker process: with the base, which is what is asked."""
        return {**super().__getstate__(), "pipeline": self.pipeline}


def ablations_of(plan: GluonPlan, data: Any, batch_sampler: Any) -> Ablations:
    """Take a loader's plan apart.

    Args:
        plan: Of the loader.
        data: The data set that the loader was made for.
        batch_sampler: Which samples make which batch.

    Raises:
        ValueError: It gives none.
        Exception: Of a sample, where ``on_error`` doesn't take its place.
    """
    drawn = list(itertools.islice(_batches(batch_sampler), _DRAWN_BATCHES))
    if not drawn:
        raise ValueError(
            f"loader must have batches each time, got none from its {type(batch_sampler).__name__}"
        )
    known_order = not isinstance(plan.order, DrawnOrder)
    whole = plan if known_order else dataclasses.replace(plan, order=Repeated.of(drawn))
    storage = GluonFetching(
        whole.order, plan.pipeline, on_error=plan.on_error, thread_safe=plan.thread_safe
    )
    kept_batches = drawn[:_KEPT_BATCHES]
    if plan.on_error != "raise":
        kept_batches = _without_errors(data, kept_batches) or kept_batches
    keys = list(dict.fromkeys(key for batch in kept_batches for key in batch))
    pipeline = plan.pipeline
    if pipeline.columns is None and pipeline.records is None:
        numbers = pipeline.base_numbers(keys)
        fetched = KeptSamples(
            {number: pipeline.base[number] for number in numbers}, len(pipeline.base)
        )
        pipeline = dataclasses.replace(pipeline, base=fetched)
    elif pipeline.records is not None and pipeline.records is pipeline.base:
        held = held_of(pipeline.records, np.asarray(pipeline.base_numbers(keys), np.int64))
        pipeline = dataclasses.replace(pipeline, records=held, base=held)
    order = Repeated.of(kept_batches)
    memory = dataclasses.replace(plan, order=order, pipeline=pipeline)
    alone = dataclasses.replace(memory, batch_transform=None)
    collation: GluonPlan | None = None
    lowered = plan.batchify is None and not any(isinstance(op, PythonOp) for op in pipeline.ops)
    gathers = pipeline.columns is not None or (
        pipeline.records is not None and pipeline.records.gathers
    )
    if lowered and gathers:
        collation = dataclasses.replace(alone, pipeline=dataclasses.replace(pipeline, ops=[]))
    elif not (lowered and pipeline.records is not None):
        made = KeptSamples({key: data[key] for key in keys}, len(data))
        collation = dataclasses.replace(alone, pipeline=Pipeline(made))
    decodes = pipeline.records is not None and pipeline.records.holds_images
    store = store_of(pipeline.records)
    return Ablations(whole, storage, memory, collation, decodes, gathers, store=store)


def _batches(batch_sampler: Any) -> Iterator[Any]:
    """Batches of sample numbers, without a change to the sampler's own state of epochs."""
    if isinstance(batch_sampler, EpochBatchSampler):
        return batch_sampler.batches(0)
    return (batch if isinstance(batch, np.ndarray) else list(batch) for batch in batch_sampler)


def _without_errors(data: Any, batches: list[Any]) -> list[Any]:
    """Batches of the samples that the data set gives."""
    given: dict[Any, bool] = {}
    for key in dict.fromkeys(key for batch in batches for key in batch):
        try:
            data[key]
        except Exception:
            given[key] = False
    left = [[key for key in batch if given.get(key, True)] for batch in batches]
    return [batch for batch in left if batch]


FACE = GluonFace()
