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
        steps: Number of steps in an epoch; None if unknown.
    """

    def __init__(
        self,
        model: Any = None,
        trains_on: Any = None,
        epochs: int = 1,
        announced: bool = False,
        steps: int | None = None,
    ) -> None:
        self.model = model
        self.trains_on = trains_on
        self.epochs = epochs
        self.announced = announced
        self.steps = steps
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


class LeanCallbackList(keras.callbacks.CallbackList):  # type: ignore[misc]
    """Callbacks of a call without a progress bar, whose empty hooks of batches aren't called.

    Keras has another thread call them after every batch, and the trainer waits for the GIL: 120 of
    360 us (a small model on JAX, two cores).

    Args:
        callbacks: The callbacks.
        call: The call, which knows its steps when the training begins.
        epochs: Number of epochs, for ``params``.
        add_history: Add a ``History``, as ``fit`` does.
    """

    def __init__(self, callbacks: list[Any], call: Call, epochs: int, add_history: bool) -> None:
        super().__init__(callbacks, add_history=add_history)
        self._call = call
        self._epochs = epochs
        self._empty: set[str] = set()

    def _begin(self) -> None:
        """Tell the callbacks the model and the parameters, as late as Keras does."""
        if self.params:
            return  # An evaluation within ``fit``.
        self.set_model(self._call.model)
        self.set_params({"verbose": 0, "epochs": self._epochs, "steps": self._call.steps})
        for name in _HOOKS_OF_BATCHES:
            names = {name, name.replace("train_", "")}  # on_batch_end is the older name.
            if not any(_has_own(each, one) for each in self.callbacks for one in names):
                self._empty.add(name)

    def append(self, callback: Any) -> None:
        """Add a callback, whose hooks are called from now on."""
        super().append(callback)
        self._empty.clear()

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin ``fit``."""
        self._begin()
        super().on_train_begin(logs)

    def on_test_begin(self, logs: Any = None) -> None:
        """Begin ``evaluate``."""
        self._begin()
        super().on_test_begin(logs)

    def on_predict_begin(self, logs: Any = None) -> None:
        """Begin ``predict``."""
        self._begin()
        super().on_predict_begin(logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step of ``fit``."""
        if "on_train_batch_begin" not in self._empty:
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a step of ``fit``."""
        if "on_train_batch_end" not in self._empty:
            super().on_train_batch_end(batch, logs)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step of ``evaluate``."""
        if "on_test_batch_begin" not in self._empty:
            super().on_test_batch_begin(batch, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a step of ``evaluate``."""
        if "on_test_batch_end" not in self._empty:
            super().on_test_batch_end(batch, logs)

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step of ``predict``."""
        if "on_predict_batch_begin" not in self._empty:
            super().on_predict_batch_begin(batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a step of ``predict``."""
        if "on_predict_batch_end" not in self._empty:
            super().on_predict_batch_end(batch, logs)


def _has_own(callback: Any, name: str) -> bool:
    """True if a callback doesn't inherit this hook from ``keras.callbacks.Callback``."""
    hook = getattr(getattr(callback, name), "__func__", None)
    return hook is not getattr(keras.callbacks.Callback, name)
