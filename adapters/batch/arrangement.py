"""What a global order is to ``Order``: which sample comes at which position of an epoch.

    positions --numbers(epoch, .)--> sample numbers        any positions, in any process

It is a pure function of (epoch, position), so that any worker computes any batch, the state of a
pass stays two integers, and shards deal the positions. Any thread may ask. It is sent to worker
processes by pickling; arrays that it keeps are shared with them.
"""

from __future__ import annotations

import abc
import functools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.foretold import Window

Stretch = tuple[int, int, Window]
"""The first sample number, the one behind the last, and the window that reads them."""


class Arrangement(abc.ABC):
    """A global order."""

    chunk = 8192
    """Positions that are evaluated at once: a call takes as long as a thousand of them."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Positions in an epoch."""

    @abc.abstractmethod
    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at these positions.

        Args:
            epoch: From 0.
            positions: int64 ``(n,)``, each in ``range(size)``, in any order.

        Returns:
            A new array, int64 ``(n,)``.
        """

    @property
    @abc.abstractmethod
    def way(self) -> str:
        """How samples are ordered, for people."""

    @property
    def is_random(self) -> bool:
        """Whether it depends on a seed."""
        return True

    @property
    def tables(self) -> Sequence[NDArray[Any]]:
        """Arrays that it depends on, such as samples' weights, one after another in memory."""
        return ()

    @functools.cached_property
    def checksum(self) -> int:
        """Of its tables."""
        return functools.reduce(lambda crc, table: zlib.crc32(table.data, crc), self.tables, 0)

    def coming(
        self, epoch: int, start: int, stop: int, shard: tuple[int, int], asked: bool = False
    ) -> list[Stretch]:
        """Which samples a shard will read soon, told at positions ``start`` to ``stop``.

        An order that reads the data set in large stretches names each of them at one position,
        ahead of the first that needs it; those of another epoch only where batches aren't just
        ``asked`` for.
        """
        return []

    @property
    def is_grouped(self) -> bool:
        """Whether it depends on how many samples are in a batch of all shards together."""
        return False

    def in_groups(self, size: int) -> Arrangement:
        """The arrangement for batches that are, over all shards, so many samples together."""
        return self
