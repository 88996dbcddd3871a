"""Where this package stands in front of Keras, for instances of ``SafeSequence`` only.

Keras makes a ``PyDatasetAdapter`` of every ``PyDataset``, which permutes the batch numbers with
Python's global generator and asks for one batch after another, so that nothing can be read ahead at
``fit``'s defaults. ``install`` replaces the one function that makes adapters: Keras's own answers
first, and keeps its say in what it refuses and how it shards the data of a distribution; of what it
answers, only a ``PyDatasetAdapter`` of a ``SafeSequence`` is replaced. Nothing in Keras says
that a ``fit`` is over which an exception or ``stop_training`` has ended, so its three callers are
wrapped too: the adapters that were made in a call end with it.

Where Keras has changed too much, or ``ADAPTERS_STOCK_KERAS=1`` is set, the stock adapter is used:
the same batches, none of them ahead of time.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import keras

from adapters.keras import internals
from adapters.keras.interrupts import released_by_interrupts
from adapters.keras.sequence import SafeSequence, calls_of_threads

if TYPE_CHECKING:
    from adapters.keras.adapter import SafeSequenceAdapter

log = logging.getLogger("adapters")

_CALLS = ("fit", "evaluate", "predict")


class _Call(threading.local):
    """The innermost of Keras's calls that runs in this thread."""

    adapters: list[SafeSequenceAdapter] | None = None


_call = _Call()
# One for each call of Keras's that runs in the main thread, as ``evaluate`` does within ``fit``.
_of_the_main_thread: list[list[SafeSequenceAdapter]] = []


def install() -> bool:
    """Have Keras read instances of ``SafeSequence`` through ``SafeSequenceAdapter``.

    Returns:
        Whether it does.
    """
    stock = getattr(internals.data_adapters, "get_data_adapter", None)
    if getattr(stock, "for_safe_sequence", False):
        return True
    if os.environ.get("ADAPTERS_STOCK_KERAS") == "1":
        return False
    if missing := internals.missing():
        log.warning(
            "Keras %s makes its data adapters in a way that is not known here (%s): SafeSequence "
            "gives the right batches, but computes none ahead of time",
            keras.__version__,
            ", ".join(missing),
        )
        return False
    assert stock is not None
    # Only now, as its base is Keras's.
    from adapters.keras.adapter import SafeSequenceAdapter

    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def get_data_adapter(*args: Any, **kwargs: Any) -> Any:
        answer = stock(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        x = given.get("x")
        if not isinstance(x, SafeSequence) or type(answer) is not internals.PyDatasetAdapter:
            return answer
        steps = given.get("steps_per_epoch")
        _check_steps(x, steps)
        x._take_shard(internals.shard_of(answer))
        adapter = SafeSequenceAdapter(
            x, given.get("class_weight"), given.get("shuffle", False), steps
        )
        if _call.adapters is not None:
            _call.adapters.append(adapter)
        return adapter

    get_data_adapter.for_safe_sequence = True  # type: ignore[attr-defined]
    internals.data_adapters.get_data_adapter = get_data_adapter
    internals.by_own_adapter = False
    for name in _CALLS:
        setattr(keras.Model, name, _ends_what_it_began(getattr(keras.Model, name)))
    return True


def _interruptible() -> AbstractContextManager[None]:
    """Lets Ctrl-C end a call that waits for a batch in TensorFlow's own code."""
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    return released_by_interrupts(_interrupt)


def _interrupt() -> None:
    for began in list(_of_the_main_thread):
        for adapter in list(began):
            adapter.interrupt()


def _check_steps(sequence: SafeSequence, steps: int | None) -> None:
    """Check that Keras knows where an epoch ends.

    Raises:
        ValueError: Nobody says so.
    """
    if steps is None and sequence.num_batches is None:
        raise ValueError(
            "steps_per_epoch must be given to fit (validation_steps for its validation_data, steps "
            "to evaluate and predict), as the SafeSequence's source has no end: its num_batches is "
            "None"
        )


def _ends_what_it_began(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        began: list[SafeSequenceAdapter] = []
        outer, _call.adapters = _call.adapters, began
        ended, thread = threading.Event(), threading.current_thread()
        if thread is not threading.main_thread() and not thread.daemon:
            calls_of_threads.add(ended)
        if thread is threading.main_thread():
            _of_the_main_thread.append(began)
        try:
            with _interruptible():
                return method(*args, **kwargs)
        finally:
            _call.adapters = outer
            if thread is threading.main_thread():
                _of_the_main_thread.pop()
            for adapter in began:
                adapter.end()
            calls_of_threads.discard(ended)
            ended.set()

    return call
