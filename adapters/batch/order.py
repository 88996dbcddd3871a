"""Which samples make batch i of epoch e on shard r: arithmetic only.

A shuffled epoch is a keyed bijection on ``range(size)``, evaluated for just the positions that are
asked for, so that neither memory nor start-up time grows with the data set. Any other global order
is an ``Arrangement``, evaluated the same way: in blocks, by weights, by lengths, of a mix.

Shard r of c holds positions r, r + c, r + 2c, ... of the one global order, so that the batches i of
all shards together are one contiguous stretch of it. All shards are equally long: the up to c - 1
positions that are left over at the end of the order belong to no shard in that epoch.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adapters.batch.arrangement import Arrangement, Stretch
from adapters.batch.key import Continuation
from adapters.batch.permutation import BATCHES, SAMPLES
from adapters.batch.permutation import permute as permute

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# Positions that are mapped at once: the temporaries of a block fit into a core's L2 cache.
_BLOCK_SAMPLES = 8192
# Positions by whose samples an order is told from another one.
_PROBED = 16


@dataclass(frozen=True, eq=False)
class Order:
    """The order in which one shard visits the samples of a data set, batch by batch.

    Args:
        size: Positions in an epoch: the samples of the data set, or what the arrangement says; None
            for a data set without an end, whose order is its own.
        batch_size: Samples in a batch.
        shuffle: Permute the samples, differently in every epoch.
        seed: Non-negative; same seed, same order.
        drop_remainder: Leave out the last batch when it isn't full.
        shard: ``(index, count)``.
        arrangement: The global order, where it is neither the data set's nor a permutation of all;
            ``shuffle`` then says no more than that it isn't the data set's.
    """

    size: int | None
    batch_size: int
    shuffle: bool = False
    seed: int = 0
    drop_remainder: bool = False
    shard: tuple[int, int] = (0, 1)
    arrangement: Arrangement | None = None
    _recent: _Recent = field(init=False, repr=False, default_factory=lambda: _Recent())

    def of_shard(self, shard: tuple[int, int]) -> Order:
        """The same order for another shard, perhaps of another number of them."""
        arrangement = self.arrangement
        if arrangement is not None:
            arrangement = arrangement.in_groups(self.batch_size * shard[1])
        return replace(self, shard=shard, arrangement=arrangement)

    @functools.cached_property
    def shard_size(self) -> int:
        """Samples that this shard visits in an epoch; the same number on every shard."""
        return self._positions // self.shard[1]

    @property
    def _positions(self) -> int:
        if self.size is None:
            raise TypeError("an order without an end has no length")
        return self.size

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch; None for one without an end."""
        return None if self.size is None else self._batches

    @functools.cached_property
    def _batches(self) -> int:
        full, rest = divmod(self.shard_size, self.batch_size)
        return full + (rest > 0 and not self.drop_remainder)

    def __len__(self) -> int:
        """Batches in an epoch; the same number on every shard.

        Raises:
            TypeError: It has no end.
        """
        return self._batches

    def batch(self, epoch: int, index: int, origin: int = 0) -> NDArray[np.int64]:
        """Sample numbers of batch ``index`` of ``epoch``, int64 ``(batch,)``; read-only.

        Args:
            epoch: From 0.
            index: In the epoch.
            origin: Where in the global order batch 0 would begin, see ``continuation``.
        """
        if origin:
            return _continued(self, epoch, index, origin)
        start = index * self.batch_size
        stop = start + self.batch_size
        if self.size is not None:
            stop = min(stop, self.shard_size)
        shard, arrangement = self.shard, self.arrangement
        block: Callable[..., NDArray[np.int64]]
        of_order: tuple[Any, ...]
        if arrangement is not None:
            block, chunk = self._recent.block, arrangement.chunk
            of_order = arrangement, self._positions, shard, epoch
        elif self.shuffle:
            block, chunk = _shuffled_block, _BLOCK_SAMPLES
            of_order = self._positions, shard, self.seed, epoch
        else:
            own, count = shard
            return _read_only(
                np.arange(start * count + own, stop * count + own, count, dtype=np.int64)
            )
        first, last = start // chunk, (stop - 1) // chunk
        samples = block(*of_order, first)
        if last > first:
            rest = [block(*of_order, number) for number in range(first + 1, last + 1)]
            samples = _read_only(np.concatenate([samples, *rest]))
        return samples[start - first * chunk : stop - first * chunk]

    @functools.cached_property
    def foretells(self) -> bool:
        """Whether ``coming`` names anything."""
        order = self.arrangement
        return order is not None and type(order).coming is not Arrangement.coming

    def foretell(
        self, place: tuple[int, int, int], will_read: Callable[..., None], asked: bool = False
    ) -> None:
        """Tell a source what comes soon after a batch, see ``coming``."""
        if self.foretells:
            for stretch in self.coming(*place, asked=asked):
                will_read(*stretch)

    def coming(self, epoch: int, index: int, origin: int = 0, asked: bool = False) -> list[Stretch]:
        """Stretches of the data set that will be read some time after this batch.

        Over all batches of an epoch, each stretch is named once; of this epoch alone, where batches
        are ``asked`` for, and of the next one's begin, where they are computed.
        """
        if self.arrangement is None or not self.foretells:
            return []
        count = self.shard[1]
        start = max(0, origin + index * self.batch_size * count)
        stop = min(start + self.batch_size * count, self.shard_size * count)
        shard = (self.shard[0] + origin) % count, count  # Whose positions these are from here on.
        return self.arrangement.coming(epoch, start, stop, shard, asked)

    @property
    def elastic(self) -> bool:
        """Whether the global order is the same for every batch size and number of shards."""
        return self.arrangement is None or not self.arrangement.is_grouped

    def fingerprint(self) -> dict[str, Any]:
        """Plain values that tell it from another order, by the names that users know them by."""
        size = self.size or 0
        positions = [size * part // _PROBED for part in range(min(size, _PROBED))]
        way = bool(self.shuffle) if self.arrangement is None else self.arrangement.way
        known = {
            "the number of samples": self.size,
            "batch_size": self.batch_size,
            "shards": self.shard[1],
            "shuffle": way,
            "seed": self.seed,
            "drop_remainder": self.drop_remainder,
            "the order of samples": self.numbers(0, np.array(positions, np.int64)).tolist(),
        }
        if self.arrangement is not None:
            known["the checksum of weights, lengths or sources"] = self.arrangement.checksum
        return known

    def fitted(self, collate: Any) -> Any:
        """A collate that pads, told what lengths it shall pad to where samples are in buckets."""
        buckets: Any = self.arrangement
        if not hasattr(buckets, "bounds") or not hasattr(collate, "within"):
            return collate
        return collate.within(buckets.bounds, buckets.lengths)

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at some positions of the global order."""
        if self.arrangement is not None:
            return self.arrangement.numbers(epoch, positions)
        if not self.shuffle:
            return positions
        return permute(positions, self._positions, (self.seed, epoch, SAMPLES))

    def consumed(self, step: int, origin: int = 0) -> int:
        """Samples that all shards together have consumed before a batch: the first of the order."""
        return origin + step * self.batch_size * self.shard[1]

    def continuation(self, epoch: int, samples: int) -> Continuation | None:
        """The rest of an epoch of whose global order so many samples were consumed.

        They may have been consumed by another number of shards, in batches of another size. What is
        left is dealt out anew, each sample once, but for what doesn't fill all shards.

        Returns:
            None where no batch is left.
        """
        if self.size is None:
            step = -(-samples // self.consumed(1))
            return Continuation(epoch, step, samples - self.consumed(step))
        full, rest = divmod((self.size - samples) // self.shard[1], self.batch_size)
        left = full + (rest > 0 and not self.drop_remainder)
        step = len(self) - left
        return Continuation(epoch, step, samples - self.consumed(step)) if left else None

    def first(self, epoch: int, index: int, origin: int = 0) -> int:
        """Number of the first sample of a batch."""
        if self.shuffle or self.arrangement is not None:
            return int(self.batch(epoch, index, origin)[0])
        return origin + index * self.batch_size * self.shard[1] + self.shard[0]

    def shuffled_batch(self, epoch: int, step: int) -> int:
        """Number of the batch that comes at ``step`` when the batches are permuted as a whole."""
        block = _shuffled_batches(self._batches, self.seed, epoch, step // _BLOCK_SAMPLES)
        return block.item(step % _BLOCK_SAMPLES)


class DrawnOrder(NamedTuple):
    """An order that isn't known ahead: the keys of the batches carry their samples.

    Args:
        batch_size: Samples in most batches.
    """

    batch_size: int


class _Recent:
    """The latest blocks of an arrangement; a batch is asked for several times.

    It belongs to one order, so that what an arrangement remembers is freed with it. Any thread may
    ask.
    """

    def __init__(self) -> None:
        self.block = functools.lru_cache(maxsize=16)(_arranged_block)

    def __reduce__(self) -> Any:
        return _Recent, ()


def _arranged_block(
    arrangement: Arrangement, size: int, shard: tuple[int, int], epoch: int, number: int
) -> NDArray[np.int64]:
    index, count = shard
    start = number * arrangement.chunk
    stop = min(start + arrangement.chunk, size // count)
    positions = np.arange(start * count + index, stop * count + index, count, dtype=np.int64)
    return _read_only(arrangement.numbers(epoch, positions))


def _continued(order: Order, epoch: int, index: int, origin: int) -> NDArray[np.int64]:
    (shard, count), start = order.shard, index * order.batch_size
    stop = start + order.batch_size
    if order.size is not None:
        stop = min(stop, (order.size - origin) // count)
    first = origin + shard
    positions = np.arange(first + start * count, first + stop * count, count, dtype=np.int64)
    return _read_only(order.numbers(epoch, positions))


@functools.lru_cache(maxsize=32)
def _shuffled_block(
    size: int, shard: tuple[int, int], seed: int, epoch: int, number: int
) -> NDArray[np.int64]:
    index, count = shard
    start = number * _BLOCK_SAMPLES
    stop = min(start + _BLOCK_SAMPLES, size // count)
    positions = np.arange(start * count + index, stop * count + index, count, dtype=np.int64)
    return _read_only(permute(positions, size, (seed, epoch, SAMPLES)))


@functools.lru_cache(maxsize=8)
def _shuffled_batches(size: int, seed: int, epoch: int, number: int) -> NDArray[np.int64]:
    start = number * _BLOCK_SAMPLES
    positions = np.arange(start, min(start + _BLOCK_SAMPLES, size), dtype=np.int64)
    return _read_only(permute(positions, size, (seed, epoch, BATCHES)))


def _read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.flags.writeable = False
    return array
