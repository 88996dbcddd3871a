"""The interface between an examination and the front end for a framework.

A front end provides an object ``FRONT_END`` in a module that ``FRONT_ENDS`` names. The module is
imported when a loader or model comes from the framework or from the front end's package, or when an
examined script imports the framework. Only the examining thread calls it.
"""

from __future__ import annotations

import abc
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from adapters.diagnosis.ablation import Ablations
from adapters.diagnosis.timing import Timing
from adapters.engine import Engine

# Package of each framework, and the module with ``FRONT_END`` for it.
FRONT_ENDS = {"keras": "adapters.keras.diagnosed", "mxnet": "adapters.gluon.diagnosed"}


class Trainer(Protocol):
    """Trains on batches and times it."""

    def whole(self, loader: Any, seconds: float) -> Timing:
        """Train on the loader's batches."""

    def same(self, batch: Any, seconds: float) -> Timing:
        """Train on one batch, again and again."""

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        """Time the batch's copy to the device; None if that is part of the step."""


class Examined(BaseException):
    """Ends an examined script; its argument is the result, or an error."""


@dataclass
class Observer:
    """Receives notice of the training in a script; the first that isn't skipped ends the script."""

    skip: int
    """Number of loops and calls of ``fit`` to skip."""
    in_fit: Callable[..., Any]
    """Makes the result from the arguments of the method ``fit``."""
    in_loop: Callable[..., Iterator[Any]]
    """Starts the iterator of ``loop``, which raises ``Examined``."""

    def fit(self, loader: Callable[[], Any], trainer: Callable[[], Trainer], data: Any) -> None:
        """Handle the start of the framework's own training on ``data``; the others make parts."""
        if not self._skips():
            with self.ignoring():
                raise Examined(self.in_fit(loader, trainer, data))

    def loop(self, loader: Any, plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Return the iterator that a loop over a loader reads; ``plain`` starts an ordinary one."""
        return plain() if self._skips() else self.in_loop(loader, plain)

    def _skips(self) -> bool:
        self.skip -= 1
        return self.skip >= 0

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """Skip all loops in the ``with`` block."""
        before, self.skip = self.skip, sys.maxsize
        try:
            yield
        finally:
            self.skip = before


class FrontEnd(abc.ABC):
    """The front end for one framework."""

    workers_keyword = "workers"
    """Name of the loaders' argument for the number of workers."""

    @abc.abstractmethod
    def owns(self, loader: Any) -> bool:
        """True if a loader belongs to this front end."""

    def in_place_of(self, loader: Any) -> tuple[Any, str] | None:
        """Replacement of a framework's own loader, and its description for the advice, or None."""
        return None

    @abc.abstractmethod
    def twin(self, loader: Any) -> Any:
        """Copy a loader at its current position; the copy has its own workers until ``close``.

        Each iteration over the copy is a pass. If the copy has ``state_dict`` and
        ``load_state_dict``, abandoned passes are resumed.
        """

    @abc.abstractmethod
    def engine(self, loader: Any) -> Engine:
        """The engine that computes a loader's batches."""

    @abc.abstractmethod
    def ablations(self, loader: Any) -> Ablations:
        """The ablations of a loader's plan."""

    @abc.abstractmethod
    def call(self, kind: str, workers: str) -> str:
        """The call that creates a loader, to paste, for a kind and number as in ``Setting``."""

    def trainer(self, step: Any) -> Trainer | None:
        """The trainer for a model of the framework, or None; ``TypeError`` if it can't train."""
        return None

    def intercepted(self, observer: Observer) -> AbstractContextManager[None]:
        """Notify the observer of training that starts within the ``with`` block."""
        return nullcontext()


def front_end_of(framework: str) -> FrontEnd:
    """Import the front end registered for a framework."""
    front_end: FrontEnd = importlib.import_module(FRONT_ENDS[framework]).FRONT_END
    return front_end


def front_ends_near(thing: Any) -> Iterator[FrontEnd]:
    """Import the front ends whose framework or package a loader or model comes from."""
    places = [f"{base.__module__}." for base in type(thing).__mro__]
    for framework, module in list(FRONT_ENDS.items()):
        package = module.rpartition(".")[0]
        if any(place.startswith((f"{framework}.", f"{package}.")) for place in places):
            yield front_end_of(framework)


def front_end_for(loader: Any) -> FrontEnd | None:
    """The registered front end that a loader belongs to; None for a foreign loader."""
    return next((each for each in front_ends_near(loader) if each.owns(loader)), None)


def examinable(loader: Any) -> tuple[Any, FrontEnd | None, str]:
    """The loader to examine, its front end, and what it replaces, as described in the advice.

    A foreign loader, which can only be iterated over, has no front end; "" replaces nothing.
    """
    for front_end in front_ends_near(loader):
        if front_end.owns(loader):
            return loader, front_end, ""
        if (replacing := front_end.in_place_of(loader)) is not None:
            another, replaced = replacing
            return another, front_end, replaced
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        raise TypeError(
            "loader must be a SafeSequence, what gluon_loader returns, a PyDataset, or something "
            f"else that gives batches when it is iterated over, got {type(loader).__name__}"
        )
    return loader, None, ""


def engine_of(loader: Any) -> Engine | None:
    """The engine that computes a loader's batches; None for a foreign loader."""
    front_end = front_end_for(loader)
    return None if front_end is None else front_end.engine(loader)


def settled_of(loader: Any) -> Callable[[], bool]:
    """A function that is true once a loader's workers are final; always true for foreign ones."""
    engine = engine_of(loader)
    return lambda: engine is None or engine.at_full_speed
