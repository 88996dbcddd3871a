"""Samples of each batch: a function of shard, epoch and batch index, arithmetic only.

A shuffled epoch is a keyed bijection on ``range(size)``, evaluated only for the requested
positions, so neither memory nor start-up time grows with the data set. Any other global order is an
``Arrangement``, evaluated in the same way: in blocks, by weights, by lengths, of a mix.

Shard r of c holds positions r, r + c, r + 2c, ... of the global order. So the batches i of all
shards together are one contiguous stretch of it. All shards are equally long: up to c - 1 positions
at the end of the order belong to no shard in that epoch.
"""

from __future__ import annotations

import abc
import functools
import reprlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import position_of
from adapters.batch.permutation import BATCHES, SAMPLES
from adapters.batch.permutation import permute as permute
from adapters.batch.plan import WHOLE, BatchKey, ResumedEpoch
from adapters.readahead import Window
from adapters.structure import as_array

Stretch = tuple[int, int, Window]
"""First sample number, last sample number + 1, and the window that reads them."""
# Positions mapped at once: the temporaries of a block fit into a core's L2 cache.
_BLOCK = 8192
# Positions whose samples identify an order in its fingerprint.
_PROBED = 16
# Key of a state that counts batches of so many samples over all shards.
_BATCH_OF = "batch of "


