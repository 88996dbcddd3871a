"""``statistics``: the contents of a source, counted by several threads.

Each thread counts ranges of samples. The counts are added in sample order, so the result doesn't
depend on the number of threads. Samples that can't be read are listed instead of counted. Ctrl-C
ends the count after the ranges in progress.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer, counted
from adapters.batch.collate import as_leaf
from adapters.progress import bar
from adapters.sources import Source, source_given
from adapters.user_code import Gate
from adapters.viewing.images import image_in
from adapters.viewing.peek import named_leaves

# Samples per task, and tasks.
_LEAST_RANGE, _MOST_RANGES = 64, 10_000
_SHOWN_LABELS, _SHOWN_CHARACTERS, _SHOWN_CORRUPT = 12, 60, 5
# Integers with more distinct values than this are numbers, not labels, and longer texts contents.
_MOST_LABELS, _MOST_LABEL_BYTES = 100_000, 256


@dataclass(frozen=True)
class FieldStatistics:
    """The statistics of one member of the samples.

    Args:
        name: The name of the member.
        kind: "image", "array", "number", "label", or "bytes" for long ``bytes`` or ``str``.
        count: The number of samples.
        mean: The mean of the values, per channel for images; None for labels.
        std: The standard deviation, likewise.
        low: The minimum.
        high: The maximum.
        shapes: The number of samples of each shape; of "bytes", of each length.
        counts: The number of samples of each label.
    """

    name: str
    kind: str
    count: int
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    low: float | None
    high: float | None
    shapes: dict[tuple[int, ...], int]
    counts: dict[Any, int]

    def lines(self) -> Iterator[str]:
        """A summary as lines of text."""
        if self.kind == "label":
            yield f"{self.name}: labels, {len(self.counts):,} distinct"
            for label, count in list(self.counts.items())[:_SHOWN_LABELS]:
                yield f"    {_shortened(repr(label))}: {count:,}"
            if len(self.counts) > _SHOWN_LABELS:
                yield f"    and {len(self.counts) - _SHOWN_LABELS} more"
            return
        if self.kind == "bytes":
            lengths = [length for (length,) in self.shapes]
            yield f"{self.name}: bytes, lengths {min(lengths):,} to {max(lengths):,}"
            return
        yield f"{self.name}: {self.kind}, {_sizes(self.shapes)}"
        if self.mean is not None and self.std is not None:
            mean, std = (", ".join(f"{each:.4g}" for each in of) for of in (self.mean, self.std))
            yield f"    mean {mean}; standard deviation {std}; {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Statistics:
    """The result of ``statistics``; ``print`` shows a summary.

    Args:
        samples: The number of samples.
        fields: The statistics of each member of the samples.
        corrupt: ``(sample number, error)`` of the samples that can't be read.
    """

    samples: int
    fields: tuple[FieldStatistics, ...]
    corrupt: tuple[tuple[int, str], ...] = field(default=())

    def _first(self, *kinds: str) -> FieldStatistics | None:
        return next((each for each in self.fields if each.kind in kinds), None)

    @property
    def mean(self) -> tuple[float, ...] | None:
        """The mean of the first image member per channel, else of the first numbers; or None."""
        found = self._first("image") or self._first("array", "number")
        return None if found is None else found.mean

    @property
    def std(self) -> tuple[float, ...] | None:
        """The standard deviation, likewise."""
        found = self._first("image") or self._first("array", "number")
        return None if found is None else found.std

    @property
    def labels(self) -> dict[Any, int]:
        """The number of samples of each label of the first label member, sorted by label."""
        found = self._first("label")
        return {} if found is None else found.counts

    @property
    def sizes(self) -> dict[tuple[int, ...], int]:
        """The number of samples of each shape, of the first image member, else the first array."""
        found = self._first("image") or self._first("array")
        return {} if found is None else found.shapes

    def __str__(self) -> str:
        lines = [counted(self.samples, "sample")]
        for each in self.fields:
            lines += each.lines()
        if self.corrupt:
            lines.append(f"{len(self.corrupt):,} can't be read:")
            lines += [f"    {number}: {error}" for number, error in self.corrupt[:_SHOWN_CORRUPT]]
            if len(self.corrupt) > _SHOWN_CORRUPT:
                lines.append(f"    and {len(self.corrupt) - _SHOWN_CORRUPT} more")
        return "\n".join(lines)


def statistics(
    source: Any, workers: int | Literal["auto"] = "auto", *, progress: bool = True
) -> Statistics:
    """Read a source once and count what it holds: means, labels, sizes, damaged samples.

    Args:
        source: Any source of single samples that ``SafeSequence`` accepts: arrays, data sets,
            results of ``open_records`` and ``open_images``, and paths of these.
        workers: Number of threads; "auto" is one for each CPU that this process may use.
        progress: Show a progress bar on stderr.

    Returns:
        ``Statistics``: ``mean`` and ``std`` per channel, in the source's own scale (0 to 255 for
        uint8), ``labels`` with their counts, ``sizes``, ``corrupt`` with number and error of each
        sample that can't be read, and ``fields`` with all of this for each member.

    Raises:
        TypeError: An argument has the wrong type, or the source consists of whole batches.
        ValueError: An argument is out of range, or the source is empty.

    Example:
        >>> import numpy as np
        >>> from adapters import statistics
        >>> images = np.zeros((4, 8, 8, 3), np.uint8)
        >>> images[..., 0] = 255
        >>> found = statistics((images, np.array([0, 1, 1, 1])), progress=False)
        >>> found.mean, found.labels, found.sizes
        ((255.0, 0.0, 0.0), {0: 1, 1: 3}, {(8, 8, 3): 4})
    """
    if workers != "auto":
        check_integer("workers", workers, 1, ' or "auto"')
    threads = len(os.sched_getaffinity(0)) if workers == "auto" else int(workers)
    source = source_given(source, "source")
    size, gate = len(source), Gate(("source", each) for each in source.users_code)
    fields: dict[str, _Field] = {}
    corrupt: list[tuple[int, str]] = []
    pool = concurrent.futures.ThreadPoolExecutor(threads, "adapters-statistics")
    with bar("statistics", " samples", progress) as show:
        try:
            step = max(_LEAST_RANGE, size // _MOST_RANGES)
            ranges = [range(start, min(size, start + step)) for start in range(0, size, step)]
            counted = pool.map(lambda numbers: _count(source, numbers, gate), ranges)
            for numbers, (counts, damaged) in zip(ranges, counted):
                corrupt += damaged
                for name, each in counts.items():
                    fields.setdefault(name, _Field()).add(each)
                show(numbers.stop, size)
        finally:
            pool.shutdown(cancel_futures=True)
    return Statistics(
        size, tuple(each.result(name) for name, each in fields.items()), tuple(corrupt)
    )


# --- counting ---


class _Moments(NamedTuple):
    """The moments of some values per channel; exact for integers of up to 16 bits."""

    values: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    """Sums of squared differences from the mean."""

    @classmethod
    def of(cls, values: NDArray[Any]) -> _Moments:
        """The moments of one sample with channels in the last axis."""
        columns = values.reshape(-1, values.shape[-1])
        count = len(columns)
        if values.dtype == np.uint8:
            levels = np.arange(256)
            counted = np.stack([np.bincount(column, minlength=256) for column in columns.T])
            sums, squared = counted @ levels, counted @ levels**2
            mean = sums / count
            return cls(count, mean, np.maximum(squared - sums * mean, 0.0))
        mean = columns.mean(axis=0, dtype=np.float64)
        return cls(count, mean, ((columns - mean) ** 2).sum(axis=0, dtype=np.float64))

    def plus(self, other: _Moments) -> _Moments:
        """Combine two sets of moments by the formula of Chan, Golub and LeVeque."""
        if len(self.mean) != len(other.mean):
            return self._of_all_channels().plus(other._of_all_channels())
        count = self.values + other.values
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.values / count)
        more = apart**2 * (self.values * other.values / count)
        return _Moments(count, mean, self.squares + other.squares + more)

    def _of_all_channels(self) -> _Moments:
        mean = self.mean.mean()
        squares = self.squares.sum() + self.values * ((self.mean - mean) ** 2).sum()
        return _Moments(self.values * len(self.mean), np.array([mean]), np.array([squares]))


@dataclass
class _Field:
    """The counts of one member."""

    shapes: Counter[tuple[int, ...]] = field(default_factory=Counter)
    labels: Counter[Any] = field(default_factory=Counter)
    """Samples in which the member is an integer or a short string, while there are few."""
    lengths: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """Samples in which the member is a string, by its bytes."""
    images: int = 0
    moments: _Moments | None = None
    low: float = np.nan
    high: float = np.nan

    def count(self, value: Any) -> None:
        """Count the member of one sample."""
        array = as_leaf(value)
        self.shapes[array.shape] += 1
        # A feature of one value, as decode="example" gives it, is an array of one.
        if array.shape in ((), (1,)) and array.dtype.kind in "biuO":
            item = array.item()
            if isinstance(item, (str, bytes)):
                text = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item
                self.lengths[len(text),] += 1
                if len(text) > _MOST_LABEL_BYTES:
                    return
            if isinstance(item, (int, str, bytes)):
                self.labels[item] += 1
        if array.dtype.kind not in "biuf":
            return
        image = image_in(array)
        self.images += image is not None
        if array.size:
            # NaN is ignored; low and high stay NaN if there are no other values.
            self.low = np.fmin(self.low, np.fmin.reduce(array, axis=None))
            self.high = np.fmax(self.high, np.fmax.reduce(array, axis=None))
            self._add_moments(_Moments.of(array.reshape(-1, 1) if image is None else image))

    def add(self, other: _Field) -> None:
        """Add the counts of later samples."""
        self.images += other.images
        self.low, self.high = np.fmin(self.low, other.low), np.fmax(self.high, other.high)
        self.shapes.update(other.shapes)
        self.lengths.update(other.lengths)
        if len(self.labels) <= _MOST_LABELS:
            self.labels.update(other.labels)
        if other.moments is not None:
            self._add_moments(other.moments)

    def _add_moments(self, moments: _Moments) -> None:
        self.moments = moments if self.moments is None else self.moments.plus(moments)

    def result(self, name: str) -> FieldStatistics:
        """The statistics of all samples."""
        samples, shapes = self.shapes.total(), dict(self.shapes.most_common())
        mean = std = low = high = None
        counts: dict[Any, int] = {}
        if self.labels.total() == samples and len(self.labels) <= _MOST_LABELS:
            kind = "label"
            try:
                counts = dict(sorted(self.labels.items()))
            except TypeError:  # Labels of several types.
                counts = dict(self.labels.most_common())
        elif self.lengths.total() == samples:
            kind, shapes = "bytes", dict(self.lengths.most_common())
        else:
            arrays = "array" if any(shapes) else "number"
            kind = "image" if self.images == samples else arrays
            if self.moments is not None:
                variance = self.moments.squares / self.moments.values
                mean, std = tuple(self.moments.mean.tolist()), tuple(np.sqrt(variance).tolist())
                low, high = self.low, self.high
        return FieldStatistics(name, kind, samples, mean, std, low, high, shapes, counts)


def _count(
    source: Source, numbers: range, gate: Gate
) -> tuple[dict[str, _Field], list[tuple[int, str]]]:
    """The fields of a range of samples, and the number and error of each that can't be read."""
    fields: dict[str, _Field] = {}
    corrupt = []
    with gate:
        for number in numbers:
            try:
                sample = source.sample(number)
            except Exception as error:
                corrupt.append((number, f"{type(error).__name__}: {error}"))
                continue
            for name, value in named_leaves(sample):
                fields.setdefault(name or "sample", _Field()).count(value)
    return fields, corrupt


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _sizes(shapes: dict[tuple[int, ...], int]) -> str:
    if len(shapes) == 1:
        (shape,) = shapes
        return "all of " + " x ".join(map(str, shape)) if shape else "numbers"
    if len({len(shape) for shape in shapes}) > 1:
        return f"{len(shapes)} shapes"
    low, high = (" x ".join(str(f(axis)) for axis in zip(*shapes)) for f in (min, max))
    return f"{len(shapes)} shapes, {low} to {high}"
