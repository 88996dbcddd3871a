"""Arguments of a running ``fit``, for callbacks that need them.

``told`` wraps ``keras.Model.fit``. It moves each ``FitCallback`` in front of the other callbacks,
and notifies it of the call before Keras starts. Everything runs in the thread that calls ``fit``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import keras

from adapters.keras.sequence import SafeSequence
from adapters.structure import flatten

# Exceeds the batches that TensorFlow reads ahead plus the steps of one execution.
_LATEST = 1000


@dataclass(eq=False, repr=False)
class Fit:
    """One call of ``fit``.

    Args:
        model: The model that is trained.
        sequence: Training data; None if it is no ``SafeSequence``.
        validation: Validation data; None if it is no ``SafeSequence``.
        callbacks: The callbacks that are no ``FitCallback``, in order.
        told: The ``FitCallback`` instances, in order.
        epochs: Argument of ``fit``.
        initial_epoch: Argument of ``fit``; ``fit_begins`` may change it.
        steps_per_epoch: Argument of ``fit``.
        shuffle: Argument of ``fit``.
    """

    model: Any
    sequence: SafeSequence | None
    validation: SafeSequence | None
    callbacks: list[Any]
    told: list[Any]
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


class _Running(threading.local):
    fits: tuple[Fit, ...] = ()


_running = _Running()


def running_over(sequence: SafeSequence) -> Fit | None:
    """Innermost ``fit`` of this thread that has a ``FitCallback``, if it trains on ``sequence``."""
    fit = _running.fits[-1] if _running.fits else None
    return fit if fit is not None and fit.sequence is sequence else None


def told(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``fit`` to notify each ``FitCallback``."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return method(*args, **kwargs)  # Raises an error that says what is wrong.
        with _in_place(given) as arguments:
            return method(*arguments.args, **arguments.kwargs)

    return call


@contextlib.contextmanager
def _in_place(given: inspect.BoundArguments) -> Iterator[inspect.BoundArguments]:
    asked = given.arguments
    callbacks = asked.get("callbacks")
    inside = getattr(callbacks, "callbacks", None)  # Of a CallbackList, which Keras also accepts.
    listed = list(_flat(callbacks if inside is None else inside))
    first = [each for each in listed if isinstance(each, FitCallback)]
    if not first:
        yield given
        return
    others = [each for each in listed if not isinstance(each, FitCallback)]
    if inside is None:
        asked["callbacks"] = [*first, *others]
    else:
        inside[:] = [*first, *others]
    validation = asked.get("validation_data")
    fit = Fit(
        model=asked["self"],
        sequence=x if isinstance(x := asked.get("x"), SafeSequence) else None,
        validation=validation if isinstance(validation, SafeSequence) else None,
        callbacks=others,
        told=first,
        epochs=asked.get("epochs", 1),
        initial_epoch=asked.get("initial_epoch", 0),
        steps_per_epoch=asked.get("steps_per_epoch"),
        shuffle=bool(asked.get("shuffle", True)),
    )
    outer, _running.fits = _running.fits, (*_running.fits, fit)
    try:
        for each in first:
            each.fit_begins(fit)
        asked["initial_epoch"] = fit.initial_epoch
        yield given
    finally:
        _running.fits = outer
        for each in first:
            each.fit_ends(fit)


def _flat(callbacks: Any) -> Iterator[Any]:
    if isinstance(callbacks, (list, tuple)):
        for each in callbacks:
            yield from _flat(each)
    elif callbacks is not None:
        yield callbacks
