"""Text that ``loader.explain()`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adapters.engine import Engine
from adapters.gluon.pipeline import PythonOp, name_of
from adapters.gluon.plan import GluonPlan
from adapters.gluon.samplers import EpochBatchSampler
from adapters.gluon.stages import names_of_stages
from adapters.sources import Decoded

_AUTO = 'workers="auto": '


def explanation(plan: GluonPlan, engine: Engine, batch_sampler: Any) -> Iterator[str]:
    """Yield a line for each stage of the pipeline, workers last."""
    pipeline = plan.pipeline
    name = ", ".join(pipeline.names)
    if pipeline.records is not None and not isinstance(pipeline.records, Decoded):
        yield f"{name}: {pipeline.records.way(bool(pipeline.ops))}"
    elif pipeline.records is not None:
        at_once = "batch" if pipeline.records.leaves is not None else pipeline.records.unit
        yield f"{name}: read and decoded a {at_once} at a time"
    elif pipeline.columns is not None:
        yield f"{name}: arrays, gathered a batch at a time"
    else:
        yield f"{name}: asked for a sample at a time; arrays and record files are read at once"
    for op in pipeline.ops:
        if isinstance(op, PythonOp):
            at_once = f"what runs a batch at a time is {', '.join(names_of_stages())}"
            for name in op.names:
                yield f"{name}: a sample at a time, by itself; {at_once}"
        elif op.stage.draws:
            yield f"{op.stage.name}: a batch at a time, from each sample's own random numbers"
        else:
            yield f"{op.stage.name}: a batch at a time"
    if plan.batchify is not None:
        yield f"batchify_fn {name_of(plan.batchify)}: gets a list of samples, one by one"
    if plan.batch_transform is not None:
        yield f"batch_transform {name_of(plan.batch_transform)}: a batch at a time"
    if plan.on_error == "skip":
        yield "on_error: the next sample that works takes the place of one that doesn't"
    elif plan.on_error != "raise":
        yield f"on_error: {name_of(plan.on_error)} gives what takes a sample's place"
    if isinstance(batch_sampler, EpochBatchSampler) and batch_sampler.order.arrangement is not None:
        yield f"order: {batch_sampler.order.arrangement.way}"
    if isinstance(batch_sampler, EpochBatchSampler) and batch_sampler.order.shard[1] > 1:
        order = batch_sampler.order
        yield f"shard: {order.shard[0]} of {order.shard[1]}, {order.shard_size} of {order.size}"
    if plan.used:
        used = ", ".join(sorted(plan.used))
        yield f"drawn from the global generators of {used}: seeded, except on threads"
    yield f"workers: {engine.description.removeprefix(_AUTO)}"
