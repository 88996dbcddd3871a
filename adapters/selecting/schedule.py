"""Source at each position of a mix, with exact shares over every stretch from the start.

::

    shares 1/2, 1/4, 1/4     a b a c c a b a  a c a b ...     one period, read again and again

After P positions, a source of share s has been drawn s * P times, up or down by less than 1; over
any other stretch, by less than 2. Sources that are due at the same time come in an order that looks
random. Without that, shards, which take every c-th position, might each get one source only.

Draw k of a source is due at (k + 1/2) / s, moved at random as far as the bound allows; the draws
are sorted by that time. If even unmoved draws exceed the bound, as may happen with four or more
sources, the earliest deadline comes first [1]_, which always keeps it.

.. [1] R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from adapters.batch.permutation import uniform

# Most positions of a table: 0.5 MB, and 20 ms to make it (2 cores, 2026-11).
_MOST_POSITIONS = 1 << 17
_WANTED_POSITIONS = 1 << 16
# Part of its own interval by which a draw is moved; the first that keeps the bound.
_MOVES = (0.98, 0.75, 0.5, 0.25, 0.1, 0.0)


@dataclass(frozen=True, eq=False)
class Schedule:
    """One period of a mix.

    Args:
        source: Source at each position, ``(positions,)``.
        draw: Number of that draw among the source's draws in the period, ``(positions,)``.
        counts: Draws of each source in the period.
    """

    source: NDArray[np.int16]
    draw: NDArray[np.int32]
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of positions in the period."""
        return len(self.source)

    @property
    def shares(self) -> list[Fraction]:
        """Exact share of each source."""
        return [Fraction(int(count), len(self)) for count in self.counts]

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Sources at these positions, and the numbers of their draws, from 0."""
        # Worth it: a division per position takes longer than everything else.
        period = positions[0] // len(self) if len(positions) else 0
        place = positions - period * len(self)
        if len(positions) and (place.min() < 0 or place.max() >= len(self)):
            period, place = np.divmod(positions, len(self))
        sources, draws = self.source[place], self.draw[place].astype(np.int64)
        return sources, draws + period * self.counts[sources] if np.any(period) else draws

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
    for move in _MOVES:
        order = _sorted(counts * times, move)
        if _keeps_bound(order, counts * times):
            return _schedule(order, counts * times)
    return _schedule(_by_deadline(counts), counts)


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


def _keeps_bound(order: NDArray[np.int16], counts: NDArray[np.int64]) -> bool:
    """True if each source is off by less than 1 at all positions."""
    whole = len(order)
    for source, count in enumerate(counts.tolist()):
        places = np.flatnonzero(order == source)
        drawn = np.arange(count)
        # A source is furthest ahead just after a draw, and furthest behind just before one.
        ahead = (drawn + 1) * whole - (places + 1) * count
        behind = places * count - drawn * whole
        if max(ahead.max(), behind.max()) >= whole:
            return False
    return True


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


def _schedule(order: NDArray[np.int16], counts: NDArray[np.int64]) -> Schedule:
    draw = np.empty(len(order), np.int32)
    for source, count in enumerate(counts.tolist()):
        draw[order == source] = np.arange(count)
    return Schedule(order, draw, counts)
