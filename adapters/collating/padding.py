"""``pad``: samples of unequal lengths as one batch of equally long rows."""

from __future__ import annotations

import bisect
import copy
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.alignment import aligned_empty
from adapters.arguments import check_integer
from adapters.batch.collate import filler
from adapters.collating.members import ByMember, common_dtype, same_rest


class Pad(ByMember):
    """Makes a batch of samples whose lengths differ; ``pad`` makes one, and says what it takes."""

    def __init__(
        self,
        value: Any = 0,
        to_multiple_of: int = 1,
        max_length: int | None = None,
        *,
        axis: int | tuple[int, ...] = 0,
        lengths: bool = False,
    ) -> None:
        super().__init__(value, to_multiple_of)
        if max_length is not None:
            check_integer("max_length", max_length, 1, " or None")
        if not isinstance(lengths, (bool, np.bool_)):
            raise TypeError(f"lengths must be True or False, got {lengths!r}")
        self._longest = None if max_length is None else int(max_length)
        self._axes = _axes_of(axis)
        self._lengths = bool(lengths)
        self._bounds: tuple[int, ...] = ()
        self._measured: NDArray[Any] = np.empty(0)
        self._probed: list[frozenset[str]] = []
        # Of one batch: its samples' lengths, and which members may have them, if not all.
        self._expected: list[int] | None = None
        self._following: frozenset[str] | None = None

    @property
    def remedy(self) -> str:
        """What says that a member varies of which some batches don't tell, for people."""
        return "give it a value for each member, pad((0, 0)), which says that all of these vary"

    def __repr__(self) -> str:
        return (
            f"pad({self._value!r}, {self._multiple}, {self._longest}, axis={self._axes}, "
            f"lengths={self._lengths})"
        )

    def member(self, arrays: list[NDArray[Any]], value: Any, where: str) -> Any:
        """An array for a member, or it and its lengths."""
        ndim = arrays[0].ndim
        axes = tuple(axis for axis in self._axes if axis < ndim)
        same_rest(arrays, axes, where)
        dtype = common_dtype(arrays)
        value = filler(value, dtype, where)
        counts = [array.shape[0] for array in arrays]
        if axes == (0,):
            length = self._length(counts, where)
            batch = _filled((len(arrays), length, *arrays[0].shape[1:]), dtype, value)
            for row, array, count in zip(batch, arrays, counts):
                row[:count] = array if count <= length else array[:length]
        else:
            shape = list(arrays[0].shape)
            for axis in axes:
                shape[axis] = self._length([array.shape[axis] for array in arrays], where)
            batch = _filled((len(arrays), *shape), dtype, value)
            for row, array in zip(batch, arrays):
                taken = tuple(slice(min(*sizes)) for sizes in zip(array.shape, shape))
                row[taken] = array[taken]
        if not self._lengths:
            return batch
        return _Measured(batch, np.minimum(counts, batch.shape[1]).astype(np.int32))

    def within(self, bounds: Sequence[Any], lengths: NDArray[Any]) -> Pad:
        """The same for samples in buckets, once it is told which ones a batch has.

        Args:
            bounds: Of the buckets, in increasing order. Nothing changes where they aren't integers.
            lengths: Of each sample, by its number.
        """
        if len(self._axes) > 1 or any(bound != int(bound) for bound in bounds):
            return self
        bound = copy.copy(self)
        bound._bounds, bound._measured = tuple(map(int, bounds)), lengths
        bound._probed = []
        return bound

    def for_samples(self, numbers: Any, alone: Callable[[int], Any]) -> Pad:
        """The same for one batch: members that have the lengths of its samples get their bound.

        Where these lengths are all equal, a member of fixed size may have them by chance. Then the
        longest sample of all is asked for once: what hasn't its length there, doesn't follow it.

        Args:
            numbers: Of the batch's samples, in their order.
            alone: Makes the sample of a number.
        """
        if not self._bounds:
            return self
        batch = copy.copy(self)
        batch._expected = expected = [self._cut(n) for n in self._measured[numbers].tolist()]
        longest = max(expected)
        if min(expected) == longest and self._cut(self._bound(longest)) != longest:
            batch._following = self._followers(alone)
        return batch

    def _followers(self, alone: Callable[[int], Any]) -> frozenset[str] | None:
        """The members that are as long as the longest sample is; None where it can't be had."""
        if not self._probed:
            number = int(self._measured.argmax())
            shapes = _Shapes(self._value)
            try:
                shapes([alone(number)])
            except Exception:  # Which is an error where it is a batch's.
                return None
            (axis,), longest = self._axes, self._cut(self._measured[number])
            self._probed.append(
                frozenset(
                    where
                    for where, shape in shapes.known.items()
                    if axis < len(shape) and self._cut(shape[axis]) == longest
                )
            )
        return self._probed[0]

    def _length(self, counts: list[int], where: str) -> int:
        """How long a batch is of a member with these lengths."""
        longest, varies = max(counts), min(counts) < max(counts)
        follows = self._following is None or where in self._following
        if follows and self._expected == list(map(self._cut, counts)):
            longest, varies = self._bound(longest), True
        length = self._cut(self.rounded(longest))
        if self._probe is not None and self._probe.asks(length, varies or self._says_which):
            return self._other(length)
        return length

    def _other(self, length: int) -> int:
        """A length that batches of other samples may have; the same one if all batches have it."""
        longer = self._cut(self.rounded(length + 1))
        return longer if longer > length else self.rounded(length - self._multiple) or length

    def _bound(self, longest: int) -> int:
        place = bisect.bisect_left(self._bounds, longest)
        return self._bounds[place] if place < len(self._bounds) else longest

    def _cut(self, length: int) -> int:
        return length if self._longest is None else min(length, self._longest)

    def __call__(self, samples: list[Any]) -> Any:
        """The batch of these samples, see ``pad``."""
        batch = super().__call__(samples)
        return _with_lengths(batch, [True])[0] if self._lengths else batch


