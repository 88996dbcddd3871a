"""``mix``: several sources as one whose order draws from each by its share.

::

    position --schedule--> (source, draw k) --own epoch k // n, place k % n--> sample

Samples are numbered as in a concatenation, so that batches are gathered, filled and fetched one
source at a time. The source has its own order: a loader gets it from ``Source.arranged``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from adapters.batch.arranging import blocks_of, bytes_of_samples
from adapters.batch.order import Arrangement
from adapters.batch.permutation import MIXED, chosen, permute_each, uniform
from adapters.selecting.given import sources_given
from adapters.selecting.schedule import Schedule, schedule_of
from adapters.sources import Concatenation, Source

# Largest denominator of a float weight; the error is far smaller.
_MOST_PARTS = 10**9


def mix(
    sources: Iterable[Any],
    weights: Sequence[float] | None = None,
    *,
    temperature: float = 1.0,
    stop: Literal["first", "last"] = "first",
    replacement: bool = False,
) -> Source:
    """Mix several sources: batches draw from each by its share.

    Shares are exact. After any number of samples from the start of an epoch, each source has given
    its share of them to within less than one sample; over any other stretch, to within less than
    two. This holds for all shards together; a single shard is off by up to a tenth of its samples.
    Weights without a common denominator up to 131,072 are rounded to one, see ``shares`` of the
    result.

    Each source goes through its own epochs: each of its samples comes once before any comes again,
    even across epochs of the mix. With ``shuffle``, each of these epochs has a new order;
    ``shuffle="blocks"`` orders each source in blocks.

    Args:
        sources: Anything that ``SafeSequence`` takes as a source of samples, and results of
            ``mix``. All samples have one structure, shape and dtype.
        weights: Weight of each source, above 0, in any unit; None for the sources' sizes.
        temperature: Weights are raised to ``1 / temperature``. Above 1, small sources come more
            often than their weights say; ``float("inf")`` makes all weights equal.
        stop: With ``"first"``, an epoch ends before the first source would start again; with
            ``"last"``, when the last source has been read once, while others repeat.
        replacement: Draw each source's samples at random with replacement instead.

    Returns:
        A source for ``SafeSequence`` and ``gluon_loader``. ``[i]`` and ``len`` are those of the
            concatenated sources.

    Raises:
        TypeError: Not a list of sources, or a source of whole batches.
        ValueError: Invalid weights or temperature, samples that differ, or ``classes`` that give
            one label several names.

    Example:
        >>> import numpy as np
        >>> from adapters import SafeSequence, mix
        >>> whole = mix([np.zeros(90), np.ones(30)], weights=[3, 1])
        >>> seq = SafeSequence(whole, 40, shuffle=True, workers=0)
        >>> [int(batch.sum()) for batch in seq]
        [10, 10, 10]
    """
    given = sources_given(sources)
    if stop not in ("first", "last"):
        raise ValueError(f'stop must be "first" or "last", got {stop!r}')
    if not isinstance(replacement, (bool, np.bool_)):
        raise TypeError(f"replacement must be True or False, got {replacement!r}")
    shares = _shares(weights, [len(source) for source in given], temperature)
    return Mix(given, schedule_of(shares), stop, bool(replacement))


class Mix(Concatenation):
    """Several sources with a mixed order; made by ``mix``."""

    def __init__(
        self, sources: Sequence[Source], schedule: Schedule, stop: str, replacement: bool
    ) -> None:
        super().__init__(sources)
        self._sources = list(sources)
        self._schedule = schedule
        self._stop = stop
        self._replacement = replacement

    @property
    def shares(self) -> list[Fraction]:
        """Share of each source."""
        return self._schedule.shares

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        ways = dict.fromkeys(source.way(transformed) for source in self._sources)
        return f"{_told(self.shares)} of {len(self._sources)} sources: {'; '.join(ways)}"

    def select(self, numbers: Any) -> NoReturn:
        """Raise an error: a part of a mix would not have its shares."""
        raise TypeError(
            "source must not be a mix to be selected from or split, as its shares would be lost: "
            "select from its sources, and mix what comes of that"
        )

    def arranged(self, shuffle: Any, seed: int, tolerant: bool = False) -> MixOrder:
        """Return the order of the mix."""
        blocks = blocks_of(shuffle)
        own: list[Arrangement | None] = []
        for place, source in enumerate(self._sources):
            key = chosen(1 << 62, (seed, MIXED, place))
            arrangement: Arrangement | None = source.arranged(shuffle, key, tolerant)
            if arrangement is None and blocks is not None and not self._replacement:
                arranged = blocks.of(len(source), bytes_of_samples(source, tolerant), key)
                # A single block is permuted instead: all epochs at once, however short.
                arrangement = arranged if arranged.blocks > 1 else None
            own.append(arrangement)
        return MixOrder(
            self._schedule,
            list(map(len, self._sources)),
            own,
            bool(shuffle),
            seed,
            self._stop,
            self._replacement,
        )


class MixOrder(Arrangement):
    """Global order of a mix.

    ``own`` has the order of each source; None if the source is permuted, or read in order.
    """

    def __init__(
        self,
        schedule: Schedule,
        lengths: Sequence[int],
        own: Sequence[Arrangement | None],
        shuffle: bool,
        seed: int,
        stop: str,
        replacement: bool,
    ) -> None:
        self._schedule, self._own = schedule, list(own)
        self._starts = np.cumsum([0, *lengths]).tolist()
        sizes = [n if each is None else each.size for n, each in zip(lengths, own)]
        self._sizes = sizes
        self._shuffle, self._seed, self._replacement = shuffle, seed, replacement
        ends = (schedule.position_of(at, size - (stop == "last")) for at, size in enumerate(sizes))
        self.size = max(ends) + 1 if stop == "last" else min(ends)
        # Draws of each source in an epoch of the mix.
        self._draws = schedule.draws_before(self.size)

    @property
    def is_random(self) -> bool:
        """True if the order depends on a seed."""
        nested = any(each is not None and each.is_random for each in self._own)
        return self._shuffle or self._replacement or nested

    @property
    def way(self) -> str:
        """Human-readable description of the order."""
        told = f"mixed by shares of {_told(self._schedule.shares)}, {self.size} in an epoch"
        return told + (", with replacement" if self._replacement else "")

    @property
    def tables(self) -> list[NDArray[Any]]:
        """Arrays of the schedule, the starts of the sources, and their own orders."""
        nested = [table for own in self._own if own is not None for table in own.tables]
        return [self._schedule.source, np.array(self._starts), *nested]

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sample numbers at these positions."""
        numbers = np.empty(len(positions), np.int64)
        sources, draws = self._schedule.at(positions)
        grouped = sources.argsort(kind="stable")
        ends = np.cumsum(np.bincount(sources)).tolist()
        for at, (begin, end) in enumerate(zip([0, *ends], ends)):
            if begin < end:
                places = grouped[begin:end]
                own = draws[places] + epoch * int(self._draws[at])
                numbers[places] = self._starts[at] + self._of_source(at, own)
        return numbers

    def _of_source(self, at: int, draws: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sample numbers, within a source, of these draws of it."""
        size, key = self._sizes[at], (self._seed, MIXED, at)
        own = self._own[at]
        first, last = int(draws.min()) // size, int(draws.max()) // size
        if first == last and own is None and not self._replacement:
            places = draws - first * size
            return permute_each(places, size, key, first) if self._shuffle else places
        epochs, places = np.divmod(draws, size)
        if self._replacement:
            places = (uniform(draws, key) * size).astype(np.int64)
            if own is None:
                return places
        if own is None:
            return permute_each(places, size, key, epochs) if self._shuffle else places
        found = np.empty(len(draws), np.int64)
        for epoch in np.unique(epochs).tolist():
            inside = np.flatnonzero(epochs == epoch)
            found[inside] = own.numbers(epoch, places[inside])
        return found


def _shares(weights: Any, sizes: Sequence[int], temperature: Any) -> list[Fraction]:
    """Compute shares that sum to 1."""
    if isinstance(temperature, bool) or not isinstance(
        temperature, (int, float, np.integer, np.floating)
    ):
        raise TypeError(f"temperature must be a number above 0, got {temperature!r}")
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature!r}")
    given = list(sizes) if weights is None else weights
    if isinstance(given, (str, bytes, dict, set, frozenset)) or not hasattr(given, "__iter__"):
        raise TypeError(f"weights must be a list of numbers such as [3, 1], got {weights!r}")
    given = list(given)
    if len(given) != len(sizes):
        raise ValueError(
            f"weights must have one number for each of the {len(sizes)} sources, got {len(given)}"
        )
    for place, value in enumerate(given):
        number = isinstance(value, (int, float, np.integer, np.floating, Fraction))
        if isinstance(value, bool) or not number:
            raise TypeError(f"weights must be numbers, got {value!r} as weights[{place}]")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(
                f"weights must be finite and above 0, got {value!r} as weights[{place}]; leave the "
                "source out"
            )
    if temperature != 1:
        largest = max(map(float, given))
        given = [(float(value) / largest) ** (1 / temperature) for value in given]
    written = [_written(value) for value in given]
    total = sum(written, Fraction(0))
    return [each / total for each in written]


def _written(value: Any) -> Fraction:
    """Convert as it was meant: 0.1 is a tenth, and 1 / 3 a third."""
    if isinstance(value, (int, np.integer)):
        return Fraction(int(value))
    if isinstance(value, Fraction):
        return value
    exact = Fraction(float(value))
    simple = exact.limit_denominator(_MOST_PARTS)
    return simple if simple and float(simple) == float(value) else exact


def _told(shares: Sequence[Fraction]) -> str:
    return " : ".join(f"{float(share):.4g}" for share in shares)
