"""Detection of sources that read from a remote store, and copies with samples in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.sources import Source, Subset
from adapters.sources.concatenation import Concatenation
from adapters.sources.imagefiles import ImageSource

UNCACHED, CACHED = "uncached", "cached"


def store_of(source: Any) -> str:
    """``"uncached"`` or ``"cached"`` if samples are fetched from a store, else ``""``."""
    if isinstance(source, Subset):
        return store_of(source.whole)
    if isinstance(source, Concatenation):
        found = {store_of(part) for part in source.parts}
        return next((each for each in (UNCACHED, CACHED) if each in found), "")
    is_cached: bool | None = getattr(source, "store_is_cached", None)
    return "" if is_cached is None else (CACHED if is_cached else UNCACHED)


def held_of(source: Source, numbers: NDArray[np.int64]) -> Source:
    """Copy a source with these samples in memory, if it would fetch them from a store each time.

    Records read from a store stay in memory anyway.
    """
    if isinstance(source, Subset):
        whole = held_of(source.whole, source.numbers[numbers])
        return source if whole is source.whole else type(source)(whole, source.numbers)
    return source.held(numbers) if isinstance(source, ImageSource) else source
