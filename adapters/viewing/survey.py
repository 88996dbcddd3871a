"""``statistics``: what a source holds, counted by several threads.

Each thread reads stretches of samples, and makes a ``Tally`` of each; these are added up in the
order of the samples, so that the figures are the same for any number of threads. A sample that
can't be read is listed, and the others are counted on. Ctrl-C ends it after the stretches that are
under way.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from adapters.arguments import check_integer
from adapters.selecting.given import source_given
from adapters.sources import Source
from adapters.user_code import Gate
from adapters.viewing.fields import Field, fields_of

# Samples that one thread reads at a time.
_STRETCH = 64
_SHOWN_LABELS, _SHOWN_CORRUPT = 12, 5


@dataclass(frozen=True)
class FieldStatistics:
    """What is known of one member of the samples.

    Args:
        name: Of the member.
        kind: "image", "array", "number" or "label".
        count: Samples that were counted.
        mean: Of the values: a number for each channel of images, one for anything else; None for
            labels.
        std: The standard deviation, likewise.
        low: The least value.
        high: The greatest.
        shapes: How many samples have which shape.
        counts: How many samples have which label.
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
        """It, for people."""
        if self.kind == "label":
            yield f"{self.name}: labels, {len(self.counts)} different ones"
            for label, count in list(self.counts.items())[:_SHOWN_LABELS]:
                yield f"    {label!r}: {count:,}"
            if len(self.counts) > _SHOWN_LABELS:
                yield f"    and {len(self.counts) - _SHOWN_LABELS} more"
            return
        yield f"{self.name}: {self.kind}, {_sizes(self.shapes)}"
        if self.mean is not None and self.std is not None:
            mean, std = (", ".join(f"{each:.4g}" for each in of) for of in (self.mean, self.std))
            yield f"    mean {mean}; standard deviation {std}; {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Statistics:
    """What ``statistics`` has found; printed, it is a summary.

    Args:
        samples: How many there are.
        fields: What is known of each member of them.
        corrupt: ``(sample number, what is wrong)`` of those that can't be read.
    """

    samples: int
    fields: tuple[FieldStatistics, ...]
    corrupt: tuple[tuple[int, str], ...] = field(default=())

    def _first(self, *kinds: str) -> FieldStatistics | None:
        return next((each for each in self.fields if each.kind in kinds), None)

    @property
    def mean(self) -> tuple[float, ...] | None:
        """Of each channel of the first images, else of the first numbers; None without any."""
        found = self._first("image") or self._first("array", "number")
        return None if found is None else found.mean

    @property
    def std(self) -> tuple[float, ...] | None:
        """The standard deviation, likewise."""
        found = self._first("image") or self._first("array", "number")
        return None if found is None else found.std

    @property
    def labels(self) -> dict[Any, int]:
        """How many samples have which of the first labels, in the order of these."""
        found = self._first("label")
        return {} if found is None else found.counts

    @property
    def sizes(self) -> dict[tuple[int, ...], int]:
        """How many samples have which shape, of the first images, else of the first arrays."""
        found = self._first("image") or self._first("array")
        return {} if found is None else found.shapes

    def __str__(self) -> str:
        lines = [f"{self.samples:,} samples"]
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
    """Read a source once, and say what it holds: means, labels, sizes, what can't be read.

    Args:
        source: Whatever ``SafeSequence`` takes as a source of single samples: arrays, data sets,
            what ``open_records`` and ``open_images`` return, and paths of these.
        workers: Threads that read; "auto": one for each CPU that this process may use.
        progress: Show a progress bar on stderr.

    Returns:
        ``Statistics``: ``mean`` and ``std`` (of each channel; of the values as they are: 0 to 255
        for uint8), ``labels`` with their counts, ``sizes``, ``corrupt`` with the number of each
        sample that can't be read and why, and ``fields`` for all of this for each member.

    Raises:
        TypeError: An argument of the wrong type, or a source of whole batches.
        ValueError: Out of range, or no sample.

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
    given = source_given(source, "source")
    size = len(given)
    total: dict[str, Field] = {}
    corrupt: list[tuple[int, str]] = []
    for stretch in _with_bar(_stretches(given, size, threads), size, progress):
        corrupt += stretch.corrupt
        for name, one in stretch.fields.items():
            if name in total:
                total[name].add(one)
            else:
                total[name] = one
    fields = tuple(_summed(name, each) for name, each in total.items())
    return Statistics(size, fields, tuple(corrupt))


@dataclass
class _Stretch:
    """What some samples, one after another, hold."""

    samples: int
    fields: dict[str, Field] = field(default_factory=dict)
    corrupt: list[tuple[int, str]] = field(default_factory=list)


def _stretches(source: Source, size: int, threads: int) -> Iterator[_Stretch]:
    starts = range(0, size, _STRETCH)
    gate = Gate(("source", each) for each in source.own_code)
    with concurrent.futures.ThreadPoolExecutor(threads, "adapters-statistics") as pool:
        waiting: list[concurrent.futures.Future[_Stretch]] = []
        try:
            for start in starts:
                waiting.append(pool.submit(_read, source, start, min(size, start + _STRETCH), gate))
                if len(waiting) > 2 * threads:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            pool.shutdown(cancel_futures=True)


def _read(source: Source, start: int, end: int, gate: Gate) -> _Stretch:
    stretch = _Stretch(end - start)
    with gate:
        _count(source, start, end, stretch)
    return stretch


def _count(source: Source, start: int, end: int, stretch: _Stretch) -> None:
    for number in range(start, end):
        try:
            members = fields_of(source.sample(number))
        except Exception as error:
            stretch.corrupt.append((number, f"{type(error).__name__}: {error}"))
            continue
        for name, value in members:
            if name not in stretch.fields:
                stretch.fields[name] = Field()
            stretch.fields[name].count(value)


def _with_bar(stretches: Iterable[_Stretch], size: int, progress: bool) -> Iterator[_Stretch]:
    if not progress:
        yield from stretches
        return
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        """Without the thread that watches bars, which would stay."""

        monitor_interval = 0

    with Bar(total=size, desc="statistics", unit=" samples", leave=False) as bar:
        for stretch in stretches:
            yield stretch
            bar.update(stretch.samples)


def _summed(name: str, found: Field) -> FieldStatistics:
    counts = found.labels
    if found.kind == "label":
        try:
            counts = Counter(dict(sorted(counts.items())))
        except TypeError:  # Of several types.
            counts = Counter(dict(counts.most_common()))
    numbers = found.values is not None and found.kind != "label"
    mean = std = None
    if numbers:
        assert found.values is not None
        mean = tuple(map(float, found.values.mean))
        std = tuple(float(each) for each in np.sqrt(found.values.variance))
    return FieldStatistics(
        name,
        found.kind,
        found.samples,
        mean,
        std,
        found.low if numbers else None,
        found.high if numbers else None,
        dict(found.shapes.most_common()),
        dict(counts) if found.kind == "label" else {},
    )


def _sizes(shapes: dict[tuple[int, ...], int]) -> str:
    if len(shapes) == 1:
        return (
            "all of " + " x ".join(map(str, next(iter(shapes))))
            if next(iter(shapes))
            else "numbers"
        )
    if len({len(shape) for shape in shapes}) > 1:
        return f"{len(shapes)} shapes"
    low, high = (" x ".join(str(f(axis)) for axis in zip(*shapes)) for f in (min, max))
    return f"{len(shapes)} shapes, {low} to {high}"
