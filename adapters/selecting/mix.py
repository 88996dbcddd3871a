"""``mix``: several sources as one whose order draws from each by its share.

::

    position --schedule--> (source, draw k) --own epoch k // n, place k % n--> sample

Samples are numbered as in a concatenation, so that batches are gathered, filled and fetched one
source at a time. The source has its own order: a loader gets it from ``Source.arranged``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_above, check_flag
from adapters.batch.arranging import blocks_of, bytes_of_samples
from adapters.batch.order import Arrangement
from adapters.batch.permutation import MIXED, chosen, permute_each, uniform
from adapters.sources import Source, sources_given
from adapters.sources.concatenation import Concatenation

# Largest denominator of a float weight; the error is far smaller.
_MOST_PARTS = 10**9
# Most positions of a table: 0.5 MB, and 80 ms to make it (2 cores, 2026-11).
_MOST_POSITIONS = 1 << 17
_WANTED_POSITIONS = 1 << 16
# Part of its own interval by which a draw is moved; the first that keeps the bound.
_MOVES = (0.98, 0.75, 0.5, 0.25, 0.1, 0.0)
# Swaps of all neighbours: 1 ms each. With 8, shares of 4 : 3 : 2 : 1 are off by 16% on 10 shards,
# with 32 or more by 12%.
_SWEEPS = 32


def mix(
    sources: Iterable[Any],
    weights: Sequence[float] | None = None,
    *,
    temperature: float = 1.0,
    stop: Literal["first", "last"] = "first",
    replacement: bool = False,
) -> Mix:
    """Mix several sources: batches draw from each by its share.

    Shares are exact. After any number of samples from the start of an epoch, each source has given
    its share of them to within less than one sample; over any other stretch, to within less than
    two. This holds for all shards together; a single shard is off by up to a fifth of its samples.
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
    check_flag("replacement", replacement)
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
        return f"{_percentages(self.shares)} of {len(self._sources)} sources: {'; '.join(ways)}"

    def select(self, numbers: Any) -> NoReturn:
        """Raise an error: a part of a mix would not have its shares."""
        raise TypeError(
            "source must not be a mix to be selected from or split, as its shares would be lost: "
            "select from its sources, and mix what comes of that"
        )

    def arranged(self, shuffle: Any, seed: int) -> MixOrder:
        """Return the order of the mix."""
        blocks = blocks_of(shuffle)
        own: list[Arrangement | None] = []
        for place, source in enumerate(self._sources):
            key = chosen(1 << 62, (seed, MIXED, place))
            arrangement: Arrangement | None = source.arranged(shuffle, key)
            if arrangement is None and blocks is not None and not self._replacement:
                arranged = blocks.of(len(source), bytes_of_samples(source), key)
                # A single block is permuted instead: all epochs at once, however short.
                arrangement = arranged if arranged.blocks > 1 else None
            own.append(arrangement)
        lengths, is_last = list(map(len, self._sources)), self._stop == "last"
        sizes = [n if each is None else each.size for n, each in zip(lengths, own)]
        position = self._schedule.position_of
        ends = [position(at, each - is_last) for at, each in enumerate(sizes)]
        return MixOrder(
            self._schedule,
            np.cumsum([0, *lengths]).tolist(),
            sizes,
            own,
            bool(shuffle),
            seed,
            self._replacement,
            max(ends) + 1 if is_last else min(ends),
        )


@dataclass(eq=False, repr=False)
class MixOrder(Arrangement):
    """Global order of a mix.

    ``_own`` has the order of each source; None if the source is permuted, or read in order.
    """

    _schedule: Schedule
    _starts: list[int]
    _sizes: list[int]
    _own: list[Arrangement | None]
    _shuffle: bool
    _seed: int
    _replacement: bool
    size: int
    """Number of positions in an epoch."""

    def __post_init__(self) -> None:
        # Draws of each source in an epoch of the mix.
        self._draws = self._schedule.draws_before(self.size)

    @property
    def is_random(self) -> bool:
        """True if the order depends on a seed."""
        nested = any(each is not None and each.is_random for each in self._own)
        return self._shuffle or self._replacement or nested

    @property
    def way(self) -> str:
        """Human-readable description of the order."""
        way = f"mixed by shares of {_percentages(self._schedule.shares)}, {self.size} in an epoch"
        return way + (", with replacement" if self._replacement else "")

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
        size, key, own = self._sizes[at], (self._seed, MIXED, at), self._own[at]
        epochs, places = np.divmod(draws, size)
        if self._replacement:
            places = (uniform(draws, key) * size).astype(np.int64)
        if own is None:
            is_permuted = self._shuffle and not self._replacement
            return permute_each(places, size, key, epochs) if is_permuted else places
        found = np.empty(len(draws), np.int64)
        for epoch in np.unique(epochs).tolist():
            inside = np.flatnonzero(epochs == epoch)
            found[inside] = own.numbers(epoch, places[inside])
        return found


