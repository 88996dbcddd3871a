"""The order in blocks: it reads in large stretches, and shuffles all the same.

::

    blocks, permuted:   7 2 9 4 | 0 5 8 1 | 3 6 ...         w = 4 blocks are a window
    positions:          7 2 9 4 7 2 9 4 7 ...  | 0 5 8 1 0 5 ...

A block is ``B`` samples that stand one after another in the data set. Within a window, position q
is that of block number q % w, its lane, and takes that block's next sample, where each block's
samples are permuted by a bijection of its own. So w blocks are read at a time, any w positions in a
row have a sample of each, and all positions are found by arithmetic, in O(1) memory.

Shard r of c has positions r, r + c, ...: where c divides w, those of w / c lanes of each window,
and no two shards read the same block, though the global order knows nothing of shards. Where c
doesn't divide w, shards share blocks: each reads from w / g lanes, g the common divisor of both.

The rest, the samples behind the last whole block, belong to the window that a key names, and are
spread over it in whole rows of w positions, which leaves the lanes as they are. All shards read
from the rest. The last window has the blocks that are left over, fewer than w as a rule; there,
too, shards may share blocks.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adapters.batch.arrangement import Arrangement, Stretch
from adapters.batch.permutation import BLOCKS, IN_BLOCKS, REST, chosen, permute, permute_each
from adapters.foretold import Window

# Of a batch's positions, nearly all are in one or two windows, whose blocks are remembered.
_FEW_WINDOWS = 8


# Two of them are equal if they are one, as caches have it.
@dataclass(frozen=True, eq=False)
class BlockOrder(Arrangement):
    """The global order in blocks.

    Args:
        samples: In the data set.
        block: Samples of a block, at most ``samples``.
        window: Blocks of a window.
        seed: Of the order.
    """

    samples: int
    block: int
    window: int
    seed: int

    @property
    def size(self) -> int:
        """Positions in an epoch: all samples."""
        return self.samples

    @property
    def blocks(self) -> int:
        """Whole blocks."""
        return self.samples // self.block

    @property
    def rest(self) -> int:
        """Samples behind them."""
        return self.samples % self.block

    @property
    def way(self) -> str:
        """How samples are ordered, for people."""
        return (
            f"in {self.blocks} blocks of {self.block} samples, mixed from {self.window} at a time"
        )

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at these positions."""
        places, of_rest = self._without_rest(epoch, positions)
        window, places = np.divmod(places, self.window * self.block)
        lanes = np.where(window == self._windows - 1, self._last_lanes, self.window)
        places, lane = np.divmod(places, lanes)
        blocks = self._permuted(epoch, window, lane)
        places[of_rest] = 0  # Whatever is in range.
        numbers = permute_each(places, self.block, (self.seed, epoch, IN_BLOCKS), blocks)
        numbers += blocks * self.block
        if of_rest.any():
            numbers[of_rest] = self._of_rest(epoch, positions[of_rest])
        return numbers

    # --- the rest ---

    def _with_rest(self, epoch: int) -> tuple[int, int, int]:
        """The window that has the rest: its number, its lanes, and where it begins."""
        window = _chosen(self._windows, (self.seed, epoch, REST))
        return window, self._lanes(window), window * self.window * self.block

    def _without_rest(
        self, epoch: int, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The places that positions have among those of whole blocks, and which have none."""
        if not self.rest:
            return positions.copy(), np.zeros(len(positions), bool)
        _, lanes, start = self._with_rest(epoch)
        row, lane = np.divmod(positions - start, lanes)
        extra = self.rest // lanes
        rows = self.block + extra
        inside = (row >= 0) & (row < rows)
        before = row * extra // rows
        is_rest = inside & ((row + 1) * extra // rows > before)
        left_over = (row >= rows) & (positions - start < lanes * self.block + self.rest)
        is_rest |= left_over
        places = np.where(inside, start + (row - before) * lanes + lane, positions)
        behind = (row >= rows) & ~left_over
        places[behind] -= self.rest
        places[is_rest] = 0
        return places, is_rest

    def _of_rest(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples of the rest at these positions."""
        _, lanes, start = self._with_rest(epoch)
        row, lane = np.divmod(positions - start, lanes)
        extra = self.rest // lanes
        place = np.minimum(row * extra // (self.block + extra), extra)
        place = np.where(row >= self.block + extra, row - self.block, place) * lanes + lane
        order = permute(place, self.rest, (self.seed, epoch, REST))
        return order + self.blocks * self.block

    # --- windows ---

    @property
    def _windows(self) -> int:
        return -(-self.blocks // self.window)

    @property
    def _last_lanes(self) -> int:
        return self.blocks - (self._windows - 1) * self.window

    def _lanes(self, window: int) -> int:
        return self._last_lanes if window == self._windows - 1 else self.window

    def _permuted(
        self, epoch: int, window: NDArray[np.int64], lane: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Which blocks are in these lanes."""
        first, last = int(window.min()), int(window.max())
        if last - first > _FEW_WINDOWS:
            tweaks = np.zeros(len(window), np.int64)
            slots = window * self.window + lane
            return permute_each(slots, self.blocks, (self.seed, epoch, BLOCKS), tweaks)
        whole = self.blocks, self.window, self.seed, epoch
        blocks = np.concatenate([_of_window(*whole, each) for each in range(first, last + 1)])
        found: NDArray[np.int64] = blocks[(window - first) * self.window + lane]
        return found

    # --- what comes ---

    def coming(
        self, epoch: int, start: int, stop: int, shard: tuple[int, int], asked: bool = False
    ) -> list[Stretch]:
        """The blocks of the next window, one after another in the first half of this one.

        The first window of an epoch is told as a whole at its beginning, if it wasn't in the epoch
        before: the last window tells of the next epoch's first, where batches are computed.
        """
        found: list[Stretch] = []
        if start == 0 and (epoch == 0 or asked):
            for lane in range(self._lanes(0)):
                found += self._told(epoch, 0, lane, shard, asked)
        window = self._window_at(epoch, start)
        while window < (self._windows - 1 if asked else self._windows):
            begin, end = self._begin(epoch, window), self._begin(epoch, window + 1)
            if begin >= stop:
                break
            following = (epoch, window + 1) if window + 1 < self._windows else (epoch + 1, 0)
            lanes = self._lanes(following[1])
            for lane in range(lanes):
                if start <= begin + lane * (end - begin) // (2 * lanes) < stop:
                    found += self._told(*following, lane, shard, asked)
            window += 1
        return found

    def _told(
        self, epoch: int, window: int, lane: int, shard: tuple[int, int], asked: bool
    ) -> list[Stretch]:
        """The block of a lane, where the shard reads it; with the first one also the rest."""
        found: list[Stretch] = []
        index, count = shard
        lanes, begin = self._lanes(window), self._begin(epoch, window)
        number = epoch * self._windows + window
        # The one before this is read now. Other workers may compute batches of that before, until
        # the first quarter of the blocks, an eighth of a window, was told.
        over = number - (2 if lane >= lanes / 4 else 3)
        order = hash((self.samples, self.block, self.window, self.seed, shard))
        told = Window(order, number, over, asked)
        if self.rest and self._with_rest(epoch)[0] == window and lane == 0:
            found.append((self.blocks * self.block, self.samples, told))
        if lanes % count or (begin + lane) % count == index:
            block = int(_of_window(self.blocks, self.window, self.seed, epoch, window)[lane])
            found.append((block * self.block, (block + 1) * self.block, told))
        return found

    def _begin(self, epoch: int, window: int) -> int:
        """The position where a window begins."""
        before = min(window * self.window, self.blocks) * self.block
        behind = self.rest and window > self._with_rest(epoch)[0]
        return before + (self.rest if behind else 0)

    def _window_at(self, epoch: int, position: int) -> int:
        window = min(position // (self.window * self.block), self._windows - 1)
        while window and self._begin(epoch, window) > position:
            window -= 1
        return window


_chosen = functools.lru_cache(maxsize=16)(chosen)


@functools.lru_cache(maxsize=64)
def _of_window(blocks: int, window: int, seed: int, epoch: int, number: int) -> NDArray[np.int64]:
    """The blocks of a window."""
    slots = np.arange(number * window, min((number + 1) * window, blocks))
    return permute_each(slots, blocks, (seed, epoch, BLOCKS), np.zeros(len(slots), np.int64))
