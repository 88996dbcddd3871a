"""A warning for who reads in blocks what is sorted by class: batches of few classes train badly."""

from __future__ import annotations

import contextlib
import logging
import weakref

import numpy as np
from numpy.typing import NDArray

from adapters.batch.arrangement import Arrangement
from adapters.batch.permutation import SAMPLES, permute
from adapters.sources import Source

log = logging.getLogger("adapters")

# Samples whose labels are looked at, in the order's first batches and in those of a full shuffle.
_LOOKED_AT = 256
# Of the classes in a batch of a full shuffle: fewer are worth a word.
_FEW = 0.75

_told: weakref.WeakSet[Source] = weakref.WeakSet()


def warn_if_sorted(arrangement: Arrangement, source: Source, batch_size: int) -> None:
    """Say once of a source, if so, that its batches have far fewer classes than it could be.

    Sources whose labels take long to have, or aren't known, are not looked at.

    Args:
        arrangement: The order in blocks.
        source: What is ordered.
        batch_size: Of all shards together.
    """
    if source in _told:
        return
    size = arrangement.size
    rows = min(batch_size, _LOOKED_AT, size)
    count = min(_LOOKED_AT, size) // rows * rows
    positions = np.arange(count)
    with contextlib.suppress(Exception):  # What is damaged is told when it is read.
        ours = _classes(source, arrangement.numbers(0, positions), rows)
        best = _classes(source, permute(positions, size, (0, 0, SAMPLES)), rows)
        if ours is not None and best is not None and ours < _FEW * best:
            _told.add(source)
            log.warning(
                'shuffle="blocks": %.1f classes in a batch of %d, where a full shuffle has %.1f: '
                "samples are sorted by class, or come in runs. Shuffle them once (pack does, with "
                "a seed), or take more or smaller blocks at a time: Blocks(block_bytes, window)",
                ours,
                rows,
                best,
            )


def _classes(source: Source, numbers: NDArray[np.int64], rows: int) -> float | None:
    """Classes in a batch, on average; None where labels aren't known, or are no classes."""
    labels = source.labels_of(numbers, lightly=True)
    if labels is None or labels.dtype.kind not in "biufU":
        return None
    return float(np.mean([len(np.unique(batch)) for batch in labels.reshape(-1, rows)]))
