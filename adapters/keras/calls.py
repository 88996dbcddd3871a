"""Registry of the running calls of Keras in this thread, and of the sequences that they read.

While a ``fit`` reads a sequence, only the training moves its position. A validation over the same
sequence, or a callback that evaluates it or loops over it, is a secondary pass (``aside``). Each
thread has its own registry.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import keras

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
        trains_on: Argument ``x`` of ``fit``; None for the other calls.
        epochs: Number of epochs that ``fit`` trains.
        announced: True if a ``BeginCallback`` reports when the trainer starts.
    """

    def __init__(
        self,
        model: Any = None,
        trains_on: Any = None,
        epochs: int = 1,
        announced: bool = False,
    ) -> None:
        self.model = model
        self.trains_on = trains_on
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
