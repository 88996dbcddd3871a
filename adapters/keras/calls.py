"""Registry of the running calls of Keras in this thread, and of the sequences that they read.

While a ``fit`` reads a sequence, only the training moves its position. A validation over the same
sequence, or a callback that evaluates it or loops over it, is a secondary pass (``aside``). Each
thread has its own registry.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Protocol

import keras

from adapters.keras.internals import has_only_empty
from adapters.keras.progress import Progress


class Reader(Protocol):
    """Object that reads a sequence for a call, such as ``SafeSequenceAdapter``."""

    trains: bool
    """True if ``fit`` trains on what it reads."""

    def reads(self, progress: Progress) -> bool:
        """True if the call is running and reads the sequence with this ``Progress``."""

    def begin(self) -> None:
        """Treat what is read from now on as consumed by the trainer."""

    def expect_reports(self, batches: int) -> bool:
        """Prepare for a call of ``consume`` after every so many batches; False if it isn't."""

    def consume(self, batches: int) -> None:
        """Count batches that the trainer has finished."""

    def interrupt(self) -> None:
        """Release a reader that waits for a batch. May be called from any thread."""

    def end(self) -> None:
        """End the pass because the call is over."""


class Call:
    """One running ``fit``, ``evaluate`` or ``predict``.

    Args:
        model: The model that is called.
        x: Argument ``x``.
        epochs: Number of epochs that ``fit`` trains; 0 for the other calls.
        announced: True if a ``BeginCallback`` reports when the trainer starts.
    """

    def __init__(
        self,
        model: Any = None,
        x: Any = None,
        epochs: int = 0,
        announced: bool = False,
    ) -> None:
        self.model = model
        self.x = x
        self.epochs = epochs
        self.announced = announced
        self.readers: list[Reader] = []
        """Readers that were created in the call. They end with it."""
        self.hooks: dict[str, keras.callbacks.CallbackList] = {}
        """Hooks that ``adapt_hooks`` has replaced, by name."""

    def put_back_hooks(self) -> None:
        """Undo ``adapt_hooks``: the list may be the user's, who may use or copy it again."""
        for name, callbacks in self.hooks.items():
            vars(callbacks).pop(name, None)


class _Running(threading.local):
    calls: tuple[Call, ...] = ()


running = _Running()
"""Running calls of this thread, innermost last."""


def is_read_by_a_call(progress: Progress) -> bool:
    """True if a running call of this thread reads the sequence with this ``Progress``."""
    return any(reader.reads(progress) for call in running.calls for reader in call.readers)


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


def announce(callbacks: Any) -> Any:
    """Prepend a ``BeginCallback`` to the ``callbacks`` argument of a call."""
    inside = getattr(callbacks, "callbacks", None)
    if inside is not None:  # A CallbackList, which fit passes to its evaluate.
        if not any(isinstance(each, BeginCallback) for each in inside):
            inside.insert(0, BeginCallback())
        return callbacks
    if callbacks is None:
        callbacks = []
    elif not isinstance(callbacks, (list, tuple)):
        callbacks = [callbacks]
    return [BeginCallback(), *callbacks]


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
