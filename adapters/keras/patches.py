"""Patches of Keras that make it read a ``SafeSequence`` through ``SafeSequenceAdapter``.

Keras reads every ``PyDataset`` through its ``PyDatasetAdapter``, which asks for one batch after
another, in an order that it draws itself, so nothing can be read ahead. ``install`` patches:

- ``fit``, ``evaluate`` and ``predict``, so that the readers that were created in a call end with
  it, and a ``FitCallback`` gets the arguments of its ``fit``.
- ``get_data_adapter``. Keras's function runs first, so its argument checks and its sharding of the
  data of a distribution still apply. Only a ``PyDatasetAdapter`` of a ``SafeSequence`` is replaced.
- ``CallbackList``, which reports when the trainer starts and each batch that it has finished, and
  leaves out hooks of batches that no callback has.
- ``EpochIterator``, which then counts the batches of an epoch from the sequence's position.
- ``PyDatasetAdapter``, which reads a ``StockView`` if it is made for a ``SafeSequence``, as it is
  if Keras has changed too much, with ``ADAPTERS_STOCK_KERAS=1``, or if other code has restored
  ``get_data_adapter``. If Keras has no such class any more, ``fit`` passes the ``StockView``.

Data sets are pickled for worker processes without Keras, whose import takes seconds there: its
``PyDataset`` class is replaced by a plain class, and a ``SafeSequence`` by a proxy that imports
Keras on first use.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import keras

from adapters.engine.reducers import IMPORTERS, SETTINGS, Later, reducers
from adapters.images import pillow
from adapters.keras import internals
from adapters.keras.adapter import SafeSequenceAdapter
from adapters.keras.progress import calls_here, running
from adapters.keras.reading import StockView
from adapters.keras.sequence import SafeSequence
from adapters.keras.shutdown import released_by_interrupts
from adapters.sources import base_without_keras, reduce_iterator

log = logging.getLogger("adapters")

_CALLS = ("fit", "evaluate", "predict")
# Hooks that Keras calls after it has built the model, with the kind of batches that follow.
_BEGINNINGS = {
    "on_train_begin": "train",
    "on_epoch_begin": "train",
    "on_test_begin": "test",
    "on_predict_begin": "predict",
}


class Call:
    """One running ``fit`` (which ``trains``), ``evaluate`` or ``predict``.

    Attributes:
        sequence: Argument ``x``; None if it is no ``SafeSequence``. ``validation`` likewise.
        initial_epoch: Argument of ``fit``; ``fit_begins`` may change it.
        fit_callbacks: The ``FitCallback`` instances of a ``fit``, which run before ``callbacks``.
        readers: Adapters that were created in the call. They end with it.
        thread: Thread that makes the call.
        ended: Set once the readers have ended.
        steps_done: Steps of this epoch that ``Resume`` skips if the sequence doesn't know its end.
    """

    def __init__(self, model: Any, arguments: dict[str, Any], trains: bool) -> None:
        self.model = model
        self.trains = trains
        self.sequence = _sequence(arguments.get("x"))
        held_out = arguments.get("validation_data")
        if isinstance(held_out, (tuple, list)) and held_out:  # (x,), or (x, None) of a sequence.
            held_out = held_out[0]
        self.validation = _sequence(held_out)
        self.epochs = arguments.get("epochs", 1)
        self.initial_epoch = arguments.get("initial_epoch", 0)
        self.steps_per_epoch = _steps(arguments)
        self.shuffle = bool(arguments.get("shuffle", True))
        self.readers: list[SafeSequenceAdapter] = []
        self.thread = threading.current_thread()
        self.ended = threading.Event()
        self.steps_done = 0
        self._hooks: dict[str, dict[str, Any]] = {}
        given = arguments.get("callbacks")
        if isinstance(given, keras.callbacks.CallbackList):
            listed = given.callbacks
        else:
            # Keras inspects the hooks of a flat list only, and calls others in another thread.
            listed = [each for each in keras.tree.flatten(given or []) if each is not None]
            if given is not None:
                arguments["callbacks"] = listed
        self.fit_callbacks = [each for each in listed if trains and isinstance(each, FitCallback)]
        self.callbacks = [each for each in listed if each not in self.fit_callbacks]
        listed[:] = [*self.fit_callbacks, *self.callbacks]

    @property
    def most_epochs(self) -> int:
        """Largest number of epochs that the call reads."""
        with contextlib.suppress(TypeError):  # Keras raises it.
            return max(1, int(self.epochs - self.initial_epoch))
        return 1

    def adapt_hooks(self, callbacks: keras.callbacks.CallbackList, kind: str) -> None:
        """Adapt the hooks of batches in Keras's list of callbacks, until the call ends.

        Hooks that no callback has are left out: Keras has another thread call them, and the trainer
        waits for the GIL, 120 of 360 us (a small model on JAX, two cores). And the sequence's
        reader is told of every finished batch. The list may belong to an enclosing ``fit``.
        """
        progress, own = self.sequence._progress, vars(callbacks)
        stock = keras.callbacks.CallbackList
        # The reader of a validation may belong to the enclosing fit.
        readers = [each for call in calls_here() for each in call.readers if each.reads(progress)]
        reader = next((each for each in readers[::-1] if each.trains == (kind == "train")), None)
        together = getattr(self.model, "steps_per_execution", 1)
        batches = 1 if together == "auto" else int(together)  # Keras 3 refuses "auto" itself.
        if reader is not None and not reader.expect_reports(batches):
            reader = None
        for moment in ("begin", "end"):
            name = "_".join(("on", kind, "batch", moment))
            own.pop(name, None)
            names = {name, name.replace("train_", "")}  # on_batch_end is the older name.
            empty = getattr(type(callbacks), name) is getattr(stock, name) and all(
                internals.has_only_empty(each, names) for each in callbacks.callbacks
            )
            hook = None if empty else getattr(callbacks, name)
            own[name] = functools.partial(
                _report_and_call, reader if moment == "end" else None, batches, hook
            )
            self._hooks[name] = own

    def end(self) -> None:
        """End the call and its readers, normally or by an exception."""
        if self in running:  # Ctrl-C may have come first.
            running.remove(self)
        for name, own in self._hooks.items():
            own.pop(name, None)  # The list may be the user's, who may use it again.
        for reader in self.readers:
            reader.end()
        self.readers.clear()  # They refer to the call.


def _steps(arguments: dict[str, Any]) -> Any:
    """Return ``steps_per_epoch``; None for 0 and -1 too, which Keras reads as one pass."""
    steps = arguments.get("steps_per_epoch")
    return steps if steps is not None and steps > 0 else None


def _sequence(value: Any) -> Any:
    return value if isinstance(value, SafeSequence) else None


def _report_and_call(
    reader: SafeSequenceAdapter | None, batches: int, hook: Any, batch: int, logs: Any = None
) -> None:
    """Report finished batches to a reader, and call Keras's hook; both may be None."""
    if reader is not None:
        reader.consume(batches)
    if hook is not None:
        hook(batch, logs)


class FitCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Callback that is notified of the ``fit`` it is used in, before Keras is, and of its end."""

    def fit_begins(self, fit: Call) -> None:
        """Handle the start of the call."""

    def fit_ends(self, fit: Call) -> None:
        """Handle the end of the call, normal or by an exception."""


# --- fit, evaluate and predict ---


def _tracked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``fit``, ``evaluate`` or ``predict``: readers end with the call."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if internals.by_keras_adapter():
            views = {name: _view(value) for name, value in kwargs.items()}
            return method(*map(_view, args), **views)
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return method(*args, **kwargs)  # Raises an error that says what is wrong.
        arguments = given.arguments
        model = args[0] if args else arguments.get("self")
        this = Call(model, arguments, trains=method.__name__ == "fit")
        with contextlib.ExitStack() as at_the_end:
            for each in this.fit_callbacks:
                at_the_end.callback(each.fit_ends, this)
            for each in this.fit_callbacks:
                each.fit_begins(this)
            if this.fit_callbacks:
                arguments["initial_epoch"] = this.initial_epoch
            at_the_end.callback(this.ended.set)
            at_the_end.callback(this.end)
            running.append(this)
            if keras.backend.backend() == "tensorflow":  # Others wait for batches in Python.
                at_the_end.enter_context(released_by_interrupts(_interrupt))
            return method(*given.args, **given.kwargs)

    call.is_tracked = True  # type: ignore[attr-defined]
    return call


def _interrupt() -> None:
    for call in list(running):
        if call.thread is threading.main_thread():
            for reader in list(call.readers):
                reader.interrupt()


_warned: set[str] = set()


def _warn_once(warning: str, *values: str) -> None:
    """Warn that other code has undone a patch, once per kind."""
    if warning not in _warned:
        _warned.add(warning)
        log.warning(warning, *values)


def _view(value: Any) -> Any:
    """Replace a sequence, also in ``validation_data=(sequence,)``, by its ``StockView``."""
    if type(value) in (tuple, list):
        return type(value)(map(_view, value))
    if not isinstance(value, SafeSequence):
        return value
    if internals.patched:
        _warn_once(
            "Keras reads a SafeSequence by its own adapter, as other code has restored its "
            "get_data_adapter since adapters.keras was imported: the batches are the same, none "
            "of them is computed ahead of time; import adapters.keras before the other package"
        )
    return StockView(value)


# --- installation ---


def install() -> None:
    """Make Keras read instances of ``SafeSequence`` through ``SafeSequenceAdapter``."""
    missing = internals.missing()
    is_stock = os.environ.get("ADAPTERS_STOCK_KERAS") == "1"
    if missing and not is_stock:
        log.warning(
            "Keras %s has other private names than those known here (%s): it reads a SafeSequence "
            "as a PyDataset without workers, with the same batches, none of them ahead of time; "
            "docs/keras-internals.md names versions that read ahead",
            keras.__version__,
            ", ".join(missing),
        )
    for name in _CALLS:
        setattr(keras.Model, name, _tracked(getattr(keras.Model, name)))
    if "PyDatasetAdapter" not in missing:
        _view_in_keras_adapter()
    if missing or is_stock:
        return
    _patch_get_data_adapter()
    for name, kind in _BEGINNINGS.items():
        _wrap_beginning(name, kind)
    if not internals.missing_to_continue():
        internals.count_from_position(SafeSequenceAdapter)


def _patch_get_data_adapter() -> None:
    stock = internals.data_adapters.get_data_adapter
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def get_data_adapter(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        arguments = given.arguments
        x = arguments.get("x")
        if not isinstance(x, SafeSequence):
            return stock(*args, **kwargs)
        arguments["x"] = StockView(x)
        answer = stock(*given.args, **given.kwargs)
        if type(answer) is not internals.PyDatasetAdapter:
            return answer
        steps = _steps(arguments)
        if steps is None and x.num_batches is None:
            raise ValueError(
                "steps_per_epoch must be given to fit (validation_steps for its validation_data, "
                "steps to evaluate and predict), as the SafeSequence's source has no end: its "
                "num_batches is None"
            )
        call = next(reversed(calls_here()), None)
        if call is None:
            _warn_of_lost_wrappers()
        if x._with_length()._plan.check_length():  # TensorFlow reads before the first epoch begins.
            x._engine.refresh()
        part = internals.shard_of(answer)
        if part is None and internals.tensorflow_shards(call and call.model):
            part = 0, 1
        x._take_shard(part)
        if part is None:
            x._shard.notice()
        weights, shuffle = arguments.get("class_weight"), arguments.get("shuffle", False)
        adapter = SafeSequenceAdapter(x, weights, shuffle, steps, call)
        if call is not None:
            call.readers.append(adapter)
        return adapter

    internals.data_adapters.get_data_adapter = get_data_adapter
    internals.patched = True


def _view_in_keras_adapter() -> None:
    """Make Keras's own adapter read the ``StockView`` of a sequence, whoever makes the adapter."""
    stock = internals.PyDatasetAdapter.__init__

    @functools.wraps(stock)
    def init(self: Any, x: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, _view(x), *args, **kwargs)

    internals.PyDatasetAdapter.__init__ = init


