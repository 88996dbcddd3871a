"""Warning for block shuffling of data sorted by class: batches of few classes train badly."""

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

# Samples whose labels are compared: the first of this order and of a full shuffle.
_LOOKED_AT = 256
# Warn if a batch has less than this share of the classes in a batch of a full shuffle.
_FEW = 0.75

_told: weakref.WeakSet[Source] = weakref.WeakSet()


def warn_if_sorted(arrangement: Arrangement, source: Source, batch_size: int) -> None:
    """Warn, once per source, if its batches have far fewer classes than with a full shuffle.

    Sources whose labels are unknown or slow to read are skipped.

    Args:
        arrangement: The order in blocks.
        source: The data set.
        batch_size: Samples in a batch of all shards together.
    """
    if source in _told:
        return
    size = arrangement.size
    rows = min(batch_size, _LOOKED_AT, size)
    count = min(_LOOKED_AT, size) // rows * rows
    positions = np.arange(count)
    with contextlib.suppress(Exception):  # Damage is reported when the data is read.
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
    """Average number of classes in a batch; None if labels are unknown, or are not classes."""
    labels = source.labels_of(numbers)
    if labels is None or labels.dtype.kind not in "biufU":
        return None
    return float(np.mean([len(np.unique(batch)) for batch in labels.reshape(-1, rows)]))
