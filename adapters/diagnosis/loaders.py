"""Loaders under examination: of this package, replacing one of the framework, or any other."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adapters.diagnosis.front_end import FrontEnd, front_ends_near
from adapters.diagnosis.registry import texts_of
from adapters.engine import Engine
from adapters.structure import flatten

# Maximum seconds to wait for the read-ahead queue to fill.
_MOST_REST = 0.5


def front_end_for(loader: Any) -> FrontEnd | None:
    """The registered front end that a loader belongs to; None for a foreign loader."""
    return next((each for each in front_ends_near(loader) if each.owns(loader)), None)


def examinable(loader: Any) -> tuple[Any, FrontEnd | None, str]:
    """The loader to examine, which may be a replacement.

    Returns:
        The loader, its front end (None if it can only be iterated over), and the replacement as
        described in the advice; "" if it replaces nothing.

    Raises:
        TypeError: The loader can't be iterated over.
    """
    if (front_end := front_end_for(loader)) is not None:
        return loader, front_end, ""
    for front_end in front_ends_near(loader):
        if (replacing := front_end.in_place_of(loader)) is not None:
            another, replaced = replacing
            return another, front_end, replaced
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        kinds = ", ".join([*texts_of("own"), *texts_of("others")])
        raise TypeError(
            f"loader must be {kinds}, or something else that gives batches when it is iterated "
            f"over, got {type(loader).__name__}"
        )
    return loader, None, ""


def samples_in(batch: Any) -> int:
    """Number of samples in a batch: the length of the first axis of its first array."""
    for leaf in flatten(batch)[0]:
        shape = getattr(leaf, "shape", None)
        if shape:
            return int(shape[0])
    return 1


def engine_of(loader: Any) -> Engine | None:
    """The engine that computes a loader's batches; None for a foreign loader."""
    front_end = front_end_for(loader)
    return None if front_end is None else front_end.engine(loader)


def settled_of(loader: Any) -> Callable[[], bool]:
    """A function that is true once a loader's workers are final; always true for foreign ones."""
    engine = engine_of(loader)
    return lambda: engine is None or engine.at_full_speed


def rest(engine: Engine | None, batch_seconds: float) -> None:
    """Wait until the read-ahead queue is full, so that workers don't disturb what follows."""
    if engine is not None and engine.chosen.workers:
        time.sleep(min(_MOST_REST, engine.chosen.max_queue_size * batch_seconds))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the states of ``random`` and ``numpy.random`` at the end of the ``with`` block."""
    own, numpys = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        random.setstate(own)
        np.random.set_state(numpys)