def _shares(weights: Any, sizes: Sequence[int], temperature: Any) -> list[Fraction]:
    check_above("temperature", temperature, 0)
    given = list(sizes) if weights is None else numbers_given("weights", weights)
    if len(given) != len(sizes):
        raise ValueError(
            f"weights must have one number for each of the {len(sizes)} sources, got {len(given)}"
        )
    for place, value in enumerate(given):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(
                f"weights must be finite and above 0, got {value!r} as weights[{place}]; leave the "
                "source out"
            )
    if temperature != 1:
        largest = max(map(float, given))
        given = [(float(value) / largest) ** (1 / temperature) for value in given]
    fractions = [written(value) for value in given]
    total = sum(fractions, Fraction(0))
    return [each / total for each in fractions]


def numbers_given(name: str, values: Any) -> list[Any]:
    """Check that an argument is a list of numbers."""
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a list of numbers such as [0.8, 0.2], got {values!r}")
    given = list(values)
    for place, value in enumerate(given):
        is_number = hasattr(value, "__float__") and not isinstance(value, (bool, np.bool_))
        if not is_number or np.ndim(value):
            raise TypeError(f"{name} must be numbers, got {value!r} as {name}[{place}]")
    return given


def written(value: Any) -> Fraction:
    """Convert a number as it was meant: 0.1 is a tenth, and 1 / 3 a third."""
    try:
        exact = Fraction(str(value))
    except ValueError:  # A tensor's text isn't a number.
        exact = Fraction(float(value))
    simple = exact.limit_denominator(_MOST_PARTS)
    return simple if float(simple) == float(value) else exact


def _percentages(shares: Sequence[Fraction]) -> str:
    return " : ".join(f"{float(share):.4g}" for share in shares)


# --- schedule ---


@dataclass(frozen=True, eq=False)
class Schedule:
    """One period of a mix: its source at each position.

    ::

        shares 1/2, 1/4, 1/4     a b a c c a b a  a c a b ...   one period, read again and again

    After P positions, a source of share s has been drawn s * P times, up or down by less than 1;
    over any other stretch, by less than 2. Sources that are due at the same time come in an order
    that looks random. Without that, shards, which take every c-th position, might each get one
    source only.

    Draw k of a source is due at (k + 1/2) / s, moved at random as far as the bound allows; the
    draws are sorted by that time. If even unmoved draws exceed the bound, as may happen with four
    or more sources, the earliest deadline comes first [1]_, which always keeps it. Then neighbours
    are swapped at random where the bound allows it: with three or more sources, draws can't be
    moved far enough for shards to get all of them.

    .. [1] R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980).
    """

    source: NDArray[np.int16]  # At each position, ``(positions,)``.
    draw: NDArray[np.int32]  # Its number among the source's draws in the period.
    counts: NDArray[np.int64]  # Draws of each source in the period.

    def __len__(self) -> int:
        """Number of positions in the period."""
        return len(self.source)

    @property
    def shares(self) -> list[Fraction]:
        """Exact share of each source."""
        return [Fraction(int(count), len(self)) for count in self.counts]

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Sources at these positions, and the numbers of their draws, from 0."""
        period, place = np.divmod(positions, len(self))
        sources = self.source[place]
        draws: NDArray[np.int64] = period * self.counts[sources]
        draws += self.draw[place]
        return sources, draws

    def position_of(self, source: int, draw: int) -> int:
        """Position of a source's draw."""
        period, place = divmod(draw, int(self.counts[source]))
        return period * len(self) + int(np.flatnonzero(self.source == source)[place])

    def draws_before(self, position: int) -> NDArray[np.int64]:
        """Number of draws of each source before a position."""
        period, place = divmod(position, len(self))
        inside = np.bincount(self.source[:place], minlength=len(self.counts))
        return period * self.counts + inside


