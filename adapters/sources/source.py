"""``Source``: the interface of data to plans, with defaults that fit most sources.

A new kind of source is a subclass in its own file and an entry in ``sources.kinds``. ``Subset``
holds some samples of any source; it is here because ``Source.select`` makes it. ``Composite`` is
the base of sources that are made of others. ``Origin`` says where a sample lies, to inspect a batch
later.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import index_of
from adapters.generators import DECODE, RngOf, chosen, generator, source_generator
from adapters.images.geometry import Crop
from adapters.ownership import Allocate
from adapters.readahead import Window
from adapters.structure import flatten, unflatten

Leaf = tuple[tuple[int, ...], "np.dtype[Any]"]
Numbers = NDArray[np.int64]
"""Sample numbers, ``(samples,)``."""
RowNumbers = Numbers | None
"""Row of each sample in a batch; None for one after another."""
BatchColumns = Sequence[NDArray[Any]]
"""An array for each leaf, with a leading axis for the rows of a batch."""
Failures = list[tuple[int, Exception]]
"""Samples that couldn't be written, by their indices among the requested ones, and why."""
Group = tuple[int, Numbers, "Numbers | None"]
"""A part's place, the part's own numbers of some samples, and their places among those asked for.

None in the place of these if all that was asked for comes from this part, in this order.
"""
# Samples fetched at once, in order: with records of 100 kB, 6 MB and as much ahead.
_AT_ONCE = 64
# Traits of several sources together: those that one of them has, and those that all have.
_IF_ANY = ("makes_samples", "stored", "fetches_many", "draws", "may_grow")
_IF_ALL = ("gathers", "pads", "decodes", "holds_images", "python_numbers")
_MOST_SPREAD = 4  # Longest stretch to read ahead, in multiples of its chosen samples.


class Origin(NamedTuple):
    """Origin of one sample; None for what its source doesn't have."""

    file: str | None = None
    """Path, as it was given."""
    record: int | None = None
    """Record number in that file."""
    offset: int | None = None
    """Offset of the record's first byte in the file."""
    encoded: bytes | None = None
    """Encoded image."""
    crop: Crop | None = None
    """Box that is cut out of it, and whether that is flipped."""

    def __repr__(self) -> str:
        """Show the number of bytes in place of the encoded image."""
        encoded = None if self.encoded is None else f"{len(self.encoded)} bytes"
        members = {**self._asdict(), "encoded": encoded}
        return f"Origin({', '.join(f'{name}={value!r}' for name, value in members.items())})"

    @property
    def drawn(self) -> str:
        """Description of the crop; empty without one."""
        crop = self.crop
        if crop is None:
            return ""
        size = crop.resized or crop.image
        words = f"{crop.height}x{crop.width} at ({crop.top}, {crop.left}) of {size[0]}x{size[1]}"
        resized = f", resized from {crop.image[0]}x{crop.image[1]}" if crop.resized else ""
        return words + resized + (", flipped" if crop.flip else "")


