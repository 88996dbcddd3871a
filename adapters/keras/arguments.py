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
    """Check that a subclass overrides nothing that ``fit`` would not ask it for.

    Raises:
        TypeError: It does.
    """
    for name in _FIXED:
        if getattr(kind, name) is not getattr(base, name):
            raise TypeError(
                f"a subclass of SafeSequence must not override {name}, as {kind.__name__} does: "
                "fit reads what the constructor was given, and would pass it by. Give it transform "
                "or batch_transform, or workers; or make the class a keras.utils.PyDataset and "
                "wrap it: SafeSequence(dataset)"
            )


def fixed(name: str, value: Any) -> AttributeError:
    """The error for an attribute that only the constructor takes."""
    return AttributeError(
        f"{name} is fixed once a SafeSequence is there: make another one with "
        f"SafeSequence(..., {name}={value!r})"
    )


def check_whole_batches(
    source: Any,
    *,
    endless: bool,
    transform: Any,
    drop_remainder: Any,
    on_error: Any,
    shuffle: Any,
) -> None:
    """Check what may be asked of a source that gives whole batches.

    Raises:
        ValueError: More than that.
    """
    name = type(source).__name__
    if transform is not None:
        raise ValueError(
            f"transform works on single samples, and source gives whole batches ({name}): use "
            "batch_transform"
        )
    if drop_remainder or on_error != "raise":
        raise ValueError(
            f"drop_remainder and on_error are about single samples, and source gives whole batches "
            f"({name}): leave them out, got drop_remainder={drop_remainder!r}, "
            f"on_error={on_error!r}"
        )
    if endless and shuffle:
        raise ValueError(
            f"shuffle needs a source with an end, got {shuffle!r} for {name}, whose num_batches is "
            "None: shuffle in the source, or give it a __len__"
        )


def check_steps(batches: int | None, steps: int | None) -> None:
    """Check that Keras knows where an epoch ends.

    Args:
        batches: In an epoch of the sequence; None if its source has no end.
        steps: In an epoch of Keras, if somebody says so.

    Raises:
        ValueError: Nobody does.
    """
    if steps is None and batches is None:
        raise ValueError(
            "steps_per_epoch must be given to fit (validation_steps for its validation_data, steps "
            "to evaluate and predict), as the SafeSequence's source has no end: its num_batches is "
            "None"
        )


def index_of(index: Any, length: int, endless: bool = False) -> int:
    """A batch number from an index as lists take it.

    Raises:
        IndexError: Out of range.
        TypeError: No integer.
    """
    try:
        number = operator.index(index)
    except TypeError:
        raise TypeError(f"batch index must be an integer, got {index!r}") from None
    if endless and number < 0:
        raise IndexError(f"batch index must be >= 0 as the source has no end, got {number}")
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