def pad(
    value: Any = 0,
    to_multiple_of: int = 1,
    max_length: int | None = None,
    *,
    axis: int | tuple[int, ...] = 0,
    lengths: bool = False,
) -> Pad:
    """A collate that makes samples of unequal lengths equally long, a batch at a time.

    Beside ``bucket_by``, which says the samples' lengths along ``axis``, a batch is padded to the
    bound of its bucket, so that there are as few shapes as bounds; else to its longest sample. So
    are members that have other lengths than ``bucket_by`` says, such as those of a fixed size.

    Arrays, lists of numbers, and tuples and dicts of them (nested too). Single numbers, texts and
    members of ``value`` None are stacked as they are.

    Args:
        value: What is written behind the end. A structure like the samples' has one for each
            member: ``(0, -100)``, ``{"tokens": 0, "label": None}``; None for one that isn't padded.
        to_multiple_of: Lengths are rounded up to a multiple of this many, so that a framework that
            compiles for each shape meets few of them.
        max_length: What is longer is cut off there, and no batch is longer.
        axis: Of a sample's array, from 0: along which lengths differ; or several, as ``(0, 1)`` for
            pictures of different sizes. An array without such an axis is stacked.
        lengths: Give the samples' lengths (along the first axis, after the cut), too, int32
            ``(batch,)``: of the first member that is padded, next to it. In a dict they are called
            as that one with ``_length`` behind it; else ``(padded, lengths)`` stands in its place.

    Returns:
        For ``collate=`` of ``SafeSequence`` and ``batchify_fn=`` of ``gluon_loader``; called with a
        list of samples, it returns the batch, in new memory: ``(batch, longest, ...)`` each, of the
        samples' dtype.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: Out of range.

    When called, it raises ``ValueError`` for samples whose structures or other axes differ, and
    ``TypeError`` for a ``value`` that their dtype can't hold.

    Example:
        >>> from adapters import pad
        >>> pad(to_multiple_of=4)([([5, 6], 0), ([7, 8, 9], 1)])
        (array([[5, 6, 0, 0],
               [7, 8, 9, 0]]), array([0, 1]))
    """
    return Pad(value, to_multiple_of, max_length, axis=axis, lengths=lengths)


class _Shapes(ByMember):
    """Which shapes the members of a sample have, ``known`` by where they are."""

    def __init__(self, value: Any) -> None:
        super().__init__(value, 1)
        self.known: dict[str, tuple[int, ...]] = {}

    def member(self, arrays: list[NDArray[Any]], value: Any, where: str) -> Any:
        """Note one."""
        self.known[where] = arrays[0].shape


class _Measured:
    """A padded member and its lengths."""

    def __init__(self, batch: NDArray[Any], lengths: NDArray[np.int32]) -> None:
        self.batch = batch
        self.lengths = lengths


def _with_lengths(tree: Any, first: list[bool], name: str | None = None) -> tuple[Any, Any]:
    """The batch with the lengths of its first padded member; ``(tree, what its dict gets)``."""
    if isinstance(tree, _Measured):
        if not first.pop():
            first.append(False)
            return tree.batch, None
        first.append(False)
        if name is None:
            return (tree.batch, tree.lengths), None
        return tree.batch, {f"{name}_length": tree.lengths}
    if isinstance(tree, dict):
        made: dict[Any, Any] = {}
        more: dict[str, Any] = {}
        for key, member in tree.items():
            made[key], added = _with_lengths(member, first, str(key))
            more.update(added or {})
        return {**made, **more}, None
    if isinstance(tree, tuple):
        members = [_with_lengths(member, first)[0] for member in tree]
        return type(tree)(*members) if hasattr(tree, "_fields") else tuple(members), None
    return tree, None


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], value: Any) -> NDArray[Any]:
    batch = aligned_empty(shape, dtype)
    batch.fill(value)
    return batch


def _axes_of(axis: Any) -> tuple[int, ...]:
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    try:
        axes = tuple(map(operator.index, given))
    except TypeError:
        raise TypeError(f"axis must be an integer or a tuple of them, got {axis!r}") from None
    if not axes or min(axes) < 0 or len(set(axes)) < len(axes):
        raise ValueError(f"axis must be >= 0, each one once, got {axis!r}")
    return tuple(sorted(axes))
