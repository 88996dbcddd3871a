"""Calls of ``fit``, ``evaluate`` and ``predict``: their beginning, their batches and their end.

``tracked`` wraps a method of ``keras.Model``. Keras doesn't report that an exception or
``stop_training`` has ended a call, so the wrapper ends the readers that were created in it.
Callbacks report when the trainer starts, and each batch that it has finished. A ``FitCallback``
gets the arguments of its ``fit``. Everything but the watch for Ctrl-C runs in the thread of the
call.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import keras

from adapters.keras.internals import has_only_empty
from adapters.keras.progress import Call, Progress, Reader, running
from adapters.keras.sequence import SafeSequence
from adapters.keras.shutdown import calls_of_threads, released_by_interrupts
from adapters.structure import flatten

# Exceeds the batches that TensorFlow reads ahead plus the steps of one execution.
_LATEST = 1000

# Running calls in the main thread. There may be several, such as ``evaluate`` within ``fit``.
_of_the_main_thread: list[Call] = []


def tracked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``fit``, ``evaluate`` or ``predict``: readers end with the call."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return method(*args, **kwargs)  # Raises an error that says what is wrong.
        arguments = given.arguments
        with _notified(arguments if method.__name__ == "fit" else {}) as fit:
            this = Call(args[0] if args else arguments.get("self"), arguments.get("x"), fit=fit)
            if method.__name__ == "fit":
                this.epochs = 1
                with contextlib.suppress(TypeError):  # Keras raises it.
                    epochs = int(arguments.get("epochs", 1) - arguments.get("initial_epoch", 0))
                    this.epochs = max(1, epochs)
            if "callbacks" in signature.parameters:
                arguments["callbacks"], this.announced = _announce(arguments.get("callbacks")), True
            with _registered(this):
                return method(*given.args, **given.kwargs)

    call.is_tracked = True  # type: ignore[attr-defined]
    return call


def is_tracked(method: Callable[..., Any]) -> bool:
    """True if a method is a wrapper by ``tracked``, or another wrapper around one."""
    found = inspect.unwrap(method, stop=lambda each: hasattr(each, "is_tracked"))
    return hasattr(found, "is_tracked")


@contextlib.contextmanager
def _registered(this: Call) -> Iterator[None]:
    """Register a running call, and end its readers with it."""
    ended, thread, outer = threading.Event(), threading.current_thread(), running.calls
    in_main = thread is threading.main_thread()
    if in_main:
        _of_the_main_thread.append(this)
    elif not thread.daemon:
        calls_of_threads.add(ended)
    try:
        running.calls = (*outer, this)
        with _interruptible():
            yield
    finally:
        running.calls = outer
        if in_main:
            _of_the_main_thread.remove(this)
        for name, callbacks in this.hooks.items():
            vars(callbacks).pop(name, None)  # The list may be the user's, who may use it again.
        for reader in this.readers:
            reader.end()
        calls_of_threads.discard(ended)
        ended.set()


def _interruptible() -> AbstractContextManager[None]:
    """Return a context in which Ctrl-C ends a call that waits in TensorFlow for a batch."""
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    return released_by_interrupts(_interrupt)


def _interrupt() -> None:
    for call in list(_of_the_main_thread):
        for reader in list(call.readers):
            reader.interrupt()


# --- callbacks that get the arguments of fit ---


@dataclass(eq=False, repr=False)
class Fit:
    """One call of ``fit``.

    Args:
        model: The model that is trained.
        sequence: Training data; None if it is no ``SafeSequence``.
        validation: Validation data; None if it is no ``SafeSequence``.
        callbacks: The callbacks that are no ``FitCallback``, in order.
        fit_callbacks: The ``FitCallback`` instances, in order.
        epochs: Argument of ``fit``.
        initial_epoch: Argument of ``fit``; ``fit_begins`` may change it.
        steps_per_epoch: Argument of ``fit``.
        shuffle: Argument of ``fit``.
    """

    model: Any
    sequence: SafeSequence | None
    validation: SafeSequence | None
    callbacks: list[Any]
    fit_callbacks: list[Any]
    epochs: int
    initial_epoch: int
    steps_per_epoch: int | None
    shuffle: bool
    steps_done: int = 0
    """Batches to skip at the start of this epoch, with ``steps_per_epoch`` or an endless source.
    Otherwise the sequence knows the number."""
    samples: dict[int, int] = field(default_factory=dict)
    """Number of samples of the latest batches, by position over all epochs. Keras weights the loss
    of a batch by it."""

    def hands_out(self, place: int, batch: Any) -> None:
        """Record the number of samples of a batch."""
        shape = getattr(next(iter(flatten(batch)[0]), None), "shape", ())
        if shape:
            self.samples[place] = int(shape[0])
            self.samples.pop(place - _LATEST, None)


class FitCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Callback that is notified of the ``fit`` it is used in."""

    def fit_begins(self, fit: Fit) -> None:
        """Handle the start of the call, before Keras does anything."""

    def fit_ends(self, fit: Fit) -> None:
        """Handle the end of the call, normal or by an exception."""


