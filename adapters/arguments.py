"""Argument checks shared by the front ends."""

from __future__ import annotations

import contextlib
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from adapters.generators import generator_argument

_MOST_LISTED = 8  # Names in an error.


def check_integer(name: str, value: Any, least: int | None, otherwise: str = "") -> int:
    """Return an integer as Python's, if it is one, and at least ``least`` if that is given.

    ``otherwise`` names other allowed values for the message: ``' or "auto"'``.
    """
    bound = "" if least is None else f" >= {least}"
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be an integer{bound}{otherwise}, got {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be{bound}{otherwise}, got {value!r}")
    return number


def check_above(name: str, value: Any, bound: float, unit: str = "") -> None:
    """Check a number above ``bound``, which is in ``unit``, such as " seconds"."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number > {bound}{unit}, got {value!r}")
    if not value > bound:
        raise ValueError(f"{name} must be > {bound}{unit}, got {value!r}")


def check_flag(name: str, flag: Any) -> None:
    """Check an argument that is True or False, or 1 or 0."""
    if not isinstance(flag, (bool, np.bool_, int, np.integer)) or flag not in (0, 1):
        raise TypeError(f"{name} must be True or False, got {flag!r}")


def check_function(name: str, function: Any, item: str) -> None:
    """Check a user's function: it takes an ``item``, such as "sample", and perhaps ``rng``."""
    if function is None:
        return
    if not callable(function):
        raise TypeError(f"{name} must be callable or None, got {function!r}")
    argument = generator_argument(function)
    # A decorator that supplies ``rng`` hides it.
    if (signature := _signature_of(function, argument is not None)) is None:
        return
    try:
        if argument == "second":
            signature.bind(None, None)
        else:
            signature.bind(None, **({"rng": None} if argument else {}))
    except TypeError as error:
        required = [
            each.name
            for each in signature.parameters.values()
            if each.default is each.empty
            and each.kind in (each.POSITIONAL_OR_KEYWORD, each.POSITIONAL_ONLY)
        ]
        remedy = f"; to unpack a {item}, write {name}=lambda {item}: f(*{item})"
        if item not in ("sample", "batch"):
            remedy = "; give it other arguments by functools.partial"
        raise TypeError(
            f"{name} must take ({item}) or ({item}, rng), got {function!r} with the signature "
            f"{signature}: {error}{remedy if len(required) > 1 else ''}"
        ) from None


def _signature_of(function: Any, follow_wrapped: bool = True) -> inspect.Signature | None:
    with contextlib.suppress(TypeError, ValueError):  # Some callables written in C have none.
        return inspect.signature(function, follow_wrapped=follow_wrapped)
    return None


def check_thread_safe(thread_safe: Any) -> None:
    """Check ``thread_safe``, or raise ``TypeError``."""
    if thread_safe is not None and not isinstance(thread_safe, (bool, np.bool_)):
        raise TypeError(f"thread_safe must be True, False or None, got {thread_safe!r}")


def check_on_error(on_error: Any) -> None:
    """Check ``on_error``, or raise ``TypeError`` or ``ValueError``."""
    if not callable(on_error):
        if not (isinstance(on_error, str) and on_error in ("raise", "skip")):
            raise ValueError(f'on_error must be "raise", "skip" or callable, got {on_error!r}')
        return
    if (signature := _signature_of(on_error)) is None:
        return
    try:
        signature.bind(None, 0)
    except TypeError as error:
        raise TypeError(
            f"on_error must take (exception, sample_number), got {on_error!r} with the signature "
            f"{signature}: {error}"
        ) from None


def check_shard(shard: Any) -> None:
    """Check ``shard``, which may be None or ``"auto"``; or raise ``TypeError``, ``ValueError``."""
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
    """Check that every shard has at least one sample, or raise ``ValueError``."""
    if size is not None and size < shard[1]:
        raise ValueError(
            f"shard must leave every shard a sample, got {shard[1]} shards of {size} samples"
        )


def position_of(
    state: Any,
    count: Callable[[int], int | None],
    kind: str,
    unit: str = "batch",
    other: str = "length or batch_size",
) -> tuple[int, int]:
    """Read (epoch, batch) from a state that has its batch under the key ``unit``.

    ``count`` returns the number of batches in an epoch, or None if it is unknown. For the message,
    ``kind`` is the kind of object that the state is for, and ``other`` what differs in its own.
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
            f"another {other}"
        )
    return epoch, batch


def index_of(
    index: Any, length: int | None, name: str = "batch index", kinds: str = "an integer"
) -> int:
    """Number for a list-style index. Without a length, negative indexes are refused."""
    try:
        number = operator.index(index)
    except TypeError:
        raise TypeError(f"{name} must be {kinds}, got {index!r}") from None
    if length is None:
        if number < 0:
            raise IndexError(f"{name} must be >= 0 as their number isn't known, got {number}")
        return number
    if not -length <= number < length:
        raise IndexError(f"{name} must be in range({-length}, {length}), got {number}")
    return number % length


class DaskClient(Protocol):
    """The part of ``dask.distributed.Client`` that is checked here."""

    def submit(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a function on a worker."""

    def scheduler_info(self, *args: Any, **kwargs: Any) -> Any:
        """Return the scheduler's information about its workers."""


def is_cluster(value: Any) -> bool:
    """True if ``value`` has the methods of a Dask client."""
    return hasattr(value, "submit") and hasattr(value, "scheduler_info")


def check_client(name: str, client: Any) -> None:
    """Check that the client of a Dask cluster is synchronous, or raise ``ValueError``."""
    if getattr(client, "asynchronous", False):
        raise ValueError(
            f"{name} must be a Dask client that waits for its answers, got {client!r}, which is "
            "asynchronous: make another one with Client(address), in a thread without an event loop"
        )


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: "1 file", "2,000 files"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def listed(names: Sequence[Any]) -> str:
    """List the first names, for an error."""
    shown = ", ".join(map(repr, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    return f"[{shown}, and {more} more]" if more > 0 else f"[{shown}]"