def _wrap_beginning(name: str, kind: str) -> None:
    """Wrap a hook of ``CallbackList``: what was read before only served to build the model."""
    stock = getattr(keras.callbacks.CallbackList, name)

    @functools.wraps(stock)
    def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls = calls_here()
        for call in calls:  # The readers of a validation belong to the enclosing fit.
            for reader in call.readers:
                reader.trains_now = True
        found = stock(self, *args, **kwargs)
        if calls and calls[-1].sequence is not None:
            calls[-1].adapt_hooks(self, kind)
        return found

    setattr(keras.callbacks.CallbackList, name, hook)


def _warn_of_lost_wrappers() -> None:
    """Warn if another package has removed the wrappers of the calls."""
    lost = [name for name in _CALLS if not hasattr(getattr(keras.Model, name), "is_tracked")]
    if lost:
        _warn_once(
            "keras.Model has lost what adapters.keras has put around %s, as another package has "
            "put back what was there before: without it, Ctrl-C may hang on TensorFlow, and the "
            "position run ahead of the trainer there; workers may outlive a call, and Resume and "
            "Watch don't run; import adapters.keras before the other package",
            ", ".join(lost),
        )


# --- pickling for worker processes ---


def _reduce(value: Any) -> Any:
    if value is keras.utils.PyDataset:
        return base_without_keras, ()
    if type(value) is SafeSequence:
        return Later, (SafeSequence.__module__, SafeSequence.__name__), value.__getstate__()
    return NotImplemented


reducers += (_reduce, reduce_iterator)
IMPORTERS["mxnet"] = "adapters.gluon"  # A transform may use it; NumPy may lack names it needs.
SETTINGS |= pillow.SETTINGS
SETTINGS |= {
    ("keras", f"config.{name}", f"config.set_{name}")
    for name in ("floatx", "epsilon", "image_data_format")
}
SETTINGS |= {
    ("torch", "get_default_dtype", "set_default_dtype"),
    ("jax", "config.jax_enable_x64", "config.update", "jax_enable_x64"),
}
