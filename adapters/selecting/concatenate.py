"""``concatenate``: several sources as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adapters.selecting.given import source_given
from adapters.sources import Source, joined


def concatenate(sources: Iterable[Any]) -> Source:
    """Several sources as one, one after another; nothing is read or copied.

    A batch of samples from several of them is made a source at a time: what gathers or decodes a
    batch at once still does. What is random depends on a sample's number in the whole.

    Args:
        sources: Whatever ``SafeSequence`` takes as a source of samples: arrays, tuples and dicts of
            them, data sets, records, their paths, and what ``select``, ``split`` and
            ``concatenate`` return. Samples of all have one structure, shape and dtype.

    Returns:
        A source, for ``SafeSequence``, ``gluon_loader``, ``split``, or any other loader of
        map-style data sets; ``.select(numbers or mask)`` gives a part of it.

    Raises:
        TypeError: Not several sources, or one of whole batches.
        ValueError: None, one without a sample, samples that differ where sources foretell them, or
            ``classes`` of which a label stands for several.

    Example:
        >>> import numpy as np
        >>> from adapters import concatenate
        >>> whole = concatenate([np.arange(3), np.arange(10, 13)])
        >>> len(whole), int(whole[4])
        (6, 11)
    """
    if isinstance(sources, (str, bytes, dict, set, frozenset)) or not hasattr(sources, "__iter__"):
        raise TypeError(
            f"sources must be a list of sources, got {type(sources).__name__}; one source is "
            "[source]"
        )
    if hasattr(sources, "shape") or isinstance(sources, Source):
        raise TypeError(
            f"sources must be a list of sources, got one {type(sources).__name__}; one source is "
            "[source]"
        )
    given = [source_given(source, f"sources[{place}]") for place, source in enumerate(sources)]
    if not given:
        raise ValueError("sources must hold at least one source, got none")
    return joined(given)
