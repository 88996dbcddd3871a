"""Patches of Keras that make it read a ``SafeSequence`` through ``SafeSequenceAdapter``.

Keras reads every ``PyDataset`` through its ``PyDatasetAdapter``. That adapter permutes the batch
numbers with Python's global generator and asks for one batch after another, so with ``fit``'s
defaults nothing can be read ahead. ``install`` patches four things:

- ``get_data_adapter``. Keras's function runs first, so its argument checks and its sharding of the
  data of a distribution still apply. Only a ``PyDatasetAdapter`` of a ``SafeSequence`` is replaced.
- ``fit``, ``evaluate`` and ``predict``, see ``calls``. The wrappers end the adapters made in them.
- ``EpochIterator``, which then counts the batches of an epoch from the sequence's position.
- ``CallbackList``, which leaves out hooks of batches that no callback has and reports finished
  batches, see ``calls``.

If Keras has changed too much, or with ``ADAPTERS_STOCK_KERAS=1``, nothing in Keras is patched. Its
own adapter then reads a ``SafeSequence`` as a ``PyDataset`` without workers: the same batches, none
of them computed ahead of time.

Data sets are pickled for worker processes without Keras, whose import takes seconds there: its
``PyDataset`` class is replaced by a plain class, and a ``SafeSequence`` by a proxy that imports
Keras on first use.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from typing import Any

import keras

from adapters.engine.serialization import IMPORTERS, Later, reducers
from adapters.keras import internals
from adapters.keras.arguments import check_steps
from adapters.keras.calls import adapt_hooks, is_tracked, tracked
from adapters.keras.progress import Call, is_read_by_a_call, running
from adapters.keras.sequence import SafeSequence
from adapters.sources import reduce_iterator
from adapters.sources.sequence import PyDatasetWithoutKeras

log = logging.getLogger("adapters")

_CALLS = ("fit", "evaluate", "predict")
_BEGINNINGS = {
    "on_train_begin": "train",
    "on_epoch_begin": "train",
    "on_test_begin": "test",
    "on_predict_begin": "predict",
}


def install() -> bool:
    """Make Keras read instances of ``SafeSequence`` through ``SafeSequenceAdapter``.

    Returns:
        True if it does.
    """
    stock = getattr(internals.data_adapters, "get_data_adapter", None)
    if getattr(stock, "for_safe_sequence", False):
        return True
    if os.environ.get("ADAPTERS_STOCK_KERAS") == "1":
        return False
    if missing := internals.missing():
        log.warning(
            "Keras %s has other private names than those known here (%s): it reads a SafeSequence "
            "as a PyDataset without workers, with the same batches, none of them ahead of time; "
            "docs/keras-internals.md names versions that read ahead",
            keras.__version__,
            ", ".join(missing),
        )
        return False
    assert stock is not None
    # Imported late: it needs the names that may be missing.
    from adapters.keras.adapter import SafeSequenceAdapter

    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def get_data_adapter(*args: Any, **kwargs: Any) -> Any:
        answer = stock(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        x = given.get("x")
        if not isinstance(x, SafeSequence) or type(answer) is not internals.PyDatasetAdapter:
            return answer
        steps = given.get("steps_per_epoch") or None  # Keras treats 0 as None.
        check_steps(x.num_batches, steps)
        if not running.calls:
            _notice_undone()
        x._settled()
        part = internals.shard_of(answer)
        call = running.calls[-1] if running.calls else Call()
        if part is None and internals.tensorflow_shards(call.model):
            part = 0, 1
        x._take_shard(part)
        if part is None:
            x._shard.notice()
        adapter = SafeSequenceAdapter(
            x, given.get("class_weight"), given.get("shuffle", False), steps
        )
        if not call.announced:
            adapter.begin()
        # Not for validation on the same sequence.
        if x is call.x and call.epochs and not call.readers:
            adapter.fit = call.fit
            adapter.expect(call.epochs)
            adapter.inspect(call.model)
        if is_read_by_a_call(x._progress):
            adapter.read_aside()
        call.readers.append(adapter)
        return adapter

    get_data_adapter.for_safe_sequence = True  # type: ignore[attr-defined]
    internals.data_adapters.get_data_adapter = get_data_adapter
    internals.by_own_adapter = False
    for name in _CALLS:
        setattr(keras.Model, name, tracked(getattr(keras.Model, name)))
    for name, kind in _BEGINNINGS.items():
        _wrap_beginning(name, kind)
    if not internals.missing_to_continue():
        internals.count_from_position(SafeSequenceAdapter)
    return True


def _wrap_beginning(name: str, kind: str) -> None:
    """Wrap a hook of ``CallbackList`` that is called before batches of a kind are."""
    stock = getattr(keras.callbacks.CallbackList, name)

    @functools.wraps(stock)
    def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = stock(self, *args, **kwargs)
        x = running.calls[-1].x if running.calls else None
        if isinstance(x, SafeSequence):
            adapt_hooks(self, kind, x._progress)
        return found

    setattr(keras.callbacks.CallbackList, name, hook)


def _notice_undone() -> None:
    """Warn if another package has removed the wrappers of ``install``, and wrap again.

    Called when an adapter is made outside of a call. Otherwise only code that bypasses
    ``keras.Model.fit`` does that.
    """
    undone = [name for name in _CALLS if not is_tracked(getattr(keras.Model, name))]
    if not undone:
        return
    log.warning(
        "keras.Model has lost what adapters.keras has put around %s, as another package has put "
        "back what was there before: in this call, Ctrl-C may hang on TensorFlow, and the position "
        "move by whole epochs there; workers may outlive it, and Resume and Watch don't run. It is "
        "there again from the next call on; import adapters.keras before the other package",
        ", ".join(undone),
    )
    for name in undone:
        setattr(keras.Model, name, tracked(getattr(keras.Model, name)))


# --- pickling for worker processes ---


def _plain_class() -> type:
    return PyDatasetWithoutKeras


def _reduce(value: Any) -> Any:
    if value is keras.utils.PyDataset:
        return _plain_class, ()
    if type(value) is SafeSequence:
        return Later, (SafeSequence.__module__, SafeSequence.__name__), value.__getstate__()
    return NotImplemented


reducers += (_reduce, reduce_iterator)
IMPORTERS["mxnet"] = "adapters.gluon"  # A transform may use it; NumPy may lack names it needs.
