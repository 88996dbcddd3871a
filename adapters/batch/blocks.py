"""``Blocks``: an order that reads the data set in large stretches, and still shuffles it.

::

    blocks, permuted:   7 2 9 4 | 0 5 8 1 | 3 6 ...         w = 4 blocks are a window
    positions:          7 2 9 4 7 2 9 4 7 ...  | 0 5 8 1 0 5 ...

A block is ``B`` consecutive samples of the data set. A window is ``w`` blocks, read at the same
time. Position q of a window belongs to block q % w, its ``column``, and takes the next
sample of that block; each block has its own permutation of its samples. So any w consecutive
positions have one sample from each block. Every position is computed arithmetically, in O(1)
memory.

Shard r of c has positions r, r + c, ... If c divides w, these are w / c columns of each window, so
no two shards read the same block, although the global order is independent of shards. Otherwise,
shards share blocks: each reads from w / g columns, where g is the greatest common divisor.

The remainder (``rest``) is the samples after the last whole block. They belong to a window chosen
by a key, spread over it in whole rows of w positions, so the columns stay the same. All shards read
from the remainder. The last window has the blocks that are left over, usually fewer than w; there,
too, shards may share blocks.

A data set sorted by class is a trap for such an order, as its batches have few classes:
``warn_if_sorted``.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.batch.order import Arrangement, Stretch
from adapters.batch.permutation import (
    BLOCKS,
    IN_BLOCKS,
    REST,
    SAMPLES,
    chosen,
    permute,
    permute_each,
)
from adapters.readahead import Window
from adapters.sources import Source

_chosen = functools.lru_cache(maxsize=16)(chosen)
log = logging.getLogger("adapters")
# Samples whose labels are compared: the first of this order and of a full shuffle.
_LOOKED_AT = 256
# Warn if a batch has less than this share of the classes in a batch of a full shuffle, and at least
# so many samples of the shuffle have a class that this order lacks: by chance, once in 2**20 times.
_FEW, _LEAST_ABSENT = 0.75, 20
_warned: weakref.WeakSet[Source] = weakref.WeakSet()


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
        block = min(size, max(1, int(self.block_bytes / max(sample_bytes, 1e-9))))
        root = math.isqrt(block)
        block -= block % root  # For `permute_each`: two factors of similar size.
        return BlockOrder(size, block, int(self.window), seed)


# Compared by identity, as caches need it.
@dataclass(frozen=True, eq=False)
class BlockOrder(Arrangement):
    """Global order in blocks of all samples."""

    size: int
    block: int
    """Samples in a block, at most ``samples``."""
    window: int
    """Blocks in a window."""
    seed: int

    @property
    def blocks(self) -> int:
        """Number of whole blocks."""
        return self.size // self.block

    @property
    def rest(self) -> int:
        """Number of samples after the last whole block."""
        return self.size % self.block

    @property
    def way(self) -> str:
        """Description of the order, for people."""
        return (
            f"in {self.blocks} blocks of {self.block} samples, mixed from {self.window} at a time"
        )

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions."""
        places, of_rest, in_rest = self._split(epoch, positions)
        window, places = np.divmod(places, self.window * self.block)
        columns = np.where(window == self._windows - 1, self._last_columns, self.window)
        places, column = np.divmod(places, columns)
        blocks = self._permuted(epoch, window, column)
        numbers = permute_each(places, self.block, (self.seed, epoch, IN_BLOCKS), blocks)
        numbers += blocks * self.block
        if of_rest.any():
            order = permute(in_rest[of_rest], self.rest, (self.seed, epoch, REST))
            numbers[of_rest] = order + self.blocks * self.block
        return numbers

    # --- the remainder ---

    def _with_rest(self, epoch: int) -> tuple[int, int, int]:
        """Return the window with the remainder: its number, column count and first position."""
        window = _chosen(self._windows, (self.seed, epoch, REST))
        return window, self._columns(window), window * self.window * self.block

    def _split(
        self, epoch: int, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """Places among those of whole blocks, a mask of the remainder's, places in the remainder.

        Places of the other kind have any value in range.
        """
        if not self.rest:
            return positions.copy(), np.zeros(len(positions), bool), positions
        _, columns, start = self._with_rest(epoch)
        row, column = np.divmod(positions - start, columns)
        extra = self.rest // columns
        rows = self.block + extra
        inside = (row >= 0) & (row < rows)
        before = row * extra // rows
        left_over = (row >= rows) & (positions - start < columns * self.block + self.rest)
        of_rest = (inside & ((row + 1) * extra // rows > before)) | left_over
        places = np.where(inside, start + (row - before) * columns + column, positions)
        places[(row >= rows) & ~left_over] -= self.rest
        places[of_rest] = 0
        in_rest = np.where(inside, before, row - self.block) * columns + column
        return places, of_rest, in_rest

    # --- windows ---

    @property
    def _windows(self) -> int:
        return -(-self.blocks // self.window)

    @property
    def _last_columns(self) -> int:
        return self.blocks - (self._windows - 1) * self.window

    def _columns(self, window: int) -> int:
        return self._last_columns if window == self._windows - 1 else self.window

    def _permuted(
        self, epoch: int, window: NDArray[np.int64], column: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Blocks in these columns of the windows."""
        slots = window * self.window + column
        return permute_each(slots, self.blocks, (self.seed, epoch, BLOCKS), 0)

    # --- prefetch hints ---

    def prefetch_hints(
        self, epoch: int, start: int, stop: int, shard: tuple[int, int], asked: bool = False
    ) -> list[Stretch]:
        """Return the blocks of the next window, spread over the first half of this one.

        The whole first window of an epoch is returned at its start, unless the last window of the
        epoch before did so, which it does only when batches are computed.
        """
        found: list[Stretch] = []
        if start == 0 and (epoch == 0 or asked):
            for column in range(self._columns(0)):
                found += self._block_hints(epoch, 0, column, shard, asked)
        window = self._window_at(epoch, start)
        while window < (self._windows - 1 if asked else self._windows):
            begin, end = self._begin(epoch, window), self._begin(epoch, window + 1)
            if begin >= stop:
                break
            following = (epoch, window + 1) if window + 1 < self._windows else (epoch + 1, 0)
            columns = self._columns(following[1])
            for column in range(columns):
                if start <= begin + column * (end - begin) // (2 * columns) < stop:
                    found += self._block_hints(*following, column, shard, asked)
            window += 1
        return found

    def _block_hints(
        self, epoch: int, window: int, column: int, shard: tuple[int, int], asked: bool
    ) -> list[Stretch]:
        """Return the block in a column, if the shard reads it; with column 0 also the remainder."""
        found: list[Stretch] = []
        index, count = shard
        columns, begin = self._columns(window), self._begin(epoch, window)
        number = epoch * self._windows + window
        # The window before this one is being read. Other workers may still compute batches of the
        # one before that, until the first quarter of the blocks (an eighth of a window) was hinted.
        over = number - (2 if column >= columns / 4 else 3)
        order = hash((self.size, self.block, self.window, self.seed, shard))
        hint = Window(order, number, over, asked)
        if self.rest and self._with_rest(epoch)[0] == window and column == 0:
            found.append((self.blocks * self.block, self.size, hint))
        if columns % count or (begin + column) % count == index:
            block = int(self._permuted(epoch, np.array([window]), np.array([column]))[0])
            found.append((block * self.block, (block + 1) * self.block, hint))
        return found

    def _begin(self, epoch: int, window: int) -> int:
        """First position of a window."""
        before = min(window * self.window, self.blocks) * self.block
        behind = self.rest and window > self._with_rest(epoch)[0]
        return before + (self.rest if behind else 0)

    def _window_at(self, epoch: int, position: int) -> int:
        window = min(position // (self.window * self.block), self._windows - 1)
        while window and self._begin(epoch, window) > position:
            window -= 1
        return window


def warn_if_sorted(arrangement: Arrangement, source: Source, batch_size: int) -> None:
    """Warn, once per source, if its batches have far fewer classes than with a full shuffle.

    Sources whose labels are unknown or slow to read are skipped. A batch is that of all shards.
    """
    if source in _warned:
        return
    size = arrangement.size
    rows = min(batch_size, _LOOKED_AT, size)
    count = min(_LOOKED_AT, size) // rows * rows
    positions = np.arange(count)
    with contextlib.suppress(Exception):  # Damage is reported when the data is read.
        ours = source.labels_of(arrangement.numbers(0, positions))
        best = source.labels_of(permute(positions, size, (0, 0, SAMPLES)))
        if ours is None or best is None or ours.dtype.kind not in "biufU":
            return
        few, many = _classes(ours, rows), _classes(best, rows)
        if few < _FEW * many and np.isin(best, ours, invert=True).sum() >= _LEAST_ABSENT:
            _warned.add(source)
            log.warning(
                'shuffle="blocks": %.1f classes in a batch of %d, where a full shuffle has %.1f: '
                "samples are sorted by class, or come in runs. Shuffle them once (pack does, with "
                "a seed), or take more or smaller blocks at a time: Blocks(block_bytes, window)",
                few,
                rows,
                many,
            )


def _classes(labels: NDArray[Any], rows: int) -> float:
    """Average number of classes in a batch."""
    return float(np.mean([len(np.unique(batch)) for batch in labels.reshape(-1, rows)]))
