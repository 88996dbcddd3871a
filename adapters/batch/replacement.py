"""``on_error``: replacement of samples that can't be fetched or transformed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.batch.plan import BatchKey
from adapters.errors import UnlikeError, note
from adapters.generators import Place
from adapters.structure import flatten, outline

OnError = Literal["raise", "skip"] | Callable[[Exception, int], Any]

# With "skip": neighbours to try before the data set is considered broken.
_TRIES = 100
_noted: ContextVar[dict[int, int | None] | None] = ContextVar("_noted", default=None)


@contextmanager
def replacements_noted() -> Iterator[dict[int, int | None]]:
    """Replaced samples of batches that this thread computes in the block, and those used instead.

    Numbers; None for a sample that a function made.
    """
    noted: dict[int, int | None] = {}
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


@dataclass
class Replacements:
    """Replacements in one batch of a data set of ``size`` samples, made by ``sample(number)``.

    "skip" prefers samples that the order ``visits``. The batch's ``place`` counts them.
    """

    on_error: OnError
    size: int
    key: BatchKey
    place: Place
    sample: Callable[[int], Any]
    visits: Callable[[int], bool] = lambda number: True

    def of(self, error: BaseException, number: int) -> Any:
        """Return the replacement of a sample, or raise its error."""
        note(error, f"in sample {number}, batch {self.key.index} of epoch {self.key.epoch}")
        error = for_a_generator(error)
        if (
            self.on_error == "raise"
            or not isinstance(error, Exception)
            or isinstance(error.__cause__ or error, UnlikeError)  # The sample itself is intact.
            or (self.on_error == "skip" and _concerns_all(error))
        ):
            try:
                raise error
            finally:
                del error  # Breaks the cycle of the traceback, this frame and the error.
        self.place.skipped += 1
        noted = {} if (found := _noted.get()) is None else found
        if self.on_error != "skip":
            try:
                replacement = self.on_error(error, number)
                if replacement is None:
                    raise ValueError("on_error must return a sample, got None")
                noted[number] = None
                return replacement
            except BaseException as another:
                note(another, f"in on_error, for sample {number}")
                raise for_a_generator(another)  # noqa: B904  # With a cause of its own.
        tries = min(_TRIES, self.size - 1)
        others = [(number + step) % self.size for step in range(1, tries + 1)]
        for another_number in sorted(others, key=self.visits, reverse=True):
            try:
                replacement = self.sample(another_number)
                noted[number] = another_number
                return replacement
            except Exception as another:
                if _concerns_all(another):
                    raise
        note(error, f"and on_error='skip' found no other sample that works in {_TRIES}")
        raise error


def _concerns_all(error: BaseException) -> bool:
    """True if the error affects all samples (the store is down), each after a minute."""
    return getattr(error, "concerns_all", False) is True


def for_a_generator(error: BaseException) -> BaseException:
    """Return an error with notes, or a ``RuntimeError`` if a generator can't raise it."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("source, transform or on_error raised StopIteration")
    wrapped.__cause__ = error
    wrapped.__notes__ = error.__notes__  # type: ignore[attr-defined]
    return wrapped


def put(sample: Any, treedef: Any, rows: Sequence[NDArray[Any]], row: int) -> None:
    """Write a replacement into its row of a batch, or raise ``ValueError`` if it doesn't fit."""
    leaves, own = flatten(sample)
    wanted = [(column.shape[1:], column.dtype) for column in rows]
    found = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
    fits = own == treedef and [shape for shape, _ in wanted] == [shape for shape, _ in found]
    for column, leaf in zip(rows, leaves) if fits else ():
        column[row] = leaf
        fits &= np.array_equal(column[row], leaf, equal_nan=column.dtype.kind in "fc")
    if not fits:
        raise ValueError(
            f"on_error must return a sample like the others, {outline(treedef, wanted)}, got "
            f"{outline(own, found)}"
        )
