"""What an examination asks of the face towards a framework; it knows nothing else of frameworks.

A face is an object ``FACE`` in a module of its own, named in ``registry.FACES``. That module is
imported when a loader or a model comes from the framework or from the face's package, or when a
script that is examined imports the framework. All of a face is called in the examining thread.
"""

from __future__ import annotations

import abc
import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from adapters.diagnosis.ablation import Ablations
from adapters.diagnosis.registry import FACES
from adapters.diagnosis.timing import Timing
from adapters.diagnosis.verdict import Hints
from adapters.engine import Engine


class Trainer(Protocol):
    """Something that takes batches from a loader, on a clock."""

    def whole(self, loader: Any, seconds: float) -> Timing:
        """Train on the loader's batches."""
        ...

    def same(self, batch: Any, seconds: float) -> Timing:
        """Train on one batch, again and again."""
        ...

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        """The time of its copy to the device; None where that is part of the step."""
        ...


class Observer(Protocol):
    """What is told of the training in a script, and may end the script."""

    def fit(self, loader: Callable[[], Any], trainer: Callable[[], Trainer]) -> None:
        """The framework's own training begins.

        Args:
            loader: Makes what gives the batches.
            trainer: Makes what trains on them.
        """
        ...

    def loop(self, loader: Any, plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """A loop of the script's own begins, and reads from what this returns.

        Args:
            loader: What it is over.
            plain: Begins a pass over that as it is.
        """
        ...


class Face(abc.ABC):
    """The face towards one framework."""

    workers_keyword = "workers"
    """What its loaders call the number of their workers."""
    hints = Hints()
    """What to change, of what only this face has."""

    # --- loaders ---

    @abc.abstractmethod
    def owns(self, loader: Any) -> bool:
        """Whether a loader is one of the face's."""

    def in_place_of(self, loader: Any) -> tuple[Any, str] | None:
        """One of the face's loaders for the batches of the framework's own; None for all others.

        Returns:
            The loader, and what it replaces, for people.
        """
        return None

    @abc.abstractmethod
    def twin(self, loader: Any) -> Any:
        """The same loader once more, where it stands, with workers of its own until its ``close``.

        It can be iterated over, a pass each time. Where it has ``state_dict`` and
        ``load_state_dict``, passes that are given up are gone on with.
        """

    @abc.abstractmethod
    def engine(self, loader: Any) -> Engine:
        """The engine that makes a loader's batches."""

    @abc.abstractmethod
    def ablations(self, loader: Any) -> Ablations:
        """What is left of a loader's work without a part of it."""

    @abc.abstractmethod
    def call(self, kind: str, workers: str, queue: int) -> str:
        """The arguments to paste into the call that makes a loader.

        Args:
            kind: ``"auto"``, ``"inline"``, ``"threads"`` or ``"processes"``.
            workers: How many, as it is written in the call.
            queue: Batches that may be ready ahead.
        """

    # --- training ---

    def trainer(self, step: Any) -> Trainer | None:
        """For a model of the framework's; None for all others.

        Raises:
            TypeError: It can't be trained.
        """
        return None

    def intercepted(self, observer: Observer) -> AbstractContextManager[None]:
        """Within, the observer is told of the training that a script begins."""
        return nullcontext()


def face_towards(framework: str) -> Face:
    """The face that is registered for a framework; imports it."""
    face: Face = importlib.import_module(FACES[framework].module).FACE
    return face


def faces_near(thing: Any) -> Iterator[Face]:
    """Faces that may know a loader or a model, as it comes from their framework or their package.

    No other is imported.
    """
    places = [f"{base.__module__}." for base in type(thing).__mro__]
    for framework, registered in list(FACES.items()):
        package = registered.module.rpartition(".")[0]
        if any(place.startswith((f"{framework}.", f"{package}.")) for place in places):
            yield face_towards(framework)
