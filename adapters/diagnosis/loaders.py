"""Loaders under examination: of this package, replacing one of the framework, or any other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adapters.diagnosis.front_end import FrontEnd, front_ends_near
from adapters.diagnosis.registry import texts_of
from adapters.engine import Engine
from adapters.structure import flatten

# Maximum seconds to wait for the read-ahead queue to fill.
_MOST_REST = 0.5


@dataclass(frozen=True)
class Own:
    """A loader of this package, whose work can be measured part by part.

    Args:
        loader: The loader.
        front_end: The front end that it belongs to.
        replaced: The replacement as described in the advice; "" if it replaces nothing.
    """

    loader: Any
    front_end: FrontEnd
    replaced: str = ""


def own_of(loader: Any) -> Own | None:
    """The loader as ``Own``; None if it belongs to no registered front end."""
    return next(
        (Own(loader, front_end) for front_end in front_ends_near(loader) if front_end.owns(loader)),
        None,
    )


def taken_as_own(loader: Any) -> Own | None:
    """The loader as ``Own``, replaced if necessary; None if it can only be iterated over.

    Raises:
        TypeError: The loader can't be iterated over.
    """
    if (own := own_of(loader)) is not None:
        return own
    for front_end in front_ends_near(loader):
        if (replacing := front_end.in_place_of(loader)) is not None:
            another, replaced = replacing
            return Own(another, front_end, replaced)
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        kinds = ", ".join([*texts_of("own"), *texts_of("others")])
        raise TypeError(
            f"loader must be {kinds}, or something else that gives batches when it is iterated "
            f"over, got {type(loader).__name__}"
        )
    return None


def samples_in(batch: Any) -> int:
    """Number of samples in a batch: the length of the first axis of its first array."""
    for leaf in flatten(batch)[0]:
        shape = getattr(leaf, "shape", None)
        if shape:
            return int(shape[0])
    return 1


def settled_of(loader: Any) -> Callable[[], bool]:
    """A function that is true once a loader's workers are final; always true for foreign ones."""
    if (own := own_of(loader)) is None:
        return lambda: True
    engine = own.front_end.engine(loader)
    return lambda: engine.settled


def rest(engine: Engine, batch_seconds: float) -> None:
    """Wait until the read-ahead queue is full, so that workers don't disturb what follows."""
    settings = engine.chosen
    if settings.workers:
        time.sleep(min(_MOST_REST, settings.max_queue_size * batch_seconds))


def rest_of(loader: Any, batch_seconds: float) -> None:
    """``rest`` for a loader; does nothing for a foreign one."""
    if (own := own_of(loader)) is not None:
        rest(own.front_end.engine(loader), batch_seconds)


def go_on(loader: Any) -> None:
    """Make the next pass resume where the last one stopped, if the loader supports that.

    Reading the first batches again would be served by the page cache.
    """
    if hasattr(loader, "load_state_dict"):
        with contextlib.suppress(ValueError):  # A loader whose passes differ has no state.
            loader.load_state_dict(loader.state_dict())