class Source(abc.ABC):
    """Samples by number; reading changes nothing.

    Threads may read concurrently, unless ``users_code`` isn't thread-safe. Then callers on several
    threads must hold a ``Gate`` of it.
    """

    unit = "sample"
    """Name of a sample in messages, such as record or file."""
    # Those of images, which their parts have, too.
    classes: Any
    files: Any
    labels: Any

    # --- samples ---

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of samples, or of whole batches."""

    @abc.abstractmethod
    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return one sample.

        Args:
            number: In ``range(len(self))``.
            rng: The sample's own generator, if the source ``draws``.
        """

    def __repr__(self) -> str:
        size = "endless" if self.endless else f"{len(self):,} {self.unit}s"
        return f"<{type(self).__name__}: {size}>"

    def __getitem__(self, index: Any) -> Any:
        """Return one sample, like any map-style data set, or a list of samples for a slice.

        Random values are drawn again each time. Read by a data set or transform of a loader, they
        depend only on the seed, the epoch and the sample being made.

        Raises:
            IndexError: Out of range.
            OSError: An image's file can't be read.
            RecordError: The record, or the file, is damaged, or holds something else.
            TypeError: Neither an integer nor a slice.
        """
        if isinstance(index, slice):
            return list(self._inorder(range(*index.indices(len(self)))))
        return self._drawn(self._number(index))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the samples in order."""
        return self._inorder(range(len(self)))

    def _inorder(self, numbers: range) -> Iterator[Any]:
        """Yield samples in order; slow ones are fetched in groups, one group ahead."""
        for first in range(0, len(numbers), _AT_ONCE):
            group = numbers[first : first + _AT_ONCE]
            ahead = numbers[first + _AT_ONCE : first + 2 * _AT_ONCE]
            self.fetch(np.array(group, np.int64))
            self.prefetch(np.array(ahead, np.int64), elsewhere=False)
            yield from map(self._drawn, group)

    def _number(self, index: Any) -> int:
        """Convert an index, which may be negative, to a sample number."""
        return index_of(index, len(self), f"{self.unit} number", "an integer or a slice")

    def _drawn(self, number: int) -> Any:
        """Return one sample to a caller without a generator."""
        return self.sample(number, source_generator() if self.draws else None)

    def fixed_rng(self, number: int, rng: np.random.Generator | None) -> np.random.Generator | None:
        """Generator of a sample: the given one, or, if it ``draws``, always the same one."""
        return generator(0, 0, number, DECODE) if rng is None and self.draws else rng

    def select(self, numbers: Any) -> Source:
        """Select samples as a source, renumbered in this order; nothing is read or copied.

        Args:
            numbers: Sample numbers, as in ``[i]`` and possibly repeated, or a boolean mask with a
                value for each sample.

        Returns:
            A source that is read like this one; of images, with their files, labels and classes.
            Random values depend on a sample's new number.

        Raises:
            IndexError: A number out of range.
            TypeError: Neither numbers nor a mask, or a source of whole batches.
            ValueError: A mask of another length.
        """
        return Subset(self, chosen_of(numbers, len(self)))

    def origin(self, number: int, rng: np.random.Generator) -> Origin:
        """Locate a sample and what is drawn for it by its generator; empty by default."""
        return Origin()

    def samples(self, numbers: Numbers) -> Sequence[Any] | None:
        """Samples of a batch, fetched at once; None if they are fetched one at a time."""
        return None

    def read_and_discard(self, numbers: Numbers) -> None:
        """Read stored samples and discard them."""
        fetched = self.samples(numbers)
        for _ in fetched if fetched is not None else map(self.sample, numbers.tolist()):
            pass

    def prefetch(self, numbers: Numbers, elsewhere: bool) -> None:
        """Hint that samples will be read, perhaps ``elsewhere``, in another process.

        If that is slow, start fetching, and don't wait.
        """

    def fetch(self, numbers: Numbers) -> None:
        """Fetch samples that are read now, all at once if that is slow.

        It may return before they are there; reading a sample waits for it.
        """

    # --- a batch at a time ---

    def gather(self, numbers: Numbers, allocate: Allocate) -> Any:
        """Gather these samples as one batch, in memory from ``allocate``."""
        raise NotImplementedError

    @property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of each sample's leaves, if ``fill`` can write them; else None."""
        return None

    @property
    def treedef(self) -> Any:
        """Sample structure with leaf numbers as leaves, if ``leaves`` are known."""
        return tuple(range(len(self.leaves or ())))

    def padded(self, samples: list[Any], extra: int = 0) -> list[Any]:
        """Pad the samples of a batch to one length, plus ``extra``, if the source knows how."""
        return samples

    def united(self, others: Sequence[Source], classes: list[str] | None) -> Source | None:
        """Join with other sources to fill a batch at once; None if that isn't possible."""
        return None

    def fill(
        self, numbers: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers = None
    ) -> Failures:
        """Write samples into rows of a batch, if ``leaves`` are known or the source gathers.

        Args:
            numbers: Sample numbers.
            rng_of: Returns a sample's generator by its index in ``numbers``, valid until the next
                call; None if nothing is drawn.
            columns: An array for each of ``leaves``; the caller's, so no reference to it is kept.
            rows: Row of each sample.
        """
        leaves, _ = flatten(self.gather(numbers, np.empty))
        for column, leaf in zip(columns, leaves):
            column[... if rows is None else rows] = leaf
        return []

    # --- traits: subclasses override them, or set them in ``__init__`` ---

    makes_samples = True
    """True if user code makes samples, and may reuse its memory."""
    stored = True
    """True if samples must not be written to, as they may be the source's own memory."""
    fetches_many = False
    """True if ``samples`` fetches those of a batch at once."""
    draws = False
    """True if a sample depends on its generator."""
    gathers = False
    """True if ``gather`` makes a batch without a step for each sample."""
    pads = False
    """True if ``padded`` makes samples equally long."""
    decodes = False
    """True if it only decodes images, which runs without the interpreter lock."""
    holds_images = False
    """True if samples are (image, label)."""
    python_numbers = False
    """True if a label is a Python number, not one of NumPy's."""

    may_grow = False
    """True if ``check_length`` must be called at the start of a pass."""

    @property
    def users_code(self) -> tuple[Any, ...]:
        """User functions and objects that make samples."""
        return (self,)

    def remedy(self, shape: tuple[int, ...]) -> str:
        """Advice on making arrays of unequal shapes equal; ``shape`` is that of one."""
        return "pad, crop or resize in transform"

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read; ``transformed`` if one by one."""
        return "samples, asked for one at a time"

    def check_length(self) -> bool:
        """Compare the present length with that of an epoch.

        Returns:
            True if the copies in worker processes are outdated.
        """
        return False

    # --- used by orders ---

    @property
    def sample_bytes(self) -> float | None:
        """Average bytes of a stored sample; None if unknown without reading samples."""
        return None

    def prefetch_hint(self, first: int, last: int, window: Window | None = None) -> None:
        """Hint that samples ``first`` to ``last - 1`` are read soon; read ahead if that helps.

        Samples that can't be read are no error, and the call takes hardly any time. For the window
        that they belong to, see ``Window``.
        """

    def labels_of(self, numbers: Numbers) -> NDArray[Any] | None:
        """Labels of samples if they are cheap to get; None otherwise. CRCs aren't checked."""
        return None

    def arranged(self, shuffle: Any, seed: int) -> Any:
        """Own order of the source, an ``Arrangement``; None if it has none."""
        return None

    @property
    def store_is_cached(self) -> bool | None:
        """True if a cache keeps all that is fetched from stores; None if nothing is."""
        return None

    def in_memory(self, numbers: Numbers) -> Source:
        """Return a source that has these samples in memory if each fetch would ask a store."""
        return self

    # --- sources of whole batches ---

    whole_batches = False
    """True if items are whole batches; only those of a ``SequenceSource`` are."""
    changes_between_epochs = False
    """True if batches change with the epoch, so that none may be read early."""

    @property
    def endless(self) -> bool:
        """True if every number is the number of a batch."""
        return False


