"""Registry of the running calls of Keras in this thread, and of the sequences that they read.

While a ``fit`` reads a sequence, only the training moves its position. A validation over the same
sequence, or a callback that evaluates it or loops over it, is a secondary pass (``aside``). Each
thread has its own registry.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import keras

from adapters.keras.internals import has_only_empty
from adapters.keras.progress import Progress


class Reader(Protocol):
    """Object that reads a sequence for a call, such as ``SafeSequenceAdapter``."""

    def reads(self, progress: Progress) -> bool:
        """True if the call is running and reads the sequence with this ``Progress``."""

    def begin(self) -> None:
        """Treat what is read from now on as consumed by the trainer."""

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


_HOOKS_OF_BATCHES = (
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_test_batch_begin",
    "on_test_batch_end",
    "on_predict_batch_begin",
    "on_predict_batch_end",
)


def skip_empty_hooks(callbacks: keras.callbacks.CallbackList, skip: bool = True) -> None:
    """Keep a ``CallbackList`` from calling hooks of batches that no callback has.

    Keras has another thread call them after every batch, and the trainer waits for the GIL: 120 of
    360 us (a small model on JAX, two cores).

    Args:
        callbacks: Keras's list of a call.
        skip: False to call all of them again.
    """
    own = vars(callbacks)
    for name in _HOOKS_OF_BATCHES:
        names = {name, name.replace("train_", "")}  # on_batch_end is the older name.
        stock = getattr(type(callbacks), name) is getattr(keras.callbacks.CallbackList, name)
        if skip and stock and all(has_only_empty(each, names) for each in callbacks.callbacks):
            own[name] = _do_nothing
        else:
            own.pop(name, None)


def _do_nothing(batch: int, logs: Any = None) -> None:
    pass
