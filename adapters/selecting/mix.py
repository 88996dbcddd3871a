"""``mix``: several sources as one whose order draws from each by its share.

::

    position --schedule--> (source, draw k) --own epoch k // n, place k % n--> sample

Samples are numbered as those of a concatenation, so that batches are gathered, filled and fetched a
source at a time. The order is the source's own, ``Source.arranged``, which a loader asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from adapters.batch.arrangement import Arrangement
from adapters.batch.arranging import blocks_of, bytes_of_samples
from adapters.batch.permutation import MIXED, chosen, permute_each, uniform
from adapters.selecting.given import source_given
from adapters.selecting.schedule import Schedule, schedule_of
from adapters.sources import Concatenation, Source
from adapters.sources.forms import form_of

# The largest denominator of a weight that is a float; what it is off by is far less.
_MOST_PARTS = 10**9


def mix(
    sources: Iterable[Any],
    weights: Sequence[float] | None = None,
    *,
    temperature: float = 1.0,
    stop: Literal["first", "last"] = "first",
    replacement: bool = False,
) -> Source:
    """Several sources as one, whose batches draw from each by its share.

    The shares are exact: after any number of samples from the beginning of an epoch, each source
    has given its share of them, up or down by less than one sample; over any other stretch, by less
    than two. That is over all shards together; one by itself is off by up to a tenth of all its
    samples. Weights that have no common denominator up to 131,072 are rounded to one, see
    ``shares`` of the result. Each source goes through its own epochs: every
    sample of it comes once before any comes again, also over the ends of the mix's epochs. With
    ``shuffle``, each own epoch has a new order; ``shuffle="blocks"`` orders each source in blocks.

    Args:
        sources: Whatever ``SafeSequence`` takes as a source of samples, and what ``mix`` returns.
            Samples of all have one structure, shape and dtype.
        weights: Of each source, above 0, in any unit; None for the sources' sizes.
        temperature: Weights are raised to ``1 / temperature``: above 1, small sources come more
            often than their weights say; ``float("inf")`` makes all alike.
        stop: An epoch ends before the ``"first"`` source would begin anew; or with the ``"last"``
            that has been gone through, while others are repeated.
        replacement: Draw each source's samples at random, with replacement, instead.

    Returns:
        A source, for ``SafeSequence`` and ``gluon_loader``. ``[i]`` and ``len`` are those of the
        sources one after another.

    Raises:
        TypeError: Not several sources, or one of whole batches.
        ValueError: Weights or temperature that can't be, samples that differ, or ``classes`` of
            which a label stands for several.

    Example:
        >>> import numpy as np
        >>> from adapters import SafeSequence, mix
        >>> whole = mix([np.zeros(90), np.ones(30)], weights=[3, 1])
        >>> seq = SafeSequence(whole, 40, shuffle=True, workers=0)
        >>> [int(batch.sum()) for batch in seq]
        [10, 10, 10]
    """
    if isinstance(sources, (str, bytes, dict, set, frozenset, Source)) or hasattr(sources, "shape"):
        raise TypeError(f"sources must be a list of sources, got {type(sources).__name__}")
    given = [source_given(source, f"sources[{place}]") for place, source in enumerate(sources)]
    if not given:
        raise ValueError("sources must hold at least one source, got none")
    if stop not in ("first", "last"):
        raise ValueError(f'stop must be "first" or "last", got {stop!r}')
    if not isinstance(replacement, (bool, np.bool_)):
        raise TypeError(f"replacement must be True or False, got {replacement!r}")
    shares = _shares(weights, [len(source) for source in given], temperature)
    return Mix(given, schedule_of(shares), stop, bool(replacement))


class Mix(Concatenation):
    """Several sources as one, with an order of its own. ``mix`` makes it.

    Args:
        sources: The sources, which may be mixes.
        schedule: Whose turn it is when.
        stop: Where an epoch ends.
        replacement: Whether samples are drawn with replacement.
    """

    def __init__(
        self, sources: Sequence[Source], schedule: Schedule, stop: str, replacement: bool
    ) -> None:
        super().__init__(sources, [form_of(source) for source in sources])
        self._schedule = schedule
        self._stop = stop
        self._replacement = replacement

    @property
    def shares(self) -> list[Fraction]:
        """Of each source."""
        return self._schedule.shares

    def way(self, transformed: bool) -> str:
        """How samples come from it, for people."""
        ways = dict.fromkeys(part.way(transformed) for part in self.parts)
        return f"{_told(self.shares)} of {len(self.parts)} sources: {'; '.join(ways)}"

    def select(self, numbers: Any) -> NoReturn:
        """A part of a mix would not have its shares.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "source must not be a mix to be selected from or split, as its shares would be lost: "
            "select from its sources, and mix what comes of that"
        )

    def arranged(self, shuffle: Any, seed: int, tolerant: bool = False) -> MixOrder:
        """The order of the mix."""
        blocks = blocks_of(shuffle)
        own: list[Arrangement | None] = []
        for place, part in enumerate(self.parts):
            key = chosen(1 << 62, (seed, MIXED, place))
            arrangement: Arrangement | None = part.arranged(shuffle, key, tolerant)
            if arrangement is None and blocks is not None and not self._replacement:
                arranged = blocks.of(len(part), bytes_of_samples(part, tolerant), key)
                # A source of one block is permuted: all its epochs at once, however short they are.
                arrangement = arranged if arranged.blocks > 1 else None
            own.append(arrangement)
        return MixOrder(
            self._schedule,
            [len(part) for part in self.parts],
            own,
            bool(shuffle),
            seed,
            self._stop,
            self._replacement,
        )


