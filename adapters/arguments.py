"""Checks of arguments that the faces towards the frameworks share."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from adapters.generators import generator_argument

_BATCH_OF = "batch of "


def check_integer(name: str, value: Any, least: int | None, otherwise: str = "") -> None:
    """Check that ``value`` is an integer, of a least size if there is one.

    Args:
        name: What the user calls it.
        value: What he gave.
        least: The smallest that is allowed.
        otherwise: What else is allowed, for the message: ``' or "auto"'``.

    Raises:
        TypeError: It is no integer.
        ValueError: It is too small.
    """
    bound = "" if least is None else f" >= {least}"
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer{bound}{otherwise}, got {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be{bound}{otherwise}, got {value!r}")


def check_transform(name: str, function: Any) -> None:
    """Check a ``transform`` or a ``batch_transform``.

    A function that can't be called with a sample, or a sample and ``rng``, never works.

    Raises:
        TypeError: It is no function, or requires something else.
    """
    if function is None:
        return
    if not callable(function):
        raise TypeError(f"{name} must be callable or None, got {function!r}")
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
        required = [
            each.name
            for each in signature.parameters.values()
            if each.default is each.empty
            and each.kind in (each.POSITIONAL_OR_KEYWORD, each.POSITIONAL_ONLY)
        ]
        remedy = f"; to unpack a {item}, write {name}=lambda {item}: f(*{item})"
        raise TypeError(
            f"{name} must take ({item}) or ({item}, rng), got {function!r} with the signature "
            f"{signature}: {error}{remedy if len(required) > 1 else ''}"
        ) from None


def check_thread_safe(thread_safe: Any) -> None:
    """Check ``thread_safe``.

    Raises:
        TypeError: It is neither a bool nor None.
    """
    if thread_safe is not None and not isinstance(thread_safe, (bool, np.bool_)):
        raise TypeError(f"thread_safe must be True, False or None, got {thread_safe!r}")


def check_on_error(on_error: Any) -> None:
    """Check ``on_error``.

    Raises:
        ValueError: It is none of what it may be.
    """
    if not (callable(on_error) or (isinstance(on_error, str) and on_error in ("raise", "skip"))):
        raise ValueError(f'on_error must be "raise", "skip" or callable, got {on_error!r}')


def check_shard(shard: Any) -> None:
    """Check ``shard``, which may be None or ``"auto"``.

    Raises:
        TypeError: It is something else, and no pair of integers.
        ValueError: Out of range.
    """
    if shard is None or (isinstance(shard, str) and shard == "auto"):
        return
    if not isinstance(shard, (tuple, list)):
        raise TypeError(f'shard must be (index, count), got {shard!r}; or "auto", or None')
    try:
        index, count = (operator.index(number) for number in shard)
    except (TypeError, ValueError) as error:
        raise TypeError(f"shard must be (index, count), got {shard!r}") from error
    if not 0 <= index < count:
        raise ValueError(f"shard must be (index, count) with 0 <= index < count, got {shard!r}")


def check_shard_size(size: int | None, shard: tuple[int, int]) -> None:
    """Check that every shard of so many samples has one.

    Raises:
        ValueError: It hasn't.
    """
    if size is not None and size < shard[1]:
        raise ValueError(
            f"shard must leave every shard a sample, got {shard[1]} shards of {size} samples"
        )


def samples_of(state: Any, size: int | None, kind: str) -> tuple[int, int] | None:
    """(epoch, samples) of what ``state_dict`` has returned; None where it counts batches.

    Args:
        state: What the user gives.
        size: Samples in the global order of an epoch; None if it has no end.
        kind: What has the samples, for the message.

    Raises:
        ValueError: Not a state of so many samples.
    """
    if not (isinstance(state, dict) and "samples" in state):
        return None
    try:
        epoch, samples = operator.index(state["epoch"]), operator.index(state["samples"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"state must be what state_dict() returned, got {state!r}") from error
    if epoch < 0 or samples < 0 or (size is not None and samples >= max(1, size)):
        allowed = ">= 0" if size is None else f"in range({size})"
        raise ValueError(
            f"state must have epoch >= 0 and samples {allowed}, got {state!r}: it belongs "
            f"to a {kind} of another data set"
        )
    return epoch, samples


def unit_of(samples: int) -> str:
    """What a state is counted in where the order depends on how large the batches are.

    Args:
        samples: In a batch of all shards together.
    """
    return f"{_BATCH_OF}{samples}"


def batches_of(state: Any, samples: int, size: int | None, kind: str) -> tuple[int, int] | None:
    """(epoch, batch) of what ``state_dict`` has returned; None where it says no batch's samples.

    With fewer shards, an epoch may have one batch more than here.

    Args:
        state: What the user gives.
        samples: In a batch of all shards together.
        size: Samples in the global order of an epoch; None if it has no end.
        kind: What has the batches, for the message.

    Raises:
        ValueError: It counts batches of another size, or is not a state of so many samples.
    """
    if not isinstance(state, dict):
        return None
    units = [key for key in state if str(key).startswith(_BATCH_OF)]
    if not units:
        return None
    if units != [unit_of(samples)]:
        raise ValueError(
            f"state must count batches of {samples} samples over all shards, as they have here, "
            f"got {state!r}: what is left of an epoch with bucket_by depends on that; go on with a "
            "batch_size and shards that make as many, or from the end of an epoch"
        )
    most = None if size is None else -(-size // samples)
    return position_of(state, lambda epoch: most, kind, units[0])


def position_of(
    state: Any, count: Callable[[int], int | None], kind: str, unit: str = "batch"
) -> tuple[int, int]:
    """(epoch, batch) of what ``state_dict`` has returned.

    Args:
        state: What the user gives.
        count: Batches in an epoch by its number; None where nobody knows.
        kind: What has the batches, for the message.
        unit: What the state calls them.

    Raises:
        ValueError: Not a state of a sequence, or loader, of this length.
    """
    try:
        epoch, batch = operator.index(state["epoch"]), operator.index(state[unit])
    except (KeyError, TypeError) as error:
        raise ValueError(f"state must be what state_dict() returned, got {state!r}") from error
    most = count(max(0, epoch))
    if epoch < 0 or batch < 0 or (batch and most is not None and batch >= most):
        bound = f"{unit} >= 0" if most is None else f"{unit} in range({most})"
        raise ValueError(
            f"state must have epoch >= 0 and {bound}, got {state!r}: it belongs to a {kind} of "
            "another length or batch_size"
        )
    return epoch, batch


class DaskClient(Protocol):
    """A ``dask.distributed.Client``, as far as it is asked for here."""

    def submit(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Have a worker call a function."""

    def scheduler_info(self, *args: Any, **kwargs: Any) -> Any:
        """What the scheduler knows of its workers."""


def is_cluster(value: Any) -> bool:
    """Whether it is the client of a Dask cluster, by what it can do."""
    return hasattr(value, "submit") and hasattr(value, "scheduler_info")


def check_client(name: str, client: Any) -> None:
    """Check that the client of a Dask cluster, as ``is_cluster`` knows it, waits for its answers.

    Raises:
        ValueError: It doesn't.
    """
    if getattr(client, "asynchronous", False):
        raise ValueError(
            f"{name} must be a Dask client that waits for its answers, got {client!r}, which is "
            "asynchronous: make another one with Client(address), in a thread without an event loop"
        )