def schedule_of(shares: Sequence[Fraction]) -> Schedule:
    """Make a period for shares that sum to 1.

    If their common denominator is too large for a table, they are rounded to the one that fits
    best; ``Schedule.shares`` are then the rounded shares.
    """
    whole = math.lcm(*(share.denominator for share in shares))
    if whole <= _MOST_POSITIONS:
        counts = np.array([int(share * whole) for share in shares])
    else:
        counts = _rounded(np.array([float(share) for share in shares]))
    whole = int(counts.sum())
    times = max(1, _WANTED_POSITIONS // whole)
    orders = (_sorted(counts * times, move) for move in _MOVES)
    order = next((each for each in orders if _keeps_bound(each, counts * times)), None)
    if order is None:
        order = np.tile(_by_deadline(counts), times)
    return Schedule(order, _swapped(order, counts * times), counts * times)


def _rounded(shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draws of each source in the period that meets the shares best."""
    periods = np.arange(_MOST_POSITIONS // 2, _MOST_POSITIONS + 1)[:, np.newaxis]
    counts = np.rint(periods * shares)
    drift = np.abs(counts / periods - shares).max(1)
    drift[(counts.sum(1) != periods[:, 0]) | (counts.min(1) < 1)] = np.inf
    best = int(drift.argmin())
    if not np.isfinite(drift[best]):
        raise ValueError(
            f"weights must give each source a share of 1/{_MOST_POSITIONS:,} or more, got "
            f"{shares.min():.2g} for one; raise its weight, or the temperature"
        )
    rounded: NDArray[np.int64] = counts[best].astype(np.int64)
    return rounded


def _sorted(counts: NDArray[np.int64], move: float) -> NDArray[np.int16]:
    """Order sources by the times at which their draws are due."""
    owner = np.repeat(np.arange(len(counts), dtype=np.int16), counts)
    draw = np.concatenate([np.arange(count) for count in counts.tolist()])
    moved = (uniform(np.arange(len(owner)), (0,)) - 0.5) * move
    sources: NDArray[np.int16] = owner[
        np.argsort((draw + 0.5 + moved) / counts[owner], kind="stable")
    ]
    return sources


def _limits(order: NDArray[np.int16], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Draw at each position, and the first and last position that the bound allows it."""
    draw = np.empty(len(order), np.int64)
    for source, count in enumerate(counts.tolist()):
        draw[order == source] = np.arange(count)
    positions, own = draw * len(order), counts[order]
    return np.stack([draw, positions // own, -(-(positions + len(order)) // own) - 1])


def _keeps_bound(order: NDArray[np.int16], counts: NDArray[np.int64]) -> bool:
    """True if each source is off by less than 1 at all positions."""
    (_, first, last), positions = _limits(order, counts), np.arange(len(order))
    return bool(((first <= positions) & (positions <= last)).all())


def _swapped(order: NDArray[np.int16], counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Swap neighbours at random within the bound, in place; return the draw at each position."""
    draw, first, last = _limits(order, counts)
    coins = (uniform(np.arange(len(order)), (1,)) * (1 << _SWEEPS)).astype(np.int64)
    for sweep in range(_SWEEPS):
        ones, others = slice(sweep % 2, len(order) - 1, 2), slice(sweep % 2 + 1, None, 2)
        one = np.arange(len(order))[ones]
        fits = (first[others] <= one) & (one < last[ones]) & (order[ones] != order[others])
        one = one[fits & (coins[ones] >> sweep & 1 > 0)]
        for each in (order, draw, first, last):
            each[one], each[one + 1] = each[one + 1], each[one]
    return np.asarray(draw, np.int32)


def _by_deadline(counts: NDArray[np.int64]) -> NDArray[np.int16]:
    """Order sources so that the draw with the earliest deadline comes first."""
    whole, slack, sources = int(counts.sum()), 2 * len(counts) - 2, counts.tolist()

    def next_draw(source: int, draw: int) -> tuple[int, float, int, int]:
        """Position from which a draw is ready, its deadline, its source and its number."""
        begin = -(-(draw * slack + 1) * whole // (slack * sources[source]))
        return begin, ((draw + 1) * slack - 1) * whole / sources[source], source, draw

    waiting = [next_draw(source, 0) for source in range(len(sources))]
    heapq.heapify(waiting)
    ready: list[tuple[float, int, int]] = []
    order = np.empty(whole, np.int16)
    for position in range(1, whole + 1):
        while waiting and waiting[0][0] <= position:
            heapq.heappush(ready, heapq.heappop(waiting)[1:])
        _, source, draw = heapq.heappop(ready)
        order[position - 1] = source
        heapq.heappush(waiting, next_draw(source, draw + 1))
    return order
