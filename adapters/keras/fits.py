"""What a ``fit`` was called with, for callbacks of ours that must know.

``told`` wraps ``fit`` of ``keras.Model``. Where a ``FitCallback`` is among the callbacks it comes
to be the first of them, so that what the others do is done when it is called at the begin of
something, and is told of the call before Keras does anything. All in the thread that calls ``fit``.
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

# More batches than TensorFlow reads ahead of the trainer, with the steps of one execution.
_LATEST = 1000


@dataclass(eq=False, repr=False)
class Fit:
    """One call of ``fit``.

    Args:
        model: Whose.
        sequence: What is trained on; None if it is no ``SafeSequence``.
        validation: The same of ``validation_data``.
        callbacks: All that were given, in their order, without those that are told.
        told: The others.
        epochs: Where it ends.
        initial_epoch: Where it begins; may be changed before it begins.
        steps_per_epoch: As given.
        shuffle: As given.
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
    """Batches of the epoch that begins now that need not be trained on again, where
    ``steps_per_epoch`` says how long an epoch is; else the sequence knows."""
    samples: dict[int, int] = field(default_factory=dict)
    """Of each batch that was handed out, by its place among all of all epochs; Keras weights a
    batch's loss by them. The latest ones."""

    def hands_out(self, place: int, batch: Any) -> None:
        """Take note of a batch."""
        shape = getattr(next(iter(flatten(batch)[0]), None), "shape", ())
        if shape:
            self.samples[place] = int(shape[0])
            self.samples.pop(place - _LATEST, None)


class FitCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that is told of the ``fit`` that it is used in."""

    def fit_begins(self, fit: Fit) -> None:
        """Before Keras does anything."""

    def fit_ends(self, fit: Fit) -> None:
        """In whatever way."""


class _Running(threading.local):
    fits: tuple[Fit, ...] = ()


_running = _Running()


def running_over(sequence: SafeSequence) -> Fit | None:
    """The innermost ``fit`` of this thread, if that is what it trains on and somebody is told."""
    fit = _running.fits[-1] if _running.fits else None
    return fit if fit is not None and fit.sequence is sequence else None


def told(method: Callable[..., Any]) -> Callable[..., Any]:
    """``fit``, with each ``FitCallback`` told of it."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return method(*args, **kwargs)  # Says what is wrong.
        with _in_place(given) as arguments:
            return method(*arguments.args, **arguments.kwargs)

    return call


@contextlib.contextmanager
def _in_place(given: inspect.BoundArguments) -> Iterator[inspect.BoundArguments]:
    asked = given.arguments
    callbacks = asked.get("callbacks")
    inside = getattr(callbacks, "callbacks", None)  # Of a CallbackList, which Keras takes as it is.
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
