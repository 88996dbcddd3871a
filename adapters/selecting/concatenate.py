"""``concatenate``: joins several sources into one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from adapters.selecting.given import sources_given
from adapters.sources import Source, Subset
from adapters.sources.concatenation import Concatenation


def concatenate(sources: Iterable[Any]) -> Source:
    """Concatenate several sources; nothing is read or copied.

    A batch with samples of several sources is made one source at a time, so that gathering and
    decoding a batch at once still works. Random values depend on a sample's number in the whole.

    Args:
        sources: Anything that ``SafeSequence`` takes as a source of samples: arrays, tuples and
            dicts of them, data sets, records, their paths, and results of ``select``, ``split`` and
            ``concatenate``. All samples have one structure, shape and dtype.

    Returns:
        A source, for ``SafeSequence``, ``gluon_loader``, ``split``, or any other loader of
            map-style data sets; ``.select(numbers or mask)`` returns a part of it.

    Raises:
        TypeError: Not a list of sources, or a source of whole batches.
        ValueError: No source, a source without samples, samples that differ as far as known, or
            ``classes`` that give one label several names.

    Example:
        >>> import numpy as np
        >>> from adapters import concatenate
        >>> whole = concatenate([np.arange(3), np.arange(10, 13)])
        >>> len(whole), int(whole[4])
        (6, 11)
    """
    given = sources_given(sources)
    for place, source in enumerate(given):
        if source.arranged(False, 0) is not None:
            raise ValueError(
                f"sources must have no order of their own, which would be lost, got a mix as "
                f"sources[{place}]: mix what is concatenated"
            )
    parts: list[Source] = []
    for source in given:  # Without a chain of indirections.
        parts += source.parts if isinstance(source, Concatenation) else [source]
    if len(parts) == 1:
        return parts[0]
    subsets = [part for part in parts if isinstance(part, Subset)]
    if len(subsets) == len(parts) and len({id(subset.whole) for subset in subsets}) == 1:
        # Subsets of one source: select from the whole, which is read once per batch.
        return subsets[0].whole.select(np.concatenate([subset.numbers for subset in subsets]))
    together = Concatenation(parts)
    return together if len(together.parts) > 1 else together.parts[0]