class Composite(Source):
    """Source whose samples are those of other sources, its parts, or made of them."""

    def __init__(self, parts: Sequence[Source]) -> None:
        self.parts = list(parts)
        for name in _IF_ANY:
            setattr(self, name, any(getattr(part, name) for part in parts))
        for name in _IF_ALL:
            setattr(self, name, all(getattr(part, name) for part in parts))

    @abc.abstractmethod
    def by_part(self, numbers: Numbers) -> Iterable[Group]:
        """Find these samples in the parts that they come from."""

    def origin(self, number: int, rng: np.random.Generator) -> Origin:
        """Locate a sample in the first part that it comes from."""
        at, own, _ = next(iter(self.by_part(np.array([number]))))
        return self.parts[at].origin(int(own[0]), rng)

    def samples(self, numbers: Numbers) -> Sequence[Any] | None:
        """Samples of a batch, if a part fetches them at once; else None."""
        if self.draws or not self.fetches_many:
            return None
        samples: list[Any] = [None] * len(numbers)
        for at, own, places in self.by_part(numbers):
            fetched = self.parts[at].samples(own)
            if places is None:
                return fetched
            if fetched is None:
                fetched = [self.parts[at].sample(number) for number in own.tolist()]
            for place, sample in zip(places.tolist(), fetched):
                samples[place] = sample
        return samples

    def gather(self, numbers: Numbers, allocate: Allocate) -> Any:
        """Gather these samples as one batch, part by part."""
        groups = list(self.by_part(numbers))
        if len(groups) == 1:
            at, own, _ = groups[0]
            return self.parts[at].gather(own, allocate)
        assert self.leaves is not None
        columns = [allocate((len(numbers), *shape), dtype) for shape, dtype in self.leaves]
        self._fill(groups, None, columns, None)
        return unflatten(self.treedef, columns)

    def fill(
        self, numbers: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers = None
    ) -> Failures:
        """Write samples into rows of a batch, part by part."""
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
            if places is None:
                return self.fill_from(at, own, rng_of, columns, rows)
            rng = chosen(rng_of, places) if self.parts[at].draws else None
            own_rows = places if rows is None else rows[places]
            failed = self.fill_from(at, own, rng, columns, own_rows)
            failures += [(int(places[place]), error) for place, error in failed]
        return failures

    def fill_from(
        self, at: int, own: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers
    ) -> Failures:
        """Write samples of one part into rows of a batch."""
        return self.parts[at].fill(own, rng_of, columns, rows)

    def read_and_discard(self, numbers: Numbers) -> None:
        """Read stored samples and discard them."""
        for at, own, _ in self.by_part(numbers):
            self.parts[at].read_and_discard(own)

    def prefetch(self, numbers: Numbers, elsewhere: bool) -> None:
        """Start fetching in each part."""
        for at, own, _ in self.by_part(numbers):
            self.parts[at].prefetch(own, elsewhere)

    def fetch(self, numbers: Numbers) -> None:
        """Fetch these samples now, in each part."""
        for at, own, _ in self.by_part(numbers):
            self.parts[at].fetch(own)

    def prefetch_hint(self, first: int, last: int, window: Window | None = None) -> None:
        """Pass the read-ahead hint on, unless the samples lie far from each other in a part."""
        for at, own, _ in self.by_part(np.arange(first, last)):
            begin, end = int(own.min()), int(own.max()) + 1
            if end - begin <= _MOST_SPREAD * len(own):
                self.parts[at].prefetch_hint(begin, end, window)

    def labels_of(self, numbers: Numbers) -> NDArray[Any] | None:
        """Label of each of these samples, if all parts provide labels."""
        labels: list[Any] = [None] * len(numbers)
        for at, own, places in self.by_part(numbers):
            found = self.parts[at].labels_of(own)
            if found is None or places is None:
                return found
            for place, label in zip(places.tolist(), found.tolist()):
                labels[place] = label
        return np.array(labels)

    @property
    def sample_bytes(self) -> float | None:
        """Average bytes of a sample in all parts; None if a part doesn't know."""
        known = [part.sample_bytes for part in self.parts]
        sizes = [each * len(part) for each, part in zip(known, self.parts) if each is not None]
        return sum(sizes) / sum(map(len, self.parts)) if len(sizes) == len(known) else None

    def check_length(self) -> bool:
        """Compare each part's length."""
        return any(part.check_length() for part in self.parts)

    @property
    def store_is_cached(self) -> bool | None:
        """True if caches keep all that is fetched from stores; None if nothing is."""
        known = [each for part in self.parts if (each := part.store_is_cached) is not None]
        return all(known) if known else None

    def padded(self, samples: list[Any], extra: int = 0) -> list[Any]:
        """Pad the samples of a batch as the first part does."""
        return self.parts[0].padded(samples, extra)

    @property
    def users_code(self) -> tuple[Any, ...]:
        """User functions and objects that make samples."""
        return tuple(code for part in self.parts for code in part.users_code)

    def remedy(self, shape: tuple[int, ...]) -> str:
        """Advice on making arrays of unequal shapes equal."""
        return self.parts[0].remedy(shape)


