"""The order that a face's arguments mean: both ask ``order_of``.

shuffle=True, False    the data set's order, or a permutation of all of it
shuffle=Blocks()       in blocks
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters.batch.arrangement import Arrangement
from adapters.batch.blocks import Blocks
from adapters.batch.order import Order
from adapters.sources import Source
from adapters.structure import as_array, flatten


def check_shuffle(shuffle: Any) -> None:
    """Check ``shuffle``.

    Raises:
        TypeError: It is none of what it may be.
    """
    if isinstance(shuffle, Blocks) or (isinstance(shuffle, str) and shuffle == "blocks"):
        return
    if isinstance(shuffle, (bool, np.bool_)) or (
        not isinstance(shuffle, str) and shuffle in (0, 1)
    ):
        return
    raise TypeError(
        f'shuffle must be True or False, got {shuffle!r}; "blocks" or Blocks(...) reads in blocks'
    )


def blocks_of(shuffle: Any) -> Blocks | None:
    """The blocks that ``shuffle`` asks for, if it does."""
    if isinstance(shuffle, str):
        return Blocks()
    return shuffle if isinstance(shuffle, Blocks) else None


def order_of(
    size: int,
    batch_size: int,
    shuffle: Any = False,
    seed: int = 0,
    drop_remainder: bool = False,
    shard: tuple[int, int] = (0, 1),
    *,
    source: Source | None = None,
) -> Order:
    """The order that these arguments mean.

    Args:
        size: Samples in the data set.
        batch_size: Samples in a batch.
        shuffle: True or False, ``"blocks"`` or ``Blocks``.
        seed: Of the order.
        drop_remainder: Leave out the last batch when it isn't full.
        shard: ``(index, count)``.
        source: The data set, where it is a source; it says how many bytes samples have.

    Raises:
        ValueError: Arguments that exclude each other, or that the source doesn't allow.
    """
    blocks = blocks_of(shuffle)
    if source is not None and source.whole_batches:
        _check_whole_batches(source, shuffle if blocks else None)
    arrangement: Arrangement | None = None
    if blocks is not None:
        arrangement = blocks.of(size, bytes_of_samples(source), seed)
    if arrangement is None:
        return Order(size, batch_size, bool(shuffle), seed, drop_remainder, shard)
    arrangement = arrangement.in_groups(batch_size * shard[1])
    return Order(arrangement.size, batch_size, True, seed, drop_remainder, shard, arrangement)


def bytes_of_samples(source: Source | None) -> float:
    """How many bytes a sample has on average, where it is stored.

    A source that can't tell is asked for its first sample, whose arrays and texts are measured.
    """
    known = source.sample_bytes if source is not None else None
    if known is None and source is not None:
        leaves, _ = flatten(source.sample(0))
        known = float(sum(map(_bytes_of, leaves)))
    return max(1.0, known or 1.0)


def _bytes_of(leaf: Any) -> int:
    if isinstance(leaf, (str, bytes, bytearray, memoryview)):
        return len(leaf)
    array = as_array(leaf)
    return int(array.nbytes) if isinstance(array, np.ndarray) else np.asarray(leaf).nbytes


def _check_whole_batches(source: Source, shuffle: Any) -> None:
    if shuffle is not None:
        raise ValueError(
            f"shuffle in blocks is about single samples, and source gives whole batches, got "
            f"shuffle={shuffle!r}: give shuffle=True, which permutes the batches"
        )