class Arrangement(abc.ABC):
    """A global order: maps the positions of an epoch to sample numbers.

    It is a pure function of (epoch, position). So any worker can compute any batch, the state of a
    pass is two integers, and shards deal out positions. It may be called from any thread. It is
    pickled for worker processes, which share its arrays.
    """

    size: int
    """Number of positions in an epoch."""

    @abc.abstractmethod
    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions of an epoch, a new array; both int64 ``(n,)``."""

    def visits(self, number: int) -> bool:
        """Return True if an epoch may visit the sample."""
        return True

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

    def prefetch_hints(
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


def values_of_samples(name: str, values: Any, kind: str) -> NDArray[Any]:
    """Return an argument with one value for each sample, such as a "length", as an array.

    Raises:
        TypeError: Neither numbers nor a sequence.
        ValueError: Of another shape, or empty.
    """
    try:
        array = np.asarray(as_array(values))
        got = f"shape {array.shape}" if array.ndim else reprlib.repr(values)
    except ValueError:  # Lists of unequal lengths.
        array, got = np.empty(()), reprlib.repr(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not len(array):
        wrong = ValueError if array.ndim or array.dtype.kind in "biufc" else TypeError
        raise wrong(f"{name} must have one {kind} for each sample, shape (samples,), got {got}")
    return array


@dataclass(frozen=True, eq=False)
class Order:
    """The order in which one shard, ``(index, count)``, visits the samples, batch by batch."""

    size: int | None
    """Positions in an epoch; None for a data set without an end, which is read in its own order."""
    batch_size: int
    shuffle: bool = False
    seed: int = 0
    drop_remainder: bool = False
    shard: tuple[int, int] = (0, 1)
    arrangement: Arrangement | None = None
    """The global order, if it is neither the data set's nor a full permutation; ``shuffle`` is then
    True."""

    def of_shard(self, shard: tuple[int, int]) -> Order:
        """Return the same order for another shard; the number of shards may differ."""
        arrangement = self.arrangement
        if arrangement is not None:
            arrangement = arrangement.in_groups(self.batch_size * shard[1])
        return replace(self, shard=shard, arrangement=arrangement)

    @functools.cached_property
    def shard_size(self) -> int:
        """Number of samples that this shard visits in an epoch; equal on every shard."""
        if self.size is None:
            raise TypeError("an order without an end has no length")
        return self.size // self.shard[1]

    @functools.cached_property
    def num_batches(self) -> int | None:
        """Number of batches in an epoch; None if it has no end."""
        return None if self.size is None else self._batches(self.shard_size)

    def _batches(self, samples: int) -> int:
        full, rest = divmod(samples, self.batch_size)
        return full + (rest > 0 and not self.drop_remainder)

    def __len__(self) -> int:
        """Number of batches in an epoch, equal on every shard; ``TypeError`` if it has no end."""
        return self.num_batches or self._batches(self.shard_size)

    def batch(self, epoch: int, index: int, origin: int = 0) -> NDArray[np.int64]:
        """Sample numbers of batch ``index`` of ``epoch``, int64 ``(batch,)``; read-only.

        Batch 0 would begin at position ``origin``, see ``resumed``.
        """
        (shard, count), start = self.shard, index * self.batch_size
        stop = start + self.batch_size
        if self.size is not None:
            stop = min(stop, (self.size - origin) // count)
        if origin or not self.shuffle:
            first = origin + shard
            positions = np.arange(
                first + start * count, first + stop * count, count, dtype=np.int64
            )
            return _read_only(self.numbers(epoch, positions))
        first, last = start // _BLOCK, (stop - 1) // _BLOCK
        samples = self._recent(epoch, first)
        if last > first:
            rest = [self._recent(epoch, number) for number in range(first + 1, last + 1)]
            samples = _read_only(np.concatenate([samples, *rest]))
        return samples[start - first * _BLOCK : stop - first * _BLOCK]

    @functools.cached_property
    def _recent(self) -> Callable[[int, int], NDArray[np.int64]]:
        """``_block`` with a cache of the latest ones, as several batches are in each."""
        # Of a copy, so that the cache is freed with this order, without a reference to it.
        return functools.lru_cache(maxsize=16)(replace(self)._block)

    def _block(self, epoch: int, number: int) -> NDArray[np.int64]:
        (index, count), start = self.shard, number * _BLOCK
        stop = min(start + _BLOCK, self.shard_size)
        positions = np.arange(start * count + index, stop * count + index, count, dtype=np.int64)
        return _read_only(self.numbers(epoch, positions))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_recent"}

    def prefetch(
        self, place: tuple[int, int, int], prefetch_hint: Callable[..., None], asked: bool = False
    ) -> None:
        """Send a source hints of the stretches that will be read some time after this batch.

        Over all batches of an epoch, each stretch is named once. When batches are ``asked`` for,
        only this epoch's are named; when they are computed, those at the next one's start too.
        """
        if self.arrangement is None:
            return
        (epoch, index, origin), count = place, self.shard[1]
        start = max(0, origin + index * self.batch_size * count)
        stop = min(start + self.batch_size * count, self.shard_size * count)
        shard = (self.shard[0] + origin) % count, count  # The shard with these positions.
        for stretch in self.arrangement.prefetch_hints(epoch, start, stop, shard, asked):
            prefetch_hint(*stretch)

    @property
    def elastic(self) -> bool:
        """True if the global order is the same for every batch size and number of shards."""
        return self.arrangement is None or not self.arrangement.is_grouped

    def fingerprint(self) -> dict[str, Any]:
        """Plain values that identify the order, by the names that users know."""
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
        """Return a padding collate with the bounds of the buckets, if the order has buckets."""
        buckets = getattr(self.arrangement, "buckets", None)
        if buckets is None or not hasattr(collate, "within"):
            return collate
        return collate.within(buckets.bounds, buckets.lengths)

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at positions of the global order."""
        if self.arrangement is not None:
            return self.arrangement.numbers(epoch, positions)
        if not self.shuffle:
            return positions
        return permute(positions, self.size or 0, (self.seed, epoch, SAMPLES))

    def visits(self, number: int) -> bool:
        """Return True if an epoch may visit the sample."""
        return self.arrangement is None or self.arrangement.visits(number)

    def explanation(self) -> Iterator[str]:
        """Yield a line for a global order of its own, and one for a shard."""
        if self.arrangement is not None:
            yield f"order: {self.arrangement.way}"
        if self.shard[1] > 1:
            samples = "" if self.size is None else f", {self.shard_size} of {self.size}"
            yield f"shard: {self.shard[0]} of {self.shard[1]}{samples}"

    def consumed(self, step: int, origin: int = 0) -> int:
        """Number of samples that all shards together have consumed before a batch."""
        return origin + step * self.batch_size * self.shard[1]

    def resumed(self, epoch: int, samples: int) -> ResumedEpoch | None:
        """Resume an epoch after ``samples`` samples of its global order.

        They may have been consumed by another number of shards, in batches of another size. The
        remaining samples are dealt out again, each once, except those that don't fill all shards.
        None if no batch is left.
        """
        if self.size is None:
            step = -(-samples // self.consumed(1))
            return ResumedEpoch(epoch, step, samples - self.consumed(step))
        left = self._batches((self.size - samples) // self.shard[1])
        step = len(self) - left
        return ResumedEpoch(epoch, step, samples - self.consumed(step)) if left else None

    def state(
        self,
        position: tuple[int, int],
        resumed: ResumedEpoch,
        sharded: bool,
        counts_samples: bool = True,
    ) -> dict[str, int]:
        """State of a position ``(epoch, step)``, see ``state_dict`` of the front ends."""
        epoch, step = position
        resumes = resumed.covers(epoch, step)
        if self.elastic and counts_samples and (resumes or sharded):
            origin = resumed.origin if resumes else 0
            return {"epoch": epoch, "samples": self.consumed(step, origin)}
        grouped = step and sharded and not self.elastic
        return {"epoch": epoch, f"{_BATCH_OF}{self.consumed(1)}" if grouped else "batch": step}

    def count_in(
        self, state: Any, num_batches: Callable[[int], int | None], kind: str
    ) -> tuple[int, int, str]:
        """Read the epoch from a state, and how many of which unit are consumed.

        The unit is "samples", "batch", or "batch of N" with N samples over all shards. With fewer
        shards, an epoch may have one of these more than here. ``num_batches`` of an epoch is None
        if it is unknown. ``kind`` is ``"sequence"`` or ``"loader"``, for messages.
        """
        names = state if isinstance(state, dict) else ()
        if self.elastic and "samples" in names:
            found = position_of(state, lambda epoch: self.size, kind, "samples", "data set")
            return (*found, "samples")
        samples, units = self.consumed(1), [n for n in names if str(n).startswith(_BATCH_OF)]
        if not units:
            return (*position_of(state, num_batches, kind), "batch")
        if units != [f"{_BATCH_OF}{samples}"]:
            raise ValueError(
                f"state must count batches of {samples} samples over all shards, as they have "
                f"here, got {state!r}: the rest of an epoch with bucket_by depends on that; resume "
                "with a batch_size and shards that make as many, or from the end of an epoch"
            )
        most = None if self.size is None else -(-self.size // samples)
        return (*position_of(state, lambda epoch: most, kind, units[0]), units[0])

    def start_after(self, epoch: int, count: int, unit: str) -> tuple[int, int, ResumedEpoch]:
        """Epoch, step and ``ResumedEpoch`` of the batch after so many of a unit."""
        if unit == "samples":
            resumed = self.resumed(epoch, count) if count else WHOLE
            return (epoch + 1, 0, WHOLE) if resumed is None else (epoch, resumed.step, resumed)
        over = unit != "batch" and self.num_batches is not None and count >= self.num_batches
        # The rest doesn't fill all shards.
        return (epoch + 1, 0, WHOLE) if over else (epoch, count, WHOLE)

    def shuffled_batch(self, epoch: int, step: int) -> int:
        """Number of the batch at ``step`` when whole batches are permuted."""
        block = _shuffled_batches(len(self), self.seed, epoch, step // _BLOCK)
        return block.item(step % _BLOCK)


# --- keys of a batch computed again ---

# If an epoch resumes with other shards or another batch size, its remaining samples are distributed
# again: the keys of its later batches have an origin. The sequence that resumed the epoch knows it;
# another process computes it from the state that was loaded.


def replayed_epoch(
    own: ResumedEpoch, order: Order, epoch: int, state: Any, kind: str
) -> ResumedEpoch:
    """The resumed epoch to replay from: that of the state, or ``own`` without one.

    ``kind`` is ``"sequence"`` or ``"loader"``, for messages.
    """
    if state is None:
        return own if own.epoch == epoch else WHOLE
    saved_epoch, count, unit = order.count_in(state, lambda epoch: len(order), kind)
    if saved_epoch != epoch:
        raise ValueError(
            f"state must be of epoch {epoch}, which it was loaded in the middle of, got {state!r}: "
            "leave it out for an epoch that wasn't interrupted"
        )
    resumed = order.resumed(epoch, count) if unit == "samples" else None
    return WHOLE if resumed is None else resumed._replace(others=True)


def replayed_key(
    resumed: ResumedEpoch,
    order: Order,
    epoch: int,
    index: int,
    number: Callable[[int, int], int] | None = None,
) -> BatchKey:
    """The key of a batch of an epoch that may have been resumed in the middle.

    ``number`` maps a step to a batch, if ``index`` counts batches as ``fit`` consumes them.
    """
    differs = resumed.epoch == epoch and (resumed.origin or resumed.others)
    if differs and index < resumed.step:
        consumed = order.consumed(resumed.step, resumed.origin)
        raise ValueError(
            f"batch must be >= {resumed.step}, as the first {consumed} samples of epoch "
            f"{epoch} were in batches of another size or number of shards: replay those with a "
            f"sequence or loader of that batch_size and shard, got {index}"
        )
    return resumed.key(epoch, index, number)


# --- orders that are drawn ---


class DrawnOrder(NamedTuple):
    """An order that isn't known ahead: the keys of the batches carry their samples."""

    batch_size: int
    num_batches: int | None = None


@functools.lru_cache(maxsize=8)
def _shuffled_batches(size: int, seed: int, epoch: int, number: int) -> NDArray[np.int64]:
    start = number * _BLOCK
    positions = np.arange(start, min(start + _BLOCK, size), dtype=np.int64)
    return _read_only(permute(positions, size, (seed, epoch, BATCHES)))


def _read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.flags.writeable = False
    return array
