"""Argument checks of ``SafeSequence``. Each error names the argument, the rule and the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from adapters.arguments import (
    check_client,
    check_integer,
    check_shard_size,
    is_cluster,
)
from adapters.batch.order import Order
from adapters.engine import CLUSTER, Settings
from adapters.keras.hooks import overrides_hooks
from adapters.ranks import ShardArgument
from adapters.sources import SequenceSource, Source, as_source, refuse_parts_in_a_list
from adapters.sources.sequence import HOOKS

# Replacement for class_weight if the model has several outputs.
_SAMPLE_WEIGHTS = (
    "give sample weights of each output, as batch_transform=lambda batch: (*batch, {name: "
    "np.take(weights[name], y) for name, y in batch[1].items()}) makes them"
)


def check_workers(workers: Any, use_multiprocessing: Any) -> None:
    """Check ``workers``, and ``use_multiprocessing`` with it."""
    if is_cluster(workers):
        check_client("workers", workers)
        if use_multiprocessing:
            raise ValueError(
                "use_multiprocessing must be left out where workers is a Dask client, got "
                f"{use_multiprocessing!r}: its workers are processes already"
            )
    elif not (isinstance(workers, str) and workers == "auto"):
        check_integer("workers", workers, 0, ' or "auto"')


def settings_of(
    workers: Any, use_multiprocessing: Any, max_queue_size: Any, isolated: bool
) -> Settings:
    """Worker settings for the engine, from checked arguments."""
    size = int(max_queue_size)
    if is_cluster(workers):
        count = max(1, len(workers.nthreads()))
        return Settings(
            count, max_queue_size=size, isolated=isolated, kind=CLUSTER, cluster=workers
        )
    return Settings(workers, bool(use_multiprocessing), size, isolated=isolated)


def check_order(order: Order) -> None:
    """Check that every shard has a batch."""
    check_shard_size(order.size, order.shard)
    if order.num_batches == 0:
        raise ValueError(
            f"batch_size must be <= {order.shard_size}, the samples in the data set (or shard), "
            f"with drop_remainder=True, got {order.batch_size}"
        )


def check_given_shard(given: tuple[int, int] | None, asked: ShardArgument) -> None:
    """Check the shard that Keras gives to this process, if any, against the constructor's."""
    if given is not None and not asked.auto and asked.value not in (None, given):
        raise ValueError(
            f"shard must be left out, or {given}, where Keras or TensorFlow shards the data by "
            f"itself, got {asked.value}; or set distribution.auto_shard_dataset = False, or "
            "train in a loop of your own under a tf.distribute strategy"
        )


_FIXED = (
    "__getitem__",
    "__iter__",
    "__len__",
    "max_queue_size",
    "num_batches",
    "use_multiprocessing",
    "workers",
)


def check_subclass(kind: type, base: type) -> None:
    """Check that a subclass overrides no attribute that ``fit`` bypasses."""
    for name in _FIXED:
        if getattr(kind, name) is not getattr(base, name):
            raise TypeError(
                f"a subclass of SafeSequence must not override {name}, as {kind.__name__} does: "
                "fit reads what the constructor was given, and would pass it by. Give it transform "
                "or batch_transform, or workers; or make the class a keras.utils.PyDataset and "
                "wrap it: SafeSequence(dataset)"
            )


def check_whole_batches(source: Any, endless: bool, given: dict[str, Any]) -> None:
    """Check the other arguments, by their names, with a source of whole batches."""
    name = type(source).__name__
    for argument, what in (
        ("transform", "works on single samples"),
        ("collate", "makes batches of single samples"),
    ):
        if given[argument] is not None:
            raise ValueError(
                f"{argument} {what}, and source gives whole batches ({name}): use batch_transform"
            )
    if given["drop_remainder"] or given["on_error"] != "raise":
        raise ValueError(
            "drop_remainder and on_error are about single samples, and source gives whole batches "
            f"({name}): leave them out, got drop_remainder={given['drop_remainder']!r}, "
            f"on_error={given['on_error']!r}"
        )
    if endless and given["shuffle"]:
        raise ValueError(
            f"shuffle needs a source with an end, got {given['shuffle']!r} for {name}, whose "
            "num_batches is None: shuffle in the source, or give it a __len__"
        )


def check_class_weight(class_weight: Any) -> None:
    """Check the ``class_weight`` of ``fit``."""
    if class_weight is None:
        return
    if not isinstance(class_weight, Mapping):
        raise TypeError(
            "class_weight must be a dict of the numbers of classes, each to its weight, got "
            f"{type(class_weight).__name__}: dict(enumerate(weights)) makes one of a list"
        )
    for output, weights in class_weight.items():
        if isinstance(weights, (Mapping, list, tuple, np.ndarray)):
            raise ValueError(
                "class_weight must have a number for each class of the model's one output, got "
                f"{weights!r:.80} as {output!r}: {_SAMPLE_WEIGHTS}"
            )


def check_one_output(batch: Any) -> None:
    """Check that ``y`` of a batch is one array, as ``class_weight`` needs."""
    y = batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
    if isinstance(y, (dict, tuple, list)):
        names = list(y) if isinstance(y, dict) else f"{len(y)} of them"
        raise ValueError(
            "class_weight must be left out where y isn't one array, as Keras takes it for models "
            f"of one output, got {names}: {_SAMPLE_WEIGHTS}"
        )


def source_of(source: Any) -> Source:
    """Wrap the ``source`` argument of ``SafeSequence``."""
    if isinstance(source, tuple) and not hasattr(source, "_fields"):
        while source and source[-1] is None:  # Keras treats (x, y, None) as (x, y).
            source = source[:-1]
    if isinstance(source, tuple) and len(source) > 3:
        raise ValueError(
            "a tuple as source must be (x,), (x, y) or (x, y, sample_weight), got "
            f"{len(source)} members; put several inputs into a tuple or dict of their own"
        )
    if isinstance(source, keras.utils.PyDataset):
        own = overrides_hooks(type(source), keras.utils.PyDataset) or any(
            name in vars(source) for name in HOOKS
        )
        return SequenceSource(source, changes_between_epochs=own)
    bases = [f"{base.__module__}.{base.__name__}" for base in type(source).__mro__]
    if any(
        base.startswith(("keras.", "tf_keras.")) and base.endswith(".Sequence") for base in bases
    ):
        return SequenceSource(source, changes_between_epochs=True)
    refuse_parts_in_a_list(source)
    return as_source(source)
