"""``concatenate``: several sources, one after another, as one.

    number --searchsorted--> (source, its own number)

A batch is read one source at a time: each gathers, fills or fetches its samples at once, and they
are written into their rows. If some sources can only return samples, all do. Numeric labels of
different dtypes, such as RecordIO's floats and TFRecord's integers, are promoted to a common one.
Record files that are decoded alike become one source, which fills its batches in one call.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import listed
from adapters.generators import RngOf, chosen
from adapters.ownership import Allocate
from adapters.readahead import Window
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

Form = tuple[Any, tuple[Leaf, ...]]
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

    def __init__(self, sources: Sequence[Source]) -> None:
        self.classes = _common_classes(sources)
        self._specs = list(map(_spec_of, sources))
        self._common = _common_spec(self._specs)
        # Spec of batches that are written into their memory; None if a source's spec is unknown.
        self._spec = None if None in self._specs else self._common
        # Sources whose numbers are cast to the common dtype.
        self._cast = [self._common not in (None, spec) for spec in self._specs]
        # Worth it: 50 instead of 105 us for 64 records of three sources of typed features, and 11
        # instead of 13 ms for JPEGs (two cores).
        alike = self._common is not None and not any(self._cast)
        whole = sources[0].united(sources[1:], self.classes) if alike else None
        super().__init__(sources if whole is None else [whole])
        self._starts = np.cumsum([0, *map(len, self.parts)])
        # A list for single lookups: ten times faster than NumPy for one number.
        self._first: list[int] = self._starts[:-1].tolist()

    def __len__(self) -> int:
        """Number of samples in all sources."""
        return int(self._starts[-1])

    def by_part(self, numbers: Numbers) -> Iterator[Group]:
        """Find these samples in the sources that they come from."""
        if len(self.parts) == 1:
            yield 0, numbers, np.arange(len(numbers))
            return
        of = np.searchsorted(self._starts, numbers, "right") - 1
        for at in np.flatnonzero(np.bincount(of)).tolist():
            places = np.flatnonzero(of == at)
            yield at, numbers[places] - self._starts[at], places

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return one sample."""
        at = bisect.bisect_right(self._first, number) - 1
        rng = self.fixed_rng(number, rng) if self.draws else rng
        sample = self.parts[at].sample(number - self._first[at], rng)
        return self._as_common(sample) if self._cast[at] else sample

    def samples(self, numbers: Numbers) -> Sequence[Any] | None:
        """Samples of a batch if a source fetches them at once, else None."""
        if self.draws or not any(part.fetches_many or part.gathers for part in self.parts):
            return None
        samples: list[Any] = [None] * len(numbers)
        for at, own, places in self.by_part(numbers):
            fetched = self.parts[at].samples(own)
            if fetched is None:
                fetched = [self.parts[at].sample(number) for number in own.tolist()]
            for place, sample in zip(places.tolist(), fetched):
                samples[place] = self._as_common(sample) if self._cast[at] else sample
        return samples

    def _as_common(self, sample: Any) -> Any:
        """Cast numbers of a sample to the common dtype, if that can hold them."""
        assert self._common is not None
        leaves, treedef = flatten(sample)
        common, specs = self._common
        if treedef != common:
            return sample  # Collating reports the mismatch.
        cast = [_as_number(leaf, dtype) for leaf, (_, dtype) in zip(leaves, specs)]
        return unflatten(treedef, cast)

    @property
    def sample_bytes(self) -> float | None:
        """Average bytes per sample; None if a source doesn't know."""
        known = [part.sample_bytes for part in self.parts]
        sizes = [each * len(part) for each, part in zip(known, self.parts) if each is not None]
        return sum(sizes) / len(self) if len(sizes) == len(known) else None

    def prefetch_hint(self, first: int, last: int, window: Window | None = None) -> None:
        """Pass the read-ahead hint on to the sources of these samples."""
        for start, part in zip(self._first, self.parts):
            begin, end = max(0, first - start), min(len(part), last - start)
            if begin < end:
                part.prefetch_hint(begin, end, window)

    def labels_of(self, numbers: Numbers) -> NDArray[Any] | None:
        """Label of each of these samples, if all sources provide labels."""
        labels: list[Any] = [None] * len(numbers)
        for at, own, places in self.by_part(numbers):
            found = self.parts[at].labels_of(own)
            if found is None:
                return None
            for place, label in zip(places.tolist(), found.tolist()):
                labels[place] = label
        return np.array(labels)

    def gather(self, numbers: Numbers, allocate: Allocate) -> Any:
        """Gather these samples as one batch, one source at a time."""
        groups = list(self.by_part(numbers))
        at, own, _ = groups[0]
        if len(groups) == 1 and not self._cast[at]:
            return self.parts[at].gather(own, allocate)
        assert self._spec is not None
        treedef, leaves = self._spec
        columns = [allocate((len(numbers), *shape), dtype) for shape, dtype in leaves]
        self._fill(groups, None, columns, None)
        return unflatten(treedef, columns)

    @property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of the samples' leaves if all sources know them, else None."""
        return None if self._spec is None else self._spec[1]

    @property
    def treedef(self) -> Any:
        """Sample structure with leaf numbers as leaves."""
        return None if self._spec is None else self._spec[0]

    def fill(
        self, numbers: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers = None
    ) -> Failures:
        """Write samples into rows of a batch, one source at a time."""
        if len(self.parts) == 1:
            return self.parts[0].fill(numbers, rng_of, columns, rows)
        return self._fill(self.by_part(numbers), rng_of, columns, rows)

    def _fill(
        self,
        groups: Iterable[Group],
        rng_of: RngOf | None,
        columns: BatchColumns,
        rows: RowNumbers,
    ) -> Failures:
        failures: Failures = []
        for at, own, places in groups:
            part, spec = self.parts[at], self._specs[at]
            rng = chosen(rng_of, places) if part.draws else None
            own_rows = places if rows is None else rows[places]
            given = _like(columns, spec[1]) if self._cast[at] and spec is not None else columns
            failed = part.fill(own, rng, given, own_rows)
            if failed:
                failures += [(int(places[place]), error) for place, error in failed]
            if given is columns:
                continue
            right = np.delete(own_rows, [at for at, _ in failed]) if failed else own_rows
            for column, found in zip(columns, given):
                if found is not column:
                    _check_exact(found[right], column.dtype)
                    column[right] = found[right]
        return failures

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        ways = dict.fromkeys(part.way(transformed) for part in self.parts)
        return f"{len(self.parts)} sources, one after another: {'; '.join(ways)}"


def _like(columns: BatchColumns, leaves: Sequence[Leaf]) -> list[NDArray[Any]]:
    """Arrays for these leaves: those of a batch, or new ones for leaves of another dtype."""
    return [
        column if column.dtype == dtype else np.empty((len(column), *shape), dtype)
        for column, (shape, dtype) in zip(columns, leaves)
    ]


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


def _common_spec(forms: Sequence[Form | None]) -> Form | None:
    """Spec common to all samples; None if no source knows its own."""
    known = [(place, spec) for place, spec in enumerate(forms) if spec is not None]
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


def _spec_of(source: Source) -> Form | None:
    if source.gathers:
        leaves, treedef = flatten(source.gather(np.zeros(1, np.int64), np.empty))
        return treedef, tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves)
    known = source.leaves
    return None if known is None else (source.treedef, tuple(known))
