"""Patches of Keras that make it read a ``SafeSequence`` through ``SafeSequenceAdapter``.

Keras reads every ``PyDataset`` through its ``PyDatasetAdapter``. That adapter permutes the batch
numbers with Python's global generator and asks for one batch after another, so with ``fit``'s
defaults nothing can be read ahead. ``install`` patches four things:

- ``get_data_adapter``. Keras's function runs first, so its argument checks and its sharding of the
  data of a distribution still apply. Only a ``PyDatasetAdapter`` of a ``SafeSequence`` is replaced.
- ``fit``, ``evaluate`` and ``predict``. Keras doesn't report that an exception or ``stop_training``
  has ended a call, so the wrappers end the adapters made in it. ``fit`` also notifies callbacks,
  see ``fits``.
- ``EpochIterator``, which then counts the batches of an epoch from the sequence's position.
- ``CallbackList``, which leaves out hooks of batches that no callback has and
  reports finished batches, see ``calls``.

If Keras has changed too much, or with ``ADAPTERS_STOCK_KERAS=1``, nothing in Keras is patched. Its
own adapter then reads a ``SafeSequence`` as a ``PyDataset`` without workers: the same batches, none
of them computed ahead of time.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import keras

from adapters.keras import internals
from adapters.keras.arguments import check_steps
from adapters.keras.calls import Call, adapt_hooks, announce, is_read_by_a_call, running
from adapters.keras.exit import calls_of_threads
from adapters.keras.fits import running_over, told
from adapters.keras.interrupts import released_by_interrupts
from adapters.keras.sequence import SafeSequence

if TYPE_CHECKING:
    from adapters.keras.adapter import SafeSequenceAdapter

log = logging.getLogger("adapters")

_CALLS = ("fit", "evaluate", "predict")
_BEGINNINGS = {
    "on_train_begin": "train",
    "on_epoch_begin": "train",
    "on_test_begin": "test",
    "on_predict_begin": "predict",
}


# Running calls in the main thread. There may be several, such as ``evaluate`` within ``fit``.
_of_the_main_thread: list[Call] = []


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
    # Imported late: its base class is Keras's, and may be missing.
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
        if (
            x is call.x and call.epochs and not call.readers
        ):  # Not for validation on the same sequence.
            adapter.fit = running_over(x)
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
        _wrap(name)
    for name, kind in _BEGINNINGS.items():
        _wrap_beginning(name, kind)
    if not internals.missing_to_continue():
        _count_from_where_it_stands(SafeSequenceAdapter)
    return True


def _wrap(name: str) -> None:
    """Wrap a method of ``keras.Model`` so that readers started in a call end with it."""
    method = _ends_what_it_began(getattr(keras.Model, name))
    if name == "fit":
        method = told(method)
    method.ends_what_it_began = True  # type: ignore[attr-defined]
    setattr(keras.Model, name, method)


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


def _is_wrapped(method: Callable[..., Any]) -> bool:
    """True if the method is our wrapper, or another wrapper around it."""
    found = inspect.unwrap(method, stop=lambda each: hasattr(each, "ends_what_it_began"))
    return hasattr(found, "ends_what_it_began")


def _notice_undone() -> None:
    """Warn if another package has removed the wrappers of ``install``, and wrap again.

    Called when an adapter is made outside of a call. Otherwise only code that bypasses
    ``keras.Model.fit`` does that.
    """
    undone = [name for name in _CALLS if not _is_wrapped(getattr(keras.Model, name))]
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
        _wrap(name)


def _count_from_where_it_stands(kind: type[SafeSequenceAdapter]) -> None:
    """Make Keras ask only for the rest of an epoch, with the right batch numbers.

    Also raise a batch's error instead of warning that the data ended early.
    """

    def enumerated(iterator: Any, stock: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        adapter, done = iterator.data_adapter, 0
        if type(adapter) is kind:
            internals.before_a_warning(iterator, adapter.raise_error)
            if keras.backend.backend() == "jax":
                internals.read_by(iterator, adapter.on_the_device)
            done = adapter.done
        return internals.rest_of_epoch(iterator, stock, done) if done else stock(iterator)

    internals.count_epochs_by(enumerated)


def _interruptible() -> AbstractContextManager[None]:
    """Return a context in which Ctrl-C ends a call that waits in TensorFlow for a batch."""
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    return released_by_interrupts(_interrupt)


def _interrupt() -> None:
    for call in list(_of_the_main_thread):
        for reader in list(call.readers):
            reader.interrupt()


def _ends_what_it_began(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return method(*args, **kwargs)  # Raises an error that says what is wrong.
        asked, outer = given.arguments, running.calls
        this = Call(args[0] if args else asked.get("self"), asked.get("x"))
        if method.__name__ == "fit":
            this.epochs = 1
            with contextlib.suppress(TypeError):  # Keras raises it.
                this.epochs = max(1, int(asked.get("epochs", 1) - asked.get("initial_epoch", 0)))
        if "callbacks" in signature.parameters:
            asked["callbacks"], this.announced = announce(asked.get("callbacks")), True
        ended, thread = threading.Event(), threading.current_thread()
        if thread is not threading.main_thread() and not thread.daemon:
            calls_of_threads.add(ended)
        if thread is threading.main_thread():
            _of_the_main_thread.append(this)
        try:
            running.calls = (*outer, this)
            with _interruptible():
                return method(*given.args, **given.kwargs)
        finally:
            running.calls = outer
            if thread is threading.main_thread():
                _of_the_main_thread.remove(this)
            this.put_back_hooks()
            for reader in this.readers:
                reader.end()
            calls_of_threads.discard(ended)
            ended.set()

    return call
