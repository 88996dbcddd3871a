"""Orders from the front ends' arguments, by ``order_of``.

::

    shuffle=True, False    the data set's order, or a permutation of all of it
    shuffle=Blocks()       in blocks
    weights=...            drawn with replacement
    bucket_by=lengths      in batches of similar length
    source.arranged(...)   the source's own order, such as a mix
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from adapters.batch.blocks import Blocks, warn_if_sorted
from adapters.batch.order import Arrangement, Order
from adapters.generators import GLOBAL
from adapters.seeding import seed, seeded
from adapters.sources import Source
from adapters.structure import as_array, flatten

log = logging.getLogger("adapters")

_GENERATORS = frozenset({"random", "numpy"})


def check_shuffle(shuffle: Any) -> None:
    """Check ``shuffle``, or raise ``TypeError``."""
    is_flag = isinstance(shuffle, (bool, np.bool_, int, np.integer)) and shuffle in (0, 1)
    if not is_flag and blocks_of(shuffle) is None:
        raise TypeError(
            f"shuffle must be True or False, got {shuffle!r}; "
            '"blocks" or Blocks(...) reads in blocks'
        )


def blocks_of(shuffle: Any) -> Blocks | None:
    """Return the blocks that ``shuffle`` requests; None if it requests none."""
    if isinstance(shuffle, str) and shuffle == "blocks":
        return Blocks()
    return shuffle if isinstance(shuffle, Blocks) else None


def order_of(
    size: int | None,
    batch_size: int,
    shuffle: Any = False,
    seed: int = 0,
    drop_remainder: bool = False,
    shard: tuple[int, int] = (0, 1),
    *,
    source: Source | None = None,
    weights: Any = None,
    bucket_by: Any = None,
) -> Order:
    """Make the order that these arguments describe.

    ``size`` is None for a data set without an end, which can only be read in its own order.
    """
    blocks = blocks_of(shuffle)
    _check_combination({"shuffle": blocks, "weights": weights, "bucket_by": bucket_by}, source)
    if size is None:
        return Order(None, batch_size, False, seed, drop_remainder, shard)
    arrangement: Arrangement | None = None
    if source is not None:
        arrangement = source.arranged(shuffle, seed)
    if arrangement is not None:
        if weights is not None or bucket_by is not None:
            raise ValueError(
                "weights and bucket_by must be left out where source is a mix, which has an order "
                "of its own: give mix the weights of its sources"
            )
    elif weights is not None:
        from adapters.batch.weights import Weighted  # Here, because few programs need it.

        weighted = weights if isinstance(weights, Weighted) else Weighted(weights)
        arrangement = weighted.of(size, seed)
    elif bucket_by is not None:
        from adapters.batch.buckets import Buckets, checked_lengths

        if not isinstance(bucket_by, Buckets):
            bucket_by = Buckets(checked_lengths("bucket_by", bucket_by))
        arrangement = bucket_by.of(size, bool(shuffle), seed)
    elif blocks is not None:
        arrangement = blocks.of(size, bytes_of_samples(source), seed)
        if source is not None:
            warn_if_sorted(arrangement, source, batch_size * shard[1])
    if arrangement is None:
        return Order(size, batch_size, bool(shuffle), seed, drop_remainder, shard)
    arrangement = arrangement.in_groups(batch_size * shard[1])
    return Order(arrangement.size, batch_size, True, seed, drop_remainder, shard, arrangement)


def bytes_of_samples(source: Source | None) -> float:
    """Return the average stored size of a sample, in bytes.

    If the source doesn't know, its first sample is measured. Random draws are seeded for that, so
    the result is the same in every process.
    """
    known = None if source is None else source.sample_bytes
    if known is None and source is not None:
        with seeded(_GENERATORS):
            seed(_GENERATORS, 0, 0, 0, GLOBAL)
            try:
                known = float(sum(map(_bytes_of, flatten(source.sample(0))[0])))
            except Exception as error:
                log.warning(
                    "samples count as one byte each for the size of blocks, as sample 0 can't be "
                    "read, which must be so on every shard, and where a state is loaded: %s: %s",
                    type(error).__name__,
                    error,
                )
    return max(1.0, known or 1.0)


def _bytes_of(leaf: Any) -> int:
    if isinstance(leaf, (str, bytes, bytearray, memoryview)):
        return len(leaf)
    array = as_array(leaf)
    return int(array.nbytes) if isinstance(array, np.ndarray) else np.asarray(leaf).nbytes


def _check_combination(asked: dict[str, Any], source: Source | None) -> None:
    """Check that at most one order is requested, and that it fits the source."""
    asked = {name: value for name, value in asked.items() if value is not None}
    if not asked:
        return
    listed = ", ".join(f"{name}={value!r:.60}" for name, value in asked.items())
    if source is not None and source.whole_batches:
        raise ValueError(
            f"{' and '.join(asked)} must be left out where source gives whole batches, as it is "
            f"about single samples, got {listed}: give what these are made of, or shuffle=True"
        )
    if len(asked) > 1:
        raise ValueError(
            f"{' and '.join(asked)} must not be given together, as each is an order of its own, "
            f"got {listed}: leave one of them out"
        )
