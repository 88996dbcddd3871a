"""What ``SafeSequence`` refuses, before any work starts: the argument, the rule, the value."""

from __future__ import annotations

import operator
from typing import Any

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
    max_queue_size: Any,
) -> None:
    """Check what doesn't depend on the source.

    Raises:
        TypeError: Of the wrong type.
        ValueError: Out of range.
    """
    _check_integer("batch_size", batch_size, 1)
    _check_integer("seed", seed, 0)
    _check_integer("max_queue_size", max_queue_size, 1)
    if not (isinstance(workers, str) and workers == "auto"):
        _check_integer("workers", workers, 0, ' or "auto"')
    for name, function in {"transform": transform, "batch_transform": batch_transform}.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be callable or None, got {function!r}")
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
    """
    number = operator.index(index)
    if not -length <= number < length:
        raise IndexError(f"batch index must be in range({-length}, {length}), got {number}")
    return number % length


def _check_integer(name: str, value: Any, least: int, otherwise: str = "") -> None:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer >= {least}{otherwise}, got {value!r}")
    if number < least:
        raise ValueError(f"{name} must be >= {least}{otherwise}, got {value!r}")


def _check_shard(shard: Any) -> None:
    try:
        index, count = (operator.index(number) for number in shard)
    except (TypeError, ValueError) as error:
        raise TypeError(f"shard must be (index, count), got {shard!r}") from error
    if not 0 <= index < count:
        raise ValueError(f"shard must be (index, count) with 0 <= index < count, got {shard!r}")
