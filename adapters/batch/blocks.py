"""``Blocks``: argument for an order that reads in large stretches and still shuffles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.arguments import check_integer

if TYPE_CHECKING:
    from adapters.batch.blockorder import BlockOrder


@dataclass(frozen=True)
class Blocks:
    """``shuffle=Blocks()``: read the data set in large blocks, several at a time.

    A full shuffle reads each sample from a different place, which is slow on disks, networks and
    object storage. This order permutes blocks of samples, reads ``window`` of them at a time, and
    takes consecutive samples from different blocks, in an order that differs between blocks and
    epochs. Every sample comes exactly once per epoch.

    A batch mixes ``window`` blocks, so a data set sorted by class must be shuffled first, as
    ``pack`` does.

    Args:
        block_bytes: Bytes in a block, at the average stored size of a sample. 16 to 32 MiB read
            nearly as fast as one long read.
        window: Blocks read at a time. More mix better, and take ``window * block_bytes`` of the
            page cache, or twice that in memory for files behind URLs without a cache; above 1 GiB,
            such files are read sample by sample. Use a multiple of the number of shards, so that
            each block is read by one shard only.

    Raises:
        TypeError: Not integers.
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
        """Make the order for ``size`` samples of ``sample_bytes`` bytes on average."""
        from adapters.batch.blockorder import BlockOrder  # Few programs need it.

        block = min(size, max(1, int(self.block_bytes / max(sample_bytes, 1e-9))))
        root = math.isqrt(block)
        block -= block % root  # For `permute_each`: two factors of similar size.
        return BlockOrder(size, block, int(self.window), seed)
