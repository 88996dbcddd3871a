"""Standing in front of ``fit``, while ``adapters doctor`` runs somebody's script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras

from adapters.keras.fitting import ModelTrainer
from adapters.keras.sequence import SafeSequence
from adapters.sources import holds_arrays

_BATCH_SIZE = 32


@contextmanager
def intercepted(found: Callable[[Callable[[], Any], Callable[[], Any]], None]) -> Iterator[None]:
    """Within, every call of ``fit`` calls ``found(loader, trainer)`` first.

    Args:
        found: Is given functions that make what ``fit`` is to train on, and a ``ModelTrainer``.
    """

    def fit(
        self: Any,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        *arguments: Any,
        **keywords: Any,
    ) -> Any:
        keras.Model.fit = own
        try:
            found(partial(_loader_of, x, y, batch_size), partial(ModelTrainer, self))
            return own(self, x, y, batch_size, *arguments, **keywords)
        finally:
            keras.Model.fit = fit

    own = keras.Model.fit
    keras.Model.fit = fit
    try:
        yield
    finally:
        keras.Model.fit = own


def _loader_of(x: Any, y: Any, batch_size: int | None) -> Any:
    """What gives the batches of this ``fit``."""
    if y is not None or isinstance(x, dict) or holds_arrays(x):
        return SafeSequence(x if y is None else (x, y), batch_size or _BATCH_SIZE, shuffle=True)
    if hasattr(x, "__next__"):
        raise TypeError(
            "fit was given a generator, which gives its batches once: make a PyDataset of it, or "
            "give SafeSequence the data behind it"
        )
    return x
