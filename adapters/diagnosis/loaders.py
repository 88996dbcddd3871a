"""What is examined: a loader of this package, one in the place of a framework's own, or any."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adapters.diagnosis.faces import Face, faces_near
from adapters.diagnosis.registry import told
from adapters.engine import Engine
from adapters.structure import flatten

# Seconds; what isn't made by then is a queue that nobody would wait for.
_MOST_REST = 0.5


@dataclass(frozen=True)
class Own:
    """A loader whose work can be taken apart.

    Args:
        loader: It.
        face: Whose it is.
        replaced: What it is in the place of, for people; "" for nothing.
    """

    loader: Any
    face: Face
    replaced: str = ""


def own_of(loader: Any) -> Own | None:
    """The loader, where it is one of a registered face's."""
    return next((Own(loader, face) for face in faces_near(loader) if face.owns(loader)), None)


def taken_as_own(loader: Any) -> Own | None:
    """The loader, or one of ours in its place; None for what can only be iterated over.

    Raises:
        TypeError: It can't be iterated over.
    """
    if (own := own_of(loader)) is not None:
        return own
    for face in faces_near(loader):
        if (replacing := face.in_place_of(loader)) is not None:
            another, replaced = replacing
            return Own(another, face, replaced)
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        kinds = ", ".join([*told("own"), *told("others")])
        raise TypeError(
            f"loader must be {kinds}, or something else that gives batches when it is iterated "
            f"over, got {type(loader).__name__}"
        )
    return None


def samples_in(batch: Any) -> int:
    """How many samples a batch has, by the first axis of its first array."""
    for leaf in flatten(batch)[0]:
        shape = getattr(leaf, "shape", None)
        if shape:
            return int(shape[0])
    return 1


def settled_of(loader: Any) -> Callable[[], bool]:
    """Whether a loader has the workers that it will have; True for foreign ones."""
    if (own := own_of(loader)) is None:
        return lambda: True
    engine = own.face.engine(loader)
    return lambda: engine.settled


def rest(engine: Engine, batch_seconds: float) -> None:
    """Wait until workers have made as many batches ahead as they may.

    Beside what is measured next, they would be another program that is busy.
    """
    settings = engine.chosen
    if settings.workers:
        time.sleep(min(_MOST_REST, settings.max_queue_size * batch_seconds))


def rest_of(loader: Any, batch_seconds: float) -> None:
    """The same of a loader, where it has workers that are known."""
    if (own := own_of(loader)) is not None:
        rest(own.face.engine(loader), batch_seconds)


def go_on(loader: Any) -> None:
    """Have the next pass begin where the latest one was left, where a loader can do that.

    The same first batches again would come from the page cache.
    """
    if hasattr(loader, "load_state_dict"):
        with contextlib.suppress(ValueError):  # A loader whose passes differ has no state.
            loader.load_state_dict(loader.state_dict())
