"""``packed``: sequences of unequal lengths in rows of one length, for language models.

Sequences are placed one after another (first fit). Each goes into the first of the last open rows
that has space for it, so that the sequences of a row are neighbours in the source. The result
depends on the lengths alone: every process gets the same rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.batch.collate import filler
from adapters.generators import call_with, generator_argument
from adapters.sources import Source, source_given
from adapters.structure import to_array

# Rows that may still be filled. More of them leave fewer gaps, and take longer. With 100,000
# lognormal lengths (sigma 0.8, median 300) in rows of 2,048, 8 leave 1.2% of the places empty, 16
# leave 0.9%, 64 leave 0.7%, all rows no less; the first three take 8, 11 and 22 us a sequence.
OPEN_ROWS = 16


def packed(
    source: Any,
    length: int,
    lengths: Any = None,
    *,
    tokens: str | int | None = None,
    value: int = 0,
    most: int | None = None,
    transform: Callable[..., Any] | None = None,
) -> PackedSource:
    """Pack the sequences of a source into rows of fixed length, which are the new samples.

    The rows are computed once, from the lengths of the sequences alone (first fit among the last 16
    rows). A row is a sample like any other, for shuffling, shards, any number of workers and
    resuming within an epoch. In shuffled epochs, rows come in another order and hold the same
    sequences.

    Args:
        source: Anything that ``SafeSequence`` takes as a source of single samples. A sample is a
            sequence of numbers ``(its length,)``, or a dict or tuple with one.
        length: Length of a row.
        lengths: Lengths of the sequences, integers ``(samples,)``; None reads each sample once to
            get them.
        tokens: Key or position of the sequence in a sample; None if the sample is the sequence.
        value: Fill value for the rest of a row, where segment ids and positions are 0.
        most: Most sequences in a row; None for as many as fit.
        transform: ``transform(row)`` or ``transform(row, rng)`` makes the sample from a row's dict,
            such as ``(x, y)`` for ``fit``.

    Returns:
        A source of dicts: ``tokens`` ``(length,)``, in the dtype of the row's sequences;
            ``segment_ids``, int32, 1 for the first sequence, 2 for the second, 0 for empty places;
            and ``positions``, int32, from 0 in each sequence. A sequence that is longer than a row
            is truncated.

    Raises:
        TypeError: An argument of the wrong type, or a source of whole batches.
        ValueError: Out of range, or lengths that aren't those of the samples.

    Example:
        >>> from adapters import packed
        >>> rows = packed([[5, 6, 7], [8, 9], [1, 2, 3, 4]], length=6)
        >>> rows[0]["tokens"].tolist(), rows[0]["segment_ids"].tolist()
        ([5, 6, 7, 8, 9, 0], [1, 1, 1, 2, 2, 0])
        >>> rows[1]["positions"].tolist()
        [0, 1, 2, 3, 0, 0]
    """
    check_integer("length", length, 1)
    if most is not None:
        check_integer("most", most, 1, " or None")
    if transform is not None and not callable(transform):
        raise TypeError(f"transform must be callable or None, got {transform!r}")
    given = source_given(source, "source")
    if given.arranged(False, 0) is not None:
        raise ValueError(
            "source must have no order of its own, which would be lost, got a mix: pack its "
            "sources, and mix what comes of that"
        )
    sizes = np.minimum(_lengths(given, lengths, tokens), length)
    numbers, starts = first_fit(sizes, int(length), most or len(sizes))
    return PackedSource(given, numbers, starts, int(length), sizes, tokens, value, transform)


@dataclass(eq=False, repr=False)
class PackedSource(Source):
    """Rows of fixed length with the sequences of another source; see ``packed``."""

    stored = False  # A row is made on access.

    source: Source
    numbers: NDArray[np.int64]  # Of the sequences, row by row.
    starts: NDArray[np.int64]  # Of each row in ``numbers``, and the end of the last.
    length: int
    sizes: NDArray[np.int64]  # Of the sequences, by number, truncated.
    tokens: str | int | None
    value: int
    transform: Callable[..., Any] | None

    def __post_init__(self) -> None:
        self._argument = generator_argument(self.transform)
        self.draws = self._argument is not None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def users_code(self) -> tuple[Any, ...]:
        """User code of the source, and the transform."""
        return (*self.source.users_code, self.transform)

    @property
    def fill_rate(self) -> float:
        """Fraction of all places in rows that hold a token."""
        return int(self.sizes.sum()) / (len(self) * self.length)

    def sequences(self, row: int) -> NDArray[np.int64]:
        """Numbers of the samples in a row, in order."""
        return self.numbers[self.starts[row] : self.starts[row + 1]]

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return one row."""
        numbers = self.sequences(number)
        fetched: Sequence[Any] | None = self.source.samples(numbers)
        samples = fetched if fetched is not None else map(self.source.sample, numbers.tolist())
        # Copied, as the source may reuse one buffer.
        sequences = [np.array(_sequence(sample, self.tokens))[: self.length] for sample in samples]
        found, wanted = list(map(len, sequences)), self.sizes[numbers].tolist()
        if found != wanted:
            raise ValueError(
                f"lengths must be those of the sequences, got {wanted} for samples "
                f"{numbers.tolist()}, of which a row takes {found}"
            )
        # An empty list becomes float64, which says nothing about the dtype.
        dtypes = {each.dtype for each in sequences if len(each) or each.dtype != np.float64}
        dtype = np.result_type(*(dtypes or {np.dtype(np.int64)}))
        tokens = np.full(self.length, filler(self.value, dtype, ""), dtype)
        segments = np.zeros(self.length, np.int32)
        positions = np.zeros(self.length, np.int32)
        at = 0
        for segment, sequence in enumerate(sequences, 1):
            end = at + len(sequence)
            tokens[at:end] = sequence
            segments[at:end] = segment
            positions[at:end] = np.arange(len(sequence))
            at = end
        row = {"tokens": tokens, "segment_ids": segments, "positions": positions}
        if self.transform is None:
            return row
        given: Any = self.fixed_rng(number, rng)
        return call_with(lambda: given, self._argument, self.transform, row)

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        sequences = f"{len(self.numbers)} sequences in {len(self)} rows of {self.length}"
        return f"{sequences}: {self.source.way(True)}"


