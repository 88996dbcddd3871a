"""Global order: maps the positions of an epoch to sample numbers.

    positions --numbers(epoch, .)--> sample numbers        any positions, in any process

An arrangement is a pure function of (epoch, position). So any worker can compute any batch, the
state of a pass is two integers, and shards deal out positions. It may be called from any thread.
It is pickled for worker processes, which share its arrays.
"""

from __future__ import annotations

import abc
import functools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.readahead import Window

Stretch = tuple[int, int, Window]
"""First sample number, last sample number + 1, and the window that reads them."""


class Arrangement(abc.ABC):
    """A global order."""

    chunk = 8192
    """Positions evaluated per call; the overhead of a call equals about a thousand positions."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of positions in an epoch."""

    @abc.abstractmethod
    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions.

        Args:
            epoch: From 0.
            positions: int64 ``(n,)``, each in ``range(size)``, in any order.

        Returns:
            A new array, int64 ``(n,)``.
        """

    @property
    @abc.abstractmethod
    def way(self) -> str:
        """Description of the order, for people."""

    @property
    def is_random(self) -> bool:
        """True if the order depends on a seed."""
        return True

    @property
    def tables(self) -> Sequence[NDArray[Any]]:
        """Arrays that the order depends on, such as weights; each contiguous in memory."""
        return ()

    @functools.cached_property
    def checksum(self) -> int:
        """CRC-32 of the tables."""
        return functools.reduce(lambda crc, table: zlib.crc32(table.data, crc), self.tables, 0)

    def coming(
        self, epoch: int, start: int, stop: int, shard: tuple[int, int], asked: bool = False
    ) -> list[Stretch]:
        """Prefetch hints: samples a shard will read soon after positions ``start`` to ``stop``.

        An order that reads in large stretches names each stretch once, at a position before the
        first one that needs it. Stretches of the next epoch are named only if not ``asked``, that
        is, when batches are computed.
        """
        return []

    @property
    def is_grouped(self) -> bool:
        """True if the order depends on the batch size summed over all shards."""
        return False

    def in_groups(self, size: int) -> Arrangement:
        """Return the arrangement for batches of ``size`` samples, summed over all shards."""
        return self
