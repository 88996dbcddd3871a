"""Which sequences are read by Keras's calls that run in this thread.

While a ``fit`` reads a sequence, its place is that of the training: a validation over the same one,
or a callback that evaluates it or loops over it, reads *aside*. Other threads are on their own.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import keras

from adapters.keras.progress import Progress


class Reader(Protocol):
    """Reads a sequence for a call, as ``SafeSequenceAdapter`` does."""

    def reads(self, progress: Progress) -> bool:
        """Whether it reads the sequence of this progress, and its call isn't over."""

    def begin(self) -> None:
        """Take what is read from now on for what the trainer consumes."""

    def interrupt(self) -> None:
        """Have whoever waits for a batch go without one; from any thread."""

    def end(self) -> None:
        """End the pass, as the call is over."""


class Call:
    """One ``fit``, ``evaluate`` or ``predict`` that runs.

    Args:
        model: Whose.
        trains_on: What ``fit`` was given as ``x``; None for the others.
        epochs: How many ``fit`` trains.
        announced: A ``BeginCallback`` says when the trainer begins.
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
        """What was made in it, and ends with it."""


class _Running(threading.local):
    calls: tuple[Call, ...] = ()


running = _Running()
"""The calls of this thread, the innermost last."""


def is_read_by_a_call(progress: Progress) -> bool:
    """Whether a call of Keras's that runs in this thread reads the sequence of this progress."""
    return any(reader.reads(progress) for call in running.calls for reader in call.readers)


class BeginCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Tells readers when the trainer begins; what was read before has built the model.

    Keras calls these hooks after that on every backend, in the thread of the call.
    """

    def on_train_begin(self, logs: Any = None) -> None:
        """``fit`` trains."""
        self._begin()

    def on_test_begin(self, logs: Any = None) -> None:
        """``evaluate`` does, or ``fit`` validates."""
        self._begin()

    def on_predict_begin(self, logs: Any = None) -> None:
        """``predict`` does."""
        self._begin()

    def _begin(self) -> None:
        # The readers of a validation belong to the fit that it is in.
        for call in running.calls:
            for reader in call.readers:
                reader.begin()


def announce(callbacks: Any) -> Any:
    """Put a ``BeginCallback`` in front of what a call was given as ``callbacks``."""
    inside = getattr(callbacks, "callbacks", None)
    if inside is not None:  # A CallbackList, as fit gives to its evaluate.
        if not any(isinstance(each, BeginCallback) for each in inside):
            inside.insert(0, BeginCallback())
        return callbacks
    if callbacks is None:
        callbacks = []
    elif not isinstance(callbacks, (list, tuple)):
        callbacks = [callbacks]
    return [BeginCallback(), *callbacks]
