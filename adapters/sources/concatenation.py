"""``concatenate``: several sources, one after another, as one.

    number --searchsorted--> (source, its own number)

A batch is read one source at a time: each gathers, fills or fetches its samples at once, and they
are written into their rows. If some sources can only return samples, all do. Numeric labels of
different dtypes, such as RecordIO's floats and TFRecord's integers, are cast to a common one.
Record files that are decoded alike become one source, which fills its batches in one call.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import listed
from adapters.generators import RngOf
from adapters.sources import Subset, sources_given
from adapters.sources.source import (
    BatchColumns,
    Composite,
    Failures,
    Group,
    Leaf,
    Numbers,
    RowNumbers,
    Source,
)
from adapters.structure import flatten, outline, to_array, unflatten

Spec = tuple[Any, tuple[Leaf, ...]]
"""Element spec: structure of a source's samples, and shape and dtype of each leaf."""

_NUMBERS = "biuf"
# Largest integer up to which float64 is exact.
_MOST_EXACT = 1 << 53


def concatenate(sources: Iterable[Any]) -> Source:
    """Concatenate several sources; nothing is read or copied.

    A batch with samples of several sources is made one source at a time, so that gathering and
    decoding a batch at once still works. Random values depend on a sample's number in the whole.

    Args:
        sources: Anything that ``SafeSequence`` takes as a source of samples: arrays, tuples and
            dicts of them, data sets, records, their paths, and results of ``select``, ``split`` and
            ``concatenate``. All samples have one structure, shape and dtype.

    Returns:
        A source, for ``SafeSequence``, ``gluon_loader``, ``split``, or any other loader of
            map-style data sets; ``.select(numbers or mask)`` returns a part of it.

    Raises:
        TypeError: Not a list of sources, or a source of whole batches.
        ValueError: No source, a source without samples, samples that differ as far as known, or
            ``classes`` that give one label several names.

    Example:
        >>> import numpy as np
        >>> from adapters import concatenate
        >>> whole = concatenate([np.arange(3), np.arange(10, 13)])
        >>> len(whole), int(whole[4])
        (6, 11)
    """
    given = sources_given(sources)
    for place, source in enumerate(given):
        if source.arranged(False, 0) is not None:
            raise ValueError(
                f"sources must have no order of their own, which would be lost, got a mix as "
                f"sources[{place}]: mix what is concatenated"
            )
    parts: list[Source] = []
    for source in given:  # Without a chain of indirections.
        parts += source.parts if isinstance(source, Concatenation) else [source]
    if len(parts) == 1:
        return parts[0]
    subsets = [part for part in parts if isinstance(part, Subset)]
    if len(subsets) == len(parts) and len({id(subset.whole) for subset in subsets}) == 1:
        # Subsets of one source: select from the whole, which is read once per batch.
        return subsets[0].whole.select(np.concatenate([subset.numbers for subset in subsets]))
    together = Concatenation(parts)
    return together if len(together.parts) > 1 else together.parts[0]


