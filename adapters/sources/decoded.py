"""``Decoded``: base of sources whose samples a ``Content`` decodes from records or files."""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from adapters.images import ImageDecoder
from adapters.sources.contents import Content, Images
from adapters.sources.source import Source

_Self = TypeVar("_Self", bound="Decoded")

# Samples per step: with records of 100 kB, 6 MB at once and as much ahead.
_AT_ONCE = 64


class Decoded(Source):
    """Base class of what ``open_records`` and ``open_images`` return.

    Args:
        content: Decodes the bytes.
    """

    stored = False
    python_numbers = True
    unit: str
    """Name of a sample's container in messages: record or file."""

    def __init__(self, content: Content) -> None:
        self._content = content

    @property
    def content(self) -> Content:
        """``Content`` that decodes the bytes."""
        return self._content

    @abc.abstractmethod
    def with_content(self, content: Any) -> Decoded:
        """Return a source of the same bytes with another content."""

    @property
    @abc.abstractmethod
    def version(self) -> str:
        """Fingerprint that changes when the bytes do."""

    def __getitem__(self, index: Any) -> Any:
        """Return one sample, or a list of samples for a slice.

        Crops and flips are drawn again each time. Read by a data set or transform of a loader, they
        depend only on the seed, the epoch and the sample being made.

        Raises:
            IndexError: Out of range.
            OSError: An image's file can't be read.
            RecordError: The record, or the file, is damaged, or holds something else.
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
            ahead = numbers[first + _AT_ONCE : first + 2 * _AT_ONCE]
            self.bring(np.array(numbers[first : first + _AT_ONCE], np.int64))
            self.expect(np.array(ahead, np.int64), elsewhere=False)
            yield from map(self._drawn, numbers[first : first + _AT_ONCE])

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return these samples, read in file order."""
        self.bring(np.array([self._number(number) for number in numbers], np.int64))
        samples: list[Any] = [None] * len(numbers)
        for place in np.argsort(numbers, kind="stable").tolist():
            samples[place] = self[numbers[place]]
        return samples

    @abc.abstractmethod
    def read(self, index: int) -> bytes:
        """Return the bytes that a sample is decoded from.

        Raises:
            IndexError: Out of range.
            OSError: An image's file can't be read.
            RecordError: The record is damaged.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the files."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        at_once = self.unit if transformed or self.leaves is None else "batch"
        return f"{self.unit}s, read and decoded a {at_once} at a time"

    @property
    def draws(self) -> bool:
        """True if a sample depends on its generator."""
        return self._content.draws

    @property
    def holds_images(self) -> bool:
        """True if samples are (array, label)."""
        return isinstance(self._content, Images)

    def remedy(self, shape: tuple[int, ...]) -> str:
        """Advice on making arrays of unequal shapes equal; images have three axes."""
        if not isinstance(self._content, Images):
            return super().remedy(shape)
        if len(shape) < 2 or getattr(self._content.decoder, "shape", None):
            return (
                "labels of several lengths need a transform that makes them equally long, or pad()"
            )
        opened = f"open_{'images' if self.unit == 'file' else 'records'}"
        return (
            f"images of several sizes need {opened}(..., decode=ImageDecoder(224)), or another "
            "size, or a transform that pads, crops or resizes them"
        )

    @property
    def store_is_cached(self) -> bool | None:
        """True if a cache keeps objects fetched from a store; None without a store."""
        return None

    @property
    def decodes(self) -> bool:
        """True if a plain ``ImageDecoder`` makes the arrays; a subclass may do anything."""
        return isinstance(self._content, Images) and type(self._content.decoder) is ImageDecoder

    @property
    def decoder(self) -> ImageDecoder | None:
        """Decoder of the arrays if ``decodes``, else None."""
        content = self._content
        return content.decoder if isinstance(content, Images) and self.decodes else None

    @property
    def makes_samples(self) -> bool:
        """True if user code makes samples."""
        decoder = getattr(self._content, "decoder", None)
        return self.function is not None or type(decoder) not in (ImageDecoder, type(None))

    @property
    def own_code(self) -> tuple[Any, ...]:
        """User functions in ``decode``, and decoders of user classes."""
        content = self._content
        decoders = [field.decoder for field in getattr(content, "fields", ())]
        code = self.function, getattr(content, "decoder", None), *decoders
        return tuple(each for each in code if type(each) not in (ImageDecoder, type(None)))

    @property
    def function(self) -> Callable[[bytes], Any] | None:
        """User function given as ``decode``, or None."""
        return getattr(self._content, "function", None)

    def _number(self, index: Any) -> int:
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(
                f"{self.unit} number must be an integer or a slice, got {index!r}"
            ) from None
        size = len(self)
        if not -size <= number < size:
            raise IndexError(f"{self.unit} number must be in range({-size}, {size}), got {number}")
        return number % size