def _sequence(sample: Any, tokens: str | int | None) -> NDArray[Any]:
    try:
        sequence = to_array(sample if tokens is None else sample[tokens])
    except ValueError:  # Members of unequal lengths, such as (tokens, label).
        sequence = np.empty(())
    except (LookupError, TypeError):
        raise ValueError(
            f"tokens must be the key or position of a sequence in each sample, got {tokens!r} for "
            f"a {type(sample).__name__}"
        ) from None
    if sequence.ndim != 1:
        raise ValueError(
            f"a sample must be a sequence (its length,), got shape {sequence.shape} of a "
            f"{type(sample).__name__}: say where in it the sequence is with tokens=..."
        )
    return sequence


def _lengths(source: Source, lengths: Any, tokens: str | int | None) -> NDArray[np.int64]:
    if lengths is None:
        sizes = (len(_sequence(source.sample(number), tokens)) for number in range(len(source)))
        return np.fromiter(sizes, np.int64, len(source))
    given = np.asarray(lengths)
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise TypeError(f"lengths must be integers (samples,), got {given.dtype}{given.shape}")
    if len(given) != len(source) or (len(given) and given.min() < 0):
        raise ValueError(
            f"lengths must be one for each of {len(source)} samples, none below 0, got "
            f"{len(given)} from {given.min(initial=0)}"
        )
    return given.astype(np.int64)


def first_fit(
    lengths: NDArray[np.int64], length: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distribute sequences, no longer than a row, over rows of at most ``most`` sequences.

    Returns:
        ``numbers`` and ``starts`` of a ``PackedSource``.
    """
    rows: list[list[int]] = []  # By their first sequence.
    # Free places and sequences of each open row; the fullest is closed for a new one.
    room: list[int] = []
    members: list[list[int]] = []
    for number, size in enumerate(lengths.tolist()):
        place = next((place for place, left in enumerate(room) if size <= left), -1)
        if place < 0:
            if len(room) == OPEN_ROWS:
                fullest = room.index(min(room))
                del room[fullest], members[fullest]
            place = len(room)
            room.append(length)
            members.append([])
            rows.append(members[place])
        room[place] -= size
        members[place].append(number)
        if not room[place] or len(members[place]) == most:
            del room[place], members[place]
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.fromiter(itertools.chain(*rows), np.int64, len(lengths)), starts
