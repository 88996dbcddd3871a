"""Text that ``seq.explain()`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine
from adapters.keras import internals


def explanation(plan: SourcePlan, engine: Engine) -> Iterator[str]:
    """Yield a line for each stage of the pipeline, workers last."""
    yield f"source: {plan.way}"
    if plan.transform is not None:
        yield f"transform {_name_of(plan.transform)}: a sample at a time"
    if plan.collate is not None:
        yield f"collate {_name_of(plan.collate)}: makes a batch of a list of samples"
    if plan.batch_transform is not None:
        yield f"batch_transform {_name_of(plan.batch_transform)}: a batch at a time"
    order = plan.order
    if order.arrangement is not None:
        yield f"order: {order.arrangement.way}"
    if order.shard[1] > 1:
        samples = "" if order.size is None else f", {order.shard_size} of {order.size}"
        yield f"shard: {order.shard[0]} of {order.shard[1]}{samples}"
    if plan.changes_between_epochs:
        yield "epochs: nothing is read beyond the end of one, as hooks may change what comes next"
    if internals.by_keras_adapter():
        yield "keras: reads by its own adapter, so that fit has nothing computed ahead of time"
    workers = "workers: " + engine.description.removeprefix('workers="auto": ')
    chosen, count = engine.chosen, engine.chosen.workers
    few = count == "auto" or count < 2 or chosen.use_multiprocessing or chosen.kind is not None
    if not few and plan.one_thread_at_a_time:
        unsafe = " and ".join(plan.not_thread_safe)
        workers += f"; only one of them is busy at a time, as {unsafe} is not declared thread_safe"
    yield workers


def _name_of(function: Any) -> str:
    kind = type(function)
    if kind.__module__.startswith(("adapters.collating.", "adapters.transforms.")):
        return repr(function)
    return getattr(function, "__qualname__", kind.__name__)
