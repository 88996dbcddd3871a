"""What ``SafeSequence`` refuses, before any work starts: the argument, the rule, the value."""

from __future__ import annotations

import inspect
import operator
from typing import Any

import numpy as np

from adapters.arguments import check_integer
from adapters.assemble import generator_argument
from adapters.order import Order


def check_arguments(
    *,
    batch_size: Any,
    transform: Any,
    batch_transform: Any,
    seed: Any,
    shard: Any,
    on_error: Any,
    workers: Any,
    flags: dict[str, Any],
    max_queue_size: Any,
) -> None:
    """Check what doesn't depend on the source.

    Raises:
        TypeError: Of the wrong type.
        ValueError: Out of range.
    """
    check_integer("batch_size", batch_size, 1)
    check_integer("seed", seed, 0)
    check_integer("max_queue_size", max_queue_size, 1)
    if not (isinstance(workers, str) and workers == "auto"):
        check_integer("workers", workers, 0, ' or "auto"')
    for name, function in {"transform": transform, "batch_transform": batch_transform}.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be callable or None, got {function!r}")
        _check_signature(name, function)
    for name, flag in flags.items():
        if not isinstance(flag, (bool, np.bool_)) and flag not in (0, 1):
            raise TypeError(f"{name} must be True or False, got {flag!r}")
    if not (callable(on_error) or (isinstance(on_error, str) and on_error in ("raise", "skip"))):
        raise ValueError(f'on_error must be "raise", "skip" or callable, got {on_error!r}')
    if shard is not None:
        _check_shard(shard)


def check_order(order: Order) -> None:
    """Check that every shard has a batch.

    Raises:
        ValueError: It hasn't.
    """
    if order.shard_size < 1:
        raise ValueError(
            f"shard must leave every shard a sample, got {order.shard[1]} shards of "
            f"{order.size} samples"
        )
    if not len(order):
        raise ValueError(
            f"batch_size must be <= {order.shard_size}, the samples in the data set (or shard), "
            f"with drop_remainder=True, got {order.batch_size}"
        )


def index_of(index: Any, length: int) -> int:
    """A batch number from an index as lists take it.

    Raises:
        IndexError: Out of range.
        TypeError: No integer.
    """
    try:
        number = operator.index(index)
    except TypeError:
        raise TypeError(f"batch index must be an integer, got {index!r}") from None
    if not -length <= number < length:
        raise IndexError(f"batch index must be in range({-length}, {length}), got {number}")
    return number % length


def _check_signature(name: str, function: Any) -> None:
    """A function that can't be called with a sample, or a sample and ``rng``, never works."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Some callables written in C don't tell.
        return
    argument = generator_argument(function)
    try:
        if argument == "second":
            signature.bind(None, None)
        else:
            signature.bind(None, **({"rng": None} if argument else {}))
    except TypeError as error:
        item = "sample" if name == "transform" else "batch"
        raise TypeError(
            f"{name} must take ({item}) or ({item}, rng), got {function!r} with the signature "
            f"{signature}: {error}"
        ) from None


def _check_shard(shard: Any) -> None:
    if not isinstance(shard, (tuple, list)):
        raise TypeError(f"shard must be (index, count), got {shard!r}")
    try:
        index, count = (operator.index(number) for number in shard)
    except (TypeError, ValueError) as error:
        raise TypeError(f"shard must be (index, count), got {shard!r}") from error
    if not 0 <= index < count:
        raise ValueError(f"shard must be (index, count) with 0 <= index < count, got {shard!r}")
