"""The members of samples, and what is counted of each: values, shapes or labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.batch.collate import as_leaf
from adapters.viewing.images import image_in

# Different values up to which whole numbers are labels; beyond them they are numbers.
_MOST_LABELS = 100_000


class Moments(NamedTuple):
    """Of some values of each channel; exact for whole numbers up to 16 bits."""

    values: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    """Sums of squared differences from the mean."""

    @property
    def variance(self) -> NDArray[np.float64]:
        """Of the values as they are, not an estimate of others'."""
        return self.squares / max(self.values, 1)

    def with_those(self, other: Moments) -> Moments:
        """Of both, as Chan, Golub and LeVeque add them up."""
        if len(self.mean) != len(other.mean):
            return self.of_all().with_those(other.of_all())
        count = self.values + other.values
        if not count:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.values / count)
        more = apart**2 * (self.values * other.values / count)
        return Moments(count, mean, self.squares + other.squares + more)

    def of_all(self) -> Moments:
        """Of all channels together."""
        channels = len(self.mean)
        mean = self.mean.mean()
        squares = self.squares.sum() + self.values * ((self.mean - mean) ** 2).sum()
        return Moments(self.values * channels, np.array([mean]), np.array([squares]))


def moments(values: NDArray[Any]) -> Moments:
    """Moments of one sample's values for each channel, the last axis."""
    columns = values.reshape(-1, values.shape[-1])
    count = len(columns)
    if not count:
        return Moments(0, np.zeros(columns.shape[1]), np.zeros(columns.shape[1]))
    if values.dtype == np.uint8:
        levels = np.arange(256)
        counted = np.stack([np.bincount(column, minlength=256) for column in columns.T])
        sums, squared = counted @ levels, counted @ levels**2
        mean = sums / count
        return Moments(count, mean, np.maximum(squared - sums * mean, 0.0))
    mean = columns.mean(axis=0, dtype=np.float64)
    return Moments(count, mean, ((columns - mean) ** 2).sum(axis=0, dtype=np.float64))


@dataclass
class Field:
    """What was counted of one member."""

    samples: int = 0
    images: int = 0
    arrays: int = 0
    whole: int = 0
    """Samples whose member is a whole number, or a text."""
    values: Moments | None = None
    low: float = np.nan
    high: float = np.nan
    shapes: Counter[tuple[int, ...]] = field(default_factory=Counter)
    labels: Counter[Any] = field(default_factory=Counter)

    @property
    def kind(self) -> str:
        """What it is, as far as was seen."""
        if self.images and self.images == self.samples:
            return "image"
        if self.arrays:
            return "array"
        labels = self.whole == self.samples and len(self.labels) <= _MOST_LABELS
        return "label" if labels else "number"

    def count(self, value: Any) -> None:
        """Count one sample's member."""
        self.samples += 1
        array = as_leaf(value)
        self.shapes[array.shape] += 1
        if not array.ndim:
            item = array.item()
            if array.dtype.kind in "biuO" and isinstance(item, (int, str, bytes)):
                self.whole += 1
                self.labels[item] += 1
                if array.dtype.kind == "O":
                    return
        if array.dtype.kind not in "biuf":
            self.arrays += bool(array.ndim)
            return
        image = image_in(array)
        self.images += image is not None
        self.arrays += bool(array.ndim)
        if array.size:
            # Of what is a number: of nothing but NaN, these stay NaN.
            self.low = np.fmin(self.low, np.fmin.reduce(array, axis=None))
            self.high = np.fmax(self.high, np.fmax.reduce(array, axis=None))
            own = moments(array.reshape(-1, 1) if image is None else image)
            self.values = own if self.values is None else self.values.with_those(own)

    def add(self, other: Field) -> None:
        """Count those of another stretch of samples."""
        for name in ("samples", "images", "arrays", "whole"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.low, self.high = np.fmin(self.low, other.low), np.fmax(self.high, other.high)
        self.shapes.update(other.shapes)
        self.labels.update(other.labels)
        if other.values is not None:
            mine = self.values
            self.values = other.values if mine is None else mine.with_those(other.values)


def fields_of(sample: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The members of a sample, and what they are called."""
    if isinstance(sample, dict):
        for key, member in sample.items():
            yield from fields_of(member, f"{name}.{key}" if name else str(key))
    elif isinstance(sample, tuple):
        names = getattr(sample, "_fields", range(len(sample)))
        for key, member in zip(names, sample):
            yield from fields_of(member, f"{name}[{key}]")
    elif sample is not None:
        yield name or "sample", sample
