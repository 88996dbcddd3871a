"""Which samples make batch i of epoch e on shard r: arithmetic only.

A shuffled epoch is a keyed bijection on ``range(size)``, evaluated for just the positions that are
asked for, so that neither memory nor start-up time grows with the data set. The bijection is an
alternating Feistel network [1]_ on the smallest power of two that holds ``size`` (at least 64);
images outside ``range(size)`` are mapped again until they fall inside, which keeps it a bijection
and takes less than two turns on average (more for less than 32 samples).

Shard r of c holds positions r, r + c, r + 2c, ... of the one global order, so that the batches i of
all shards together are one contiguous stretch of it. All shards are equally long: the up to c - 1
positions that are left over at the end of the order belong to no shard in that epoch.

.. [1] B. Morris, P. Rogaway, T. Stegers, "How to encipher messages on a small domain", CRYPTO 2009.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    _Round = Callable[[NDArray[np.int64]], NDArray[np.integer[Any]]]

# Rounds until the pair statistics in tests/batch/ can't tell the result from NumPy's own
# permutation, doubled.
_ROUNDS = 8
# Positions that are mapped at once: the temporaries of a block fit into a core's L2 cache.
_BLOCK_SAMPLES = 8192
# Below this, halves of one or two bits leave a bias that a chi-square test sees (sizes 5 and 7).
_MIN_BITS = 6
# What a key is for: samples and batch numbers of one epoch must not share a permutation.
_SAMPLES, _BATCHES = 0, 1


@dataclass(frozen=True)
class Order:
    """The order in which one shard visits the samples of a data set, batch by batch.

    Args:
        size: Samples in the data set.
        batch_size: Samples in a batch.
        shuffle: Permute the samples, differently in every epoch.
        seed: Non-negative; same seed, same order.
        drop_remainder: Leave out the last batch when it isn't full.
        shard: ``(index, count)``.
    """

    size: int
    batch_size: int
    shuffle: bool = False
    seed: int = 0
    drop_remainder: bool = False
    shard: tuple[int, int] = (0, 1)

    @property
    def shard_size(self) -> int:
        """Samples that this shard visits in an epoch; the same number on every shard."""
        return self.size // self.shard[1]

    @functools.cached_property
    def _batches(self) -> int:
        full, rest = divmod(self.shard_size, self.batch_size)
        return full + (rest > 0 and not self.drop_remainder)

    def __len__(self) -> int:
        """Batches in an epoch; the same number on every shard."""
        return self._batches

    def batch(self, epoch: int, index: int) -> NDArray[np.int64]:
        """Sample numbers of batch ``index`` of ``epoch``, int64 ``(batch,)``; read-only."""
        start = index * self.batch_size
        stop = min(start + self.batch_size, self.shard_size)
        if not self.shuffle:
            shard, count = self.shard
            return _read_only(
                np.arange(start * count + shard, stop * count + shard, count, dtype=np.int64)
            )
        first, last = start // _BLOCK_SAMPLES, (stop - 1) // _BLOCK_SAMPLES
        samples = _shuffled_block(self.size, self.shard, self.seed, epoch, first)
        if last > first:
            blocks = [
                _shuffled_block(self.size, self.shard, self.seed, epoch, number)
                for number in range(first, last + 1)
            ]
            samples = _read_only(np.concatenate(blocks))
        offset = first * _BLOCK_SAMPLES
        return samples[start - offset : stop - offset]

    def first(self, epoch: int, index: int) -> int:
        """Number of the first sample of a batch."""
        if self.shuffle:
            return int(self.batch(epoch, index)[0])
        return index * self.batch_size * self.shard[1] + self.shard[0]

    def shuffled_batch(self, epoch: int, step: int) -> int:
        """Number of the batch that comes at ``step`` when the batches are permuted as a whole."""
        return int(
            _shuffled_batches(self._batches, self.seed, epoch, step // _BLOCK_SAMPLES)[
                step % _BLOCK_SAMPLES
            ]
        )


@dataclass(frozen=True)
class DrawnOrder:
    """An order that isn't known ahead: the keys of the batches carry their samples.

    Args:
        batch_size: Samples in most batches.
    """

    batch_size: int


@functools.lru_cache(maxsize=32)
def _shuffled_block(
    size: int, shard: tuple[int, int], seed: int, epoch: int, number: int
) -> NDArray[np.int64]:
    index, count = shard
    start = number * _BLOCK_SAMPLES
    stop = min(start + _BLOCK_SAMPLES, size // count)
    positions = np.arange(start * count + index, stop * count + index, count, dtype=np.int64)
    return _read_only(permute(positions, size, (seed, epoch, _SAMPLES)))


@functools.lru_cache(maxsize=8)
def _shuffled_batches(size: int, seed: int, epoch: int, number: int) -> NDArray[np.int64]:
    start = number * _BLOCK_SAMPLES
    positions = np.arange(start, min(start + _BLOCK_SAMPLES, size), dtype=np.int64)
    return _read_only(permute(positions, size, (seed, epoch, _BATCHES)))


def _read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.flags.writeable = False
    return array


def permute(positions: NDArray[np.int64], size: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Map positions in ``range(size)`` by the bijection that ``key`` names.

    Args:
        positions: int64 ``(n,)``, each in ``range(size)``.
        size: Below 2**62.
        key: Non-negative integers of any size.

    Returns:
        int64 ``(n,)``.
    """
    bits = max(_MIN_BITS, (size - 1).bit_length())
    # A table of all halves is cheaper than mixing each half where there are fewer of them.
    rounds = _rounds(bits, key, 1 << (bits - bits // 2) <= len(positions))
    images = _feistel(positions, bits, rounds)
    outside = np.flatnonzero(images >= size)
    while outside.size:
        images[outside] = again = _feistel(images[outside], bits, rounds)
        outside = outside[again >= size]
    return images


# Worth it: 160 against 240 us for a block (60,000 samples).
@functools.lru_cache(maxsize=4)
def _rounds(bits: int, key: tuple[int, ...], tabulated: bool) -> list[_Round]:
    round_keys = np.random.SeedSequence(key).generate_state(_ROUNDS).astype(np.uint32)
    return [_round(bits, number, each, tabulated) for number, each in enumerate(round_keys)]


def _round(bits: int, number: int, key: np.uint32, tabulated: bool) -> _Round:
    """What the one half is masked with, as a function of the other: the low one first."""
    low_bits = bits // 2
    known, masked = (low_bits, bits - low_bits) if number % 2 else (bits - low_bits, low_bits)
    mask = np.uint32((1 << masked) - 1)
    if tabulated:
        table = _mix(np.arange(1 << known, dtype=np.uint32), key) & mask
        images: NDArray[np.int64] = table.astype(np.int64)
        return images.take
    return lambda half: _mix(half.astype(np.uint32), key) & mask


def _feistel(values: NDArray[np.int64], bits: int, rounds: list[_Round]) -> NDArray[np.int64]:
    """One pass over ``range(2**bits)``: the two halves take turns in masking each other."""
    low_bits = bits // 2
    low, high = values & np.int64((1 << low_bits) - 1), values >> low_bits
    for number, masks in enumerate(rounds):
        if number % 2:
            high ^= masks(low)
        else:
            low ^= masks(high)
    high <<= low_bits
    high |= low
    return high


def _mix(half: NDArray[np.uint32], key: np.uint32) -> NDArray[np.uint32]:
    """MurmurHash3's 32-bit finaliser: every bit of ``half`` and ``key`` reaches every bit out."""
    mixed = half ^ key
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed
