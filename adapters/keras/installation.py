"""Where this package stands in front of Keras, for instances of ``SafeSequence`` only.

Keras makes a ``PyDatasetAdapter`` of every ``PyDataset``, which permutes the batch numbers with
Python's global generator and asks for one batch after another, so that nothing can be read ahead at
``fit``'s defaults. ``install`` replaces the one function that makes adapters. Nothing in Keras says
that a ``fit`` is over which an exception or ``stop_training`` has ended, so its three callers are
wrapped too: the adapters that were made in a call end with it.

Where Keras has changed too much, or ``ADAPTERS_STOCK_KERAS=1`` is set, the stock adapter is used:
the same batches, none of them ahead of time.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import keras
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from adapters.keras.adapter import SafeSequenceAdapter
from adapters.keras.sequence import SafeSequence, calls_of_threads

log = logging.getLogger("adapters")

_NEEDED_ARGUMENTS = {"x", "y", "sample_weight", "steps_per_epoch", "shuffle", "class_weight"}
_NEEDED_METHODS = ("_standardize_batch", "_get_iterator", "get_tf_dataset", "on_epoch_end")
_CALLS = ("fit", "evaluate", "predict")


class _Call(threading.local):
    """The innermost of Keras's calls that runs in this thread."""

    adapters: list[SafeSequenceAdapter] | None = None


_call = _Call()


def install() -> bool:
    """Have Keras read instances of ``SafeSequence`` through ``SafeSequenceAdapter``.

    Returns:
        Whether it does.
    """
    stock = data_adapters.get_data_adapter
    if getattr(stock, "for_safe_sequence", False):
        return True
    if os.environ.get("ADAPTERS_STOCK_KERAS") == "1":
        return False
    signature = inspect.signature(stock)
    if not (
        set(signature.parameters) >= _NEEDED_ARGUMENTS
        and all(hasattr(PyDatasetAdapter, method) for method in _NEEDED_METHODS)
    ):
        log.warning(
            "Keras %s makes its data adapters in a way that is not known here: SafeSequence gives "
            "the right batches, but computes none ahead of time",
            keras.__version__,
        )
        return False

    @functools.wraps(stock)
    def get_data_adapter(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        x = given.get("x")
        unsupported = given.get("y") is not None or given.get("sample_weight") is not None
        if not isinstance(x, SafeSequence) or unsupported:
            return stock(*args, **kwargs)
        adapter = SafeSequenceAdapter(
            x,
            given.get("class_weight"),
            given.get("shuffle", False),
            given.get("steps_per_epoch"),
        )
        if _call.adapters is not None:
            _call.adapters.append(adapter)
        return adapter

    get_data_adapter.for_safe_sequence = True  # type: ignore[attr-defined]
    data_adapters.get_data_adapter = get_data_adapter
    for name in _CALLS:
        setattr(keras.Model, name, _ends_what_it_began(getattr(keras.Model, name)))
    return True


def _ends_what_it_began(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        began: list[SafeSequenceAdapter] = []
        outer, _call.adapters = _call.adapters, began
        ended, thread = threading.Event(), threading.current_thread()
        if thread is not threading.main_thread() and not thread.daemon:
            calls_of_threads.add(ended)
        try:
            return method(*args, **kwargs)
        finally:
            _call.adapters = outer
            for adapter in began:
                adapter.end()
            calls_of_threads.discard(ended)
            ended.set()

    return call
