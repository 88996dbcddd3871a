"""``on_error``: what takes the place of a sample that can't be fetched or transformed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.errors import UnlikeError, note
from adapters.structure import flatten

OnError = Literal["raise", "skip"] | Callable[[Exception, int], Any]

# With "skip": neighbours that are tried before the data set is taken to be broken.
_TRIES = 100


class Replacements:
    """Those of one batch.

    Args:
        on_error: What to do.
        size: Samples in the data set.
        where: The batch, for notes.
        sample: Makes a sample by its number.
    """

    def __init__(
        self, on_error: OnError, size: int, where: str, sample: Callable[[int], Any]
    ) -> None:
        self._on_error = on_error
        self._size = size
        self._where = where
        self._sample = sample
        self.count = 0

    def of(
        self, error: BaseException, number: int, sample: Callable[[int], Any] | None = None
    ) -> Any:
        """What takes the place of a sample that failed.

        Args:
            error: How it did.
            number: Of the sample.
            sample: Makes another one, in a way of its own.

        Raises:
            BaseException: ``error``, with a note, where nothing does.
        """
        note(error, f"in sample {number}, {self._where}")
        if (
            self._on_error == "raise"
            or not isinstance(error, Exception)
            or isinstance(error.__cause__ or error, UnlikeError)  # It is all right by itself.
            or (self._on_error == "skip" and _concerns_all(error))
        ):
            try:
                raise error
            finally:
                del error  # The traceback would refer to it through this frame, in a circle.
        self.count += 1
        if self._on_error != "skip":
            try:
                replacement = self._on_error(error, number)
                if replacement is None:
                    raise ValueError("on_error must return a sample, got None")
                return replacement
            except BaseException as another:
                note(another, f"in on_error, for sample {number}")
                raise
        for step in range(1, min(_TRIES, self._size - 1) + 1):
            try:
                return (sample or self._sample)((number + step) % self._size)
            except Exception as another:
                if _concerns_all(another):
                    raise
        note(error, f"and on_error='skip' found no other sample that works in {_TRIES}")
        raise error


def _concerns_all(error: BaseException) -> bool:
    """Whether other samples fail, too, a minute each, as their store doesn't answer."""
    return getattr(error, "concerns_all", False) is True


def for_a_generator(error: BaseException) -> BaseException:
    """The error, or what may leave a generator in its place."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("source or transform raised StopIteration")
    wrapped.__cause__ = error
    return wrapped


def put(sample: Any, skeleton: Any, rows: Sequence[NDArray[Any]], row: int) -> None:
    """Write a sample that takes another one's place into its row of a batch.

    Args:
        sample: The sample.
        skeleton: Of the others.
        rows: The batch's arrays.
        row: Which one.

    Raises:
        ValueError: It isn't like the others.
    """
    leaves, own = flatten(sample)
    if len(leaves) != len(rows):
        raise ValueError(
            "on_error must return a sample like the others, (array, label), got "
            f"{len(leaves)} members"
        )
    if own != skeleton:
        raise ValueError(
            f"on_error must return a sample like the others, of the structure {skeleton}, got {own}"
        )
    for column, value in zip(rows, leaves):
        if np.shape(value) != column.shape[1:]:
            raise ValueError(
                f"on_error must return a sample like the others, with {column.shape[1:]} "
                f"in this place, got {np.shape(value)}"
            )
        column[row] = value
        if not np.array_equal(column[row], value, equal_nan=column.dtype.kind in "fc"):
            raise ValueError(
                f"on_error must return a sample like the others, of {column.dtype} in this "
                f"place, got {np.asarray(value).dtype}"
            )
