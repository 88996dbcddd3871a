"""``Blocks``: the argument for an order that reads in large stretches and shuffles all the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.arguments import check_integer

if TYPE_CHECKING:
    from adapters.batch.blockorder import BlockOrder


@dataclass(frozen=True)
class Blocks:
    """``shuffle=Blocks()``: read the data set in large blocks, several of them at a time.

    A full shuffle reads each sample from another place. That is slow on disks, networks and object
    storage. This order permutes blocks of samples, takes ``window`` of them at a time, and draws
    each sample from another one of these, in an order that differs from block to block and from
    epoch to epoch. Every sample comes exactly once per epoch.

    A batch mixes ``window`` blocks, so a data set that is sorted by class must be shuffled first:
    ``pack`` does that.

    Args:
        block_bytes: Bytes of a block, as samples are stored on average. 16 to 32 MiB read nearly as
            fast as one long read does.
        window: Blocks that are read at a time: more mix better, and take ``window * block_bytes``
            of the page cache, or, of files behind URLs without a cache, twice that of memory; above
            1 GiB, such files are read sample by sample. A multiple of the number of shards, so that
            each block is read by one of them.

    Raises:
        TypeError: No integers.
        ValueError: Below 1.

    Example:
        >>> import numpy as np
        >>> from adapters import Blocks, SafeSequence
        >>> seq = SafeSequence(np.arange(1000), shuffle=Blocks(block_bytes=800, window=4))
        >>> sorted(np.concatenate(list(seq)).tolist()) == list(range(1000))
        True
    """

    block_bytes: int = 32 * 2**20
    window: int = 16

    def __post_init__(self) -> None:
        check_integer("block_bytes", self.block_bytes, 1)
        check_integer("window", self.window, 1)

    def of(self, size: int, sample_bytes: float, seed: int) -> BlockOrder:
        """The order of so many samples of so many bytes on average."""
        from adapters.batch.blockorder import BlockOrder  # Few programs need it.

        block = min(size, max(1, int(self.block_bytes / max(sample_bytes, 1e-9))))
        root = math.isqrt(block)
        block -= block % root  # For `permute_each`: two factors near each other.
        return BlockOrder(size, block, int(self.window), seed)