class Subset(Composite):
    """Some samples of a source, renumbered; read the same way and as fast as the whole.

    Worker processes share the array of numbers.
    """

    def __init__(self, whole: Source, numbers: Numbers) -> None:
        if whole.whole_batches:
            raise TypeError(
                "source must give single samples to be selected from, got one of whole batches: "
                "select from the arrays or the data set that these are made of"
            )
        super().__init__([whole])
        self.whole = whole
        self.numbers = numbers

    def __len__(self) -> int:
        """Number of chosen samples."""
        return len(self.numbers)

    def select(self, numbers: Any) -> Source:
        """Select some of these samples, from the same whole source."""
        return self.whole.select(self.numbers[chosen_of(numbers, len(self))])

    def in_memory(self, numbers: Numbers) -> Source:
        """Hold these samples of the whole source."""
        return type(self)(self.whole.in_memory(self.numbers[numbers]), self.numbers)

    def by_part(self, numbers: Numbers) -> Iterable[Group]:
        """Find these samples in the whole source."""
        return ((0, self.numbers[numbers], None),)

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return one sample."""
        return self.whole.sample(int(self.numbers[number]), self.fixed_rng(number, rng))

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        return f"{len(self)} of {len(self.whole)}: {self.whole.way(transformed)}"

    leaves = property(lambda self: self.whole.leaves)
    treedef = property(lambda self: self.whole.treedef)
    sample_bytes = property(lambda self: self.whole.sample_bytes)
    classes = property(lambda self: getattr(self.whole, "classes", None))
    files = property(lambda self: [self.whole.files[n] for n in self.numbers.tolist()])
    labels = property(lambda self: self.whole.labels[self.numbers])


def chosen_of(numbers: Any, size: int) -> NDArray[np.int64]:
    """Convert the argument of ``select`` to numbers from 0."""
    if not hasattr(numbers, "__len__") or isinstance(numbers, (str, bytes, Set, Mapping)):
        raise TypeError(
            "numbers must be a sequence of sample numbers or a boolean mask, got "
            f"{type(numbers).__name__}; make a list of it"
        )
    given = np.asarray(numbers)
    if given.ndim != 1:
        raise ValueError(f"numbers must have one axis, got {given.ndim}: shape {given.shape}")
    if given.dtype == bool:
        if len(given) != size:
            raise ValueError(
                f"a mask must have one value for each of the {size} samples, got {len(given)}"
            )
        return np.flatnonzero(given).astype(np.int64)
    if len(given) and given.dtype.kind not in "iu":
        raise TypeError(f"numbers must be integers or a boolean mask, got {given.dtype}")
    wrong = np.flatnonzero((given < -size) | (given >= size))
    if len(wrong):
        place = int(wrong[0])
        raise IndexError(
            f"numbers must be in range({-size}, {size}), got {given[place]} in place {place}"
        )
    chosen = given.astype(np.int64)
    chosen[chosen < 0] += size
    return chosen