class Concatenation(Composite):
    """Several sources as one; made by ``concatenate``."""

    leaves: tuple[Leaf, ...] | None = None
    treedef: Any = None

    def __init__(self, sources: Sequence[Source]) -> None:
        self.classes = _common_classes(sources)
        self._specs = list(map(_spec_of, sources))
        self._common = _common_spec(self._specs)
        if self._common is not None and None not in self._specs:
            self.treedef, self.leaves = self._common
        self._casts = [spec != self._common for spec in self._specs]
        # Worth it: 50 instead of 105 us for 64 records of three sources of typed features, and 11
        # instead of 13 ms for JPEGs (two cores).
        is_cast = any(self._casts)
        whole = None if is_cast else sources[0].united(sources[1:], self.classes)
        super().__init__(sources if whole is None else [whole])
        self.gathers &= not is_cast  # A batch is filled instead.
        self._starts = np.cumsum([0, *map(len, self.parts)])
        # A list for single lookups: ten times faster than NumPy for one number.
        self._first: list[int] = self._starts[:-1].tolist()

    def __len__(self) -> int:
        """Number of samples in all sources."""
        return int(self._starts[-1])

    def by_part(self, numbers: Numbers) -> Iterator[Group]:
        """Find these samples in the sources that they come from."""
        if len(self.parts) == 1:
            yield 0, numbers, None
            return
        of = np.searchsorted(self._starts, numbers, "right") - 1
        for at in np.flatnonzero(np.bincount(of)).tolist():
            places = np.flatnonzero(of == at)
            yield at, numbers[places] - self._starts[at], places

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return one sample."""
        at = bisect.bisect_right(self._first, number) - 1
        sample = self.parts[at].sample(number - self._first[at], self.fixed_rng(number, rng))
        return self._cast(sample) if self._casts[at] else sample

    def samples(self, numbers: Numbers) -> Sequence[Any] | None:
        """Samples of a batch, cast, if a part fetches them at once; else None."""
        samples = super().samples(numbers)
        if samples is None or not any(self._casts):
            return samples
        return list(map(self._cast, samples))

    def fill_from(
        self, at: int, own: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers
    ) -> Failures:
        """Write samples of a part into rows; those of another dtype by way of new arrays."""
        spec = self._specs[at]
        if spec is None or not self._casts[at]:
            return super().fill_from(at, own, rng_of, columns, rows)
        stored = [
            column if column.dtype == dtype else np.empty((len(column), *shape), dtype)
            for column, (shape, dtype) in zip(columns, spec[1])
        ]
        failures = super().fill_from(at, own, rng_of, stored, rows)
        written = np.arange(len(own)) if rows is None else rows
        if failures:
            written = np.delete(written, [place for place, _ in failures])
        for column, found in zip(columns, stored):
            if found is not column:
                _check_exact(found[written], column.dtype)
                column[written] = found[written]
        return failures

    def _cast(self, sample: Any) -> Any:
        """Cast numbers of a sample to the common dtypes, if these can hold them."""
        leaves, treedef = flatten(sample)
        assert self._common is not None
        common, specs = self._common
        if treedef != common:
            return sample  # Collating reports the mismatch.
        cast = [_as_number(leaf, dtype) for leaf, (_, dtype) in zip(leaves, specs)]
        return unflatten(treedef, cast)

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        ways = dict.fromkeys(part.way(transformed) for part in self.parts)
        return f"{len(self.parts)} sources, one after another: {'; '.join(ways)}"


def _common_classes(sources: Sequence[Source]) -> list[str] | None:
    """Class names of all sources, by label; None if a source has none."""
    named = [getattr(source, "classes", None) for source in sources]
    longest = max((names for names in named if names is not None), key=len, default=None)
    for place, names in enumerate(named):
        if longest is not None and names is not None and names != longest[: len(names)]:
            together = sorted({name for names in named for name in names or ()})
            raise ValueError(
                f"sources must number their classes alike, got {listed(longest)} and, in "
                f"sources[{place}], {listed(names)}: open each with open_images(..., "
                f"classes={listed(together)}), which takes a list of files that lack some of them"
            )
    return None if None in named else longest


def _common_spec(specs: Sequence[Spec | None]) -> Spec | None:
    """Spec common to all samples; None if no source knows its own."""
    known = [(place, spec) for place, spec in enumerate(specs) if spec is not None]
    if not known:
        return None
    (first, (treedef, leaves)), *others = known
    found = leaves
    for place, spec in others:
        promoted = [_promoted(*pair) for pair in zip(found, spec[1])]
        if spec[0] != treedef or len(spec[1]) != len(found) or None in promoted:
            raise ValueError(
                "sources must have samples of one structure, shape and dtype: sources"
                f"[{first}] has {outline(treedef, leaves)}, sources[{place}] has "
                f"{outline(*spec)}; bring them into one form first"
            )
        found = tuple(leaf for leaf in promoted if leaf is not None)
    return treedef, found


def _promoted(one: Leaf, other: Leaf) -> Leaf | None:
    """Common leaf of two; scalars such as labels are promoted. None if there is none."""
    if one == other:
        return one
    kinds = {one[1].kind, other[1].kind}
    numbers = kinds <= set(_NUMBERS)
    texts = kinds in ({"U"}, {"S"}, {"O", "U"}, {"O", "S"})  # Of several widths.
    if one[0] != () or other[0] != () or not (numbers or texts):
        return None
    both = np.promote_types(one[1], other[1])
    if both.kind == "f" and "f" not in (one[1].kind, other[1].kind):
        return None  # int64 and uint64: no dtype holds all of both.
    return (), both


def _check_exact(numbers: NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Check that integers stay exact as floats, unlike those beyond 2**53."""
    if dtype.kind != "f" or numbers.dtype.kind not in "iu" or numbers.dtype.itemsize < 8:
        return
    wrong = numbers[(numbers > _MOST_EXACT) | (numbers < -_MOST_EXACT)]
    if wrong.size:
        raise ValueError(
            f"{wrong.flat[0]} is no {dtype} exactly, which the labels of all sources together are; "
            "bring them into one type first"
        )


def _as_number(leaf: Any, dtype: np.dtype[Any]) -> Any:
    """Cast a number of Python or of NumPy; unchanged if ``dtype`` can't hold it, or no number."""
    own = to_array(leaf)
    if own.ndim or own.dtype.kind not in _NUMBERS or dtype.kind not in _NUMBERS:
        return leaf
    if np.promote_types(own.dtype, dtype) != dtype:
        return leaf
    _check_exact(own, dtype)
    number = dtype.type(leaf)
    return number if isinstance(leaf, np.generic) else number.item()


def _spec_of(source: Source) -> Spec | None:
    if source.gathers:
        leaves, treedef = flatten(source.gather(np.zeros(1, np.int64), np.empty))
        return treedef, tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves)
    known = source.leaves
    return None if known is None else (source.treedef, tuple(known))