class MixOrder(Arrangement):
    """The global order of a mix.

    Args:
        schedule: Whose turn it is when.
        lengths: Samples of each source.
        own: The order of each source by itself; None where it is permuted, or as it is.
        shuffle: Whether it is permuted.
        seed: Of the order.
        stop: ``"first"`` or ``"last"``.
        replacement: Whether samples are drawn with replacement.
    """

    # Of three sources: 0.75 us for 64 samples, 1.15 by 8,192 at once.
    chunk = 1 << 15

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
        self._size = max(ends) + 1 if stop == "last" else min(ends)
        # Of each source, in an epoch of the mix.
        self._draws = schedule.draws_before(self._size)

    @property
    def size(self) -> int:
        """Positions in an epoch."""
        return self._size

    @property
    def is_random(self) -> bool:
        """Whether it depends on a seed."""
        nested = any(each is not None and each.is_random for each in self._own)
        return self._shuffle or self._replacement or nested

    @property
    def way(self) -> str:
        """How samples are ordered, for people."""
        told = f"mixed by shares of {_told(self._schedule.shares)}, {self._size} in an epoch"
        return told + (", with replacement" if self._replacement else "")

    @property
    def tables(self) -> list[NDArray[Any]]:
        """Whose turn it is, where the sources begin, and what each one's own order has."""
        nested = [table for own in self._own if own is not None for table in own.tables]
        return [self._schedule.source, np.array(self._starts), *nested]

    def numbers(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at these positions."""
        numbers = np.empty(len(positions), np.int64)
        for at, draws, places in self._drawn(positions):
            draws += epoch * int(self._draws[at])
            numbers[places] = self._starts[at] + self._of_source(at, draws)
        return numbers

    def _drawn(
        self, positions: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """The draws of each source in the first epoch, and at which of the positions they come."""
        if len(positions) and (positions[1:] - positions[:-1] == 1).all():
            # Worth it: 8 against 80 us for 8,192.
            start = int(positions[0])
            yield from self._schedule.within(start, start + len(positions))
            return
        sources, draws = self._schedule.at(positions)
        for at in np.flatnonzero(np.bincount(sources)).tolist():
            places = np.flatnonzero(sources == at)
            yield at, draws[places], places

    def _of_source(self, at: int, draws: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples of a source, by its own numbers, that are its draws ``draws``."""
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
    """Shares that are 1 together."""
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
    """As it was meant: 0.1 is a tenth, and 1 / 3 a third."""
    if isinstance(value, (int, np.integer)):
        return Fraction(int(value))
    if isinstance(value, Fraction):
        return value
    exact = Fraction(float(value))
    simple = exact.limit_denominator(_MOST_PARTS)
    return simple if simple and float(simple) == float(value) else exact


def _told(shares: Sequence[Fraction]) -> str:
    return " : ".join(f"{float(share):.4g}" for share in shares)