@contextlib.contextmanager
def _notified(arguments: dict[str, Any]) -> Iterator[Fit | None]:
    """Move each ``FitCallback`` to the front, and notify it of the call before Keras starts.

    Args:
        arguments: Arguments of ``fit``; empty for the other calls.

    Yields:
        The call; None if it has no ``FitCallback``.
    """
    callbacks = arguments.get("callbacks")
    inside = getattr(callbacks, "callbacks", None)  # Of a CallbackList, which Keras also accepts.
    listed = list(_flat(callbacks if inside is None else inside))
    first = [each for each in listed if isinstance(each, FitCallback)]
    if not first:
        yield None
        return
    others = [each for each in listed if not isinstance(each, FitCallback)]
    if inside is None:
        arguments["callbacks"] = [*first, *others]
    else:
        inside[:] = [*first, *others]
    validation = arguments.get("validation_data")
    fit = Fit(
        model=arguments["self"],
        sequence=x if isinstance(x := arguments.get("x"), SafeSequence) else None,
        validation=validation if isinstance(validation, SafeSequence) else None,
        callbacks=others,
        fit_callbacks=first,
        epochs=arguments.get("epochs", 1),
        initial_epoch=arguments.get("initial_epoch", 0),
        steps_per_epoch=arguments.get("steps_per_epoch"),
        shuffle=bool(arguments.get("shuffle", True)),
    )
    try:
        for each in first:
            each.fit_begins(fit)
        arguments["initial_epoch"] = fit.initial_epoch
        yield fit
    finally:
        for each in first:
            each.fit_ends(fit)


def _flat(callbacks: Any) -> Iterator[Any]:
    if isinstance(callbacks, (list, tuple)):
        for each in callbacks:
            yield from _flat(each)
    elif callbacks is not None:
        yield callbacks


# --- callbacks that report what the trainer does ---


class BeginCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Callback that tells readers when the trainer starts.

    What was read before only built the model. On every backend, Keras calls these hooks after the
    build, in the thread of the call.
    """

    def on_train_begin(self, logs: Any = None) -> None:
        """Start the readers for ``fit``."""
        self._begin()

    def on_test_begin(self, logs: Any = None) -> None:
        """Start the readers for ``evaluate``, or for the validation of ``fit``."""
        self._begin()

    def on_predict_begin(self, logs: Any = None) -> None:
        """Start the readers for ``predict``."""
        self._begin()

    def _begin(self) -> None:
        # The readers of a validation belong to the enclosing fit.
        for call in running.calls:
            for reader in call.readers:
                reader.begin()


def _announce(callbacks: Any) -> Any:
    """Prepend a ``BeginCallback`` to the ``callbacks`` argument of a call."""
    inside = getattr(callbacks, "callbacks", None)
    if inside is None:
        return [BeginCallback(), *_flat(callbacks)]
    # A CallbackList, which fit passes to its evaluate.
    if not any(isinstance(each, BeginCallback) for each in inside):
        inside.insert(0, BeginCallback())
    return callbacks


def adapt_hooks(callbacks: keras.callbacks.CallbackList, kind: str, progress: Progress) -> None:
    """Adapt the hooks of batches in Keras's list of callbacks, until the running call ends.

    Hooks that no callback has are left out. Keras has another thread call them after every batch,
    and the trainer waits for the GIL: 120 of 360 us (a small model on JAX, two cores). And the
    sequence's reader is told of every finished batch: backends read ahead of the trainer.

    Args:
        callbacks: The list, which may belong to an enclosing ``fit``.
        kind: What begins: ``"train"``, ``"test"`` or ``"predict"``.
        progress: ``Progress`` of the sequence that the call reads.
    """
    call, own, stock = running.calls[-1], vars(callbacks), keras.callbacks.CallbackList
    reader = _reader(progress, kind == "train")
    batches = int(getattr(call.model, "steps_per_execution", 1))
    for moment in ("begin", "end"):
        name = "_".join(("on", kind, "batch", moment))
        own.pop(name, None)
        names = {name, name.replace("train_", "")}  # on_batch_end is the older name.
        is_stock = getattr(type(callbacks), name) is getattr(stock, name)
        empty = is_stock and all(has_only_empty(each, names) for each in callbacks.callbacks)
        hook = _do_nothing if empty else functools.partial(_call, weakref.ref(callbacks), name)
        if moment == "end" and reader is not None and reader.expect_reports(batches):
            hook = functools.partial(_report, weakref.ref(reader), batches, hook)
        elif not empty:
            continue
        own[name] = hook
        call.hooks[name] = callbacks


def _reader(progress: Progress, trains: bool) -> Reader | None:
    """Innermost reader of a sequence in the running calls; None if there is none.

    The reader of a validation may belong to the enclosing ``fit``.
    """
    readers = (each for call in reversed(running.calls) for each in reversed(call.readers))
    found = (each for each in readers if each.reads(progress) and each.trains == trains)
    return next(found, None)


def _report(reader: Any, batches: int, hook: Any, batch: int, logs: Any = None) -> None:
    there = reader()
    if there is not None:
        there.consume(batches)
    hook(batch, logs)


def _call(callbacks: Any, name: str, batch: int, logs: Any = None) -> None:
    there = callbacks()
    getattr(type(there), name)(there, batch, logs)


def _do_nothing(batch: int, logs: Any = None) -> None:
    pass
