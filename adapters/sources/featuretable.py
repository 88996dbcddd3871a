"""Gathering of record features with NumPy, for installations without the kernel.

A batch takes a few gathers: each record's start, its kind's offsets, and the same number of bytes
from each record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.records import Shard, wire
from adapters.records.layouts import varints
from adapters.records.mapping import NoMapError
from adapters.records.windows import windows
from adapters.sources.examples import misfits, of_raw, put
from adapters.sources.featurekinds import UNKNOWN, UNUSUAL, FeatureKinds
from adapters.sources.features import Field

# Small features that lie near each other are fetched at once: eleven scalars in batches of 1,024
# took twice as long one by one.
_FEW_BYTES = 1024
# With fewer rows per kind in a batch, features are gathered one by one for all kinds.
_ROWS_OF_A_KIND = 16


class _Part(NamedTuple):
    """Part of a record that holds the features of its kind."""

    begin: int
    size: int
    """0 if each feature is fetched by itself, because many bytes lie between them."""
    spans: list[tuple[int, int]]
    """Start and end of each feature, relative to ``begin``; the start is -1 if missing."""

    @classmethod
    def of(cls, places: NDArray[np.int32], lengths: NDArray[np.int32]) -> _Part:
        """Compute the part for a kind's offsets and sizes."""
        there = places >= 0
        begin = int(places[there].min(initial=np.iinfo(np.int32).max))
        size = int((places + lengths)[there].max(initial=begin)) - begin
        if there.sum() < 2 or size > max(_FEW_BYTES, 1.2 * lengths.sum()):
            begin = size = 0
        firsts = np.where(there, places - begin, -1)
        return cls(begin, size, list(zip(firsts.tolist(), (firsts + lengths).tolist())))


class FeatureTable:
    """Features of one file. Thread-safe.

    Args:
        shard: The file.
        fields: Its features, in column order.
        kinds: Kinds of its records.
    """

    def __init__(self, shard: Shard, fields: Sequence[Field], kinds: FeatureKinds) -> None:
        self._shard = shard
        self._fields = fields
        self._kinds = kinds
        self._parts: dict[int, _Part] = {}
        self._size = kinds.most_bytes

    def gather(
        self, numbers: NDArray[np.int64], columns: Sequence[NDArray[Any]]
    ) -> NDArray[np.bool_] | None:
        """Write the features of these records; mask of rows that are right, None if all are."""
        known = self._kinds
        kinds = known.of[numbers] if known.only is None else None
        usual = np.ones(len(numbers), bool) if kinds is None else kinds != UNUSUAL
        if not usual.any():
            return usual
        try:
            view = self._shard.touch(numbers if usual.all() else numbers[usual], self._size)
        except NoMapError:
            return np.zeros(len(numbers), bool)
        starts = self._shard.offsets[numbers]
        if kinds is None or kinds.min() >= 0:
            if kinds is None:
                assert known.only is not None
                wrong = self._alike(view, starts, known.only, columns)
            else:
                wrong = self._known(view, starts, kinds, columns)
            return None if wrong is None else ~np.isin(np.arange(len(starts)), wrong)
        unknown = kinds == UNKNOWN
        if unknown.any():
            usual[unknown], kinds[unknown], places, lengths = known.look(view, numbers[unknown])
            if (usual & (kinds == UNKNOWN)).any():  # Too many kinds.
                every, sizes = (each[kinds] for each in known.where)
                every[unknown], sizes[unknown] = places, lengths
                return self._of_rows(usual, columns, self._apart, view, starts, every, sizes)
        return self._of_rows(usual, columns, self._known, view, starts, kinds)

    @staticmethod
    def _of_rows(
        usual: NDArray[np.bool_],
        columns: Sequence[NDArray[Any]],
        write: Callable[..., NDArray[np.int64] | None],
        view: memoryview,
        *given: NDArray[Any],
    ) -> NDArray[np.bool_] | None:
        """Write the usual rows; mask of rows that are right, None if all are."""
        if usual.all():
            wrong = write(view, *given, columns)
            if wrong is None:
                return None
            usual[wrong] = False
            return usual
        rows = np.flatnonzero(usual)
        if len(rows):
            parts = [np.empty((len(rows), *each.shape[1:]), each.dtype) for each in columns]
            wrong = write(view, *(each[rows] for each in given), parts)
            for column, part in zip(columns, parts):
                column[rows] = part
            if wrong is not None:
                usual[rows[wrong]] = False
        return usual

    def _known(
        self,
        view: memoryview,
        starts: NDArray[np.int64],
        kinds: NDArray[np.int16],
        columns: Sequence[NDArray[Any]],
    ) -> NDArray[np.int64] | None:
        """Write records of known kinds; rows that don't fit, None if none."""
        wrong: list[NDArray[np.int64]]
        if kinds.min() == kinds.max():
            return self._alike(view, starts, int(kinds[0]), columns)
        if (even := self._kinds.even) is not None:
            wrong = []
            for field, column, (begins, size) in zip(self._fields, columns, even):
                misfit = _write(field, windows(view, size, starts + begins[kinds]), column)
                wrong += [] if misfit is None else [misfit]
            return np.concatenate(wrong) if wrong else None
        found = np.flatnonzero(np.bincount(kinds))
        places, lengths = (each[found] for each in self._kinds.where)
        begin, end = int(places.min()), int((places + lengths).max())
        few = len(found) * _ROWS_OF_A_KIND <= len(kinds)
        if not few or begin < 0 or end - begin > _FEW_BYTES or int(starts.max()) + end > len(view):
            every, sizes = (each[kinds] for each in self._kinds.where)
            return self._apart(view, starts, every, sizes, columns)
        rows = windows(view, end - begin, starts + begin)
        order = kinds.argsort(kind="stable")
        ordered, ends = rows[order], np.bincount(kinds)[found].cumsum().tolist()
        blocks = [ordered[first:last] for first, last in zip([0, *ends], ends)]
        alike = ((places == places[0]) & (lengths == lengths[0])).all(0).tolist()
        wrong = []
        firsts, lasts = (places - begin).tolist(), (places - begin + lengths).tolist()
        for number, (field, column) in enumerate(zip(self._fields, columns)):
            if alike[number]:
                misfit = _write(field, rows[:, firsts[0][number] : lasts[0][number]], column)
                wrong += [] if misfit is None else [misfit]
                continue
            own = np.empty(column.shape, column.dtype)
            for block, first, last, end in zip(blocks, firsts, lasts, ends):
                part = own[end - len(block) : end]
                misfit = _write(field, block[:, first[number] : last[number]], part)
                wrong += [] if misfit is None else [order[misfit + end - len(block)]]
            column[order] = own
        return np.concatenate(wrong) if wrong else None

    def _alike(
        self,
        view: memoryview,
        starts: NDArray[np.int64],
        kind: int,
        columns: Sequence[NDArray[Any]],
    ) -> NDArray[np.int64] | None:
        """Write records of one kind; rows that don't fit, None if none."""
        part = self._parts.get(kind)
        if part is None:
            places, lengths = (each[kind] for each in self._kinds.where)
            part = self._parts[kind] = _Part.of(places, lengths)
        rows = windows(view, part.size, starts + part.begin) if part.size else None
        wrong: list[NDArray[np.int64]] = []
        for field, column, (first, last) in zip(self._fields, columns, part.spans):
            if first < 0:
                column[...] = field.default
                continue
            if rows is not None:
                written = rows[:, first:last]
            else:
                written = windows(view, last - first, starts + first)
            misfit = _write(field, written, column)
            wrong += [] if misfit is None else [misfit]
        return np.concatenate(wrong) if wrong else None

    def _apart(
        self,
        view: memoryview,
        starts: NDArray[np.int64],
        places: NDArray[np.int32],
        lengths: NDArray[np.int32],
        columns: Sequence[NDArray[Any]],
    ) -> NDArray[np.int64] | None:
        """Write one feature after another; rows that don't fit, None if none."""
        wrong: list[NDArray[np.int64]] = []
        for number, (field, column) in enumerate(zip(self._fields, columns)):
            at, sizes = places[:, number], lengths[:, number]
            begins = starts + at
            if (sizes == sizes[0]).all() and at.min() >= 0:
                misfit = _write(field, windows(view, int(sizes[0]), begins), column)
                wrong += [] if misfit is None else [misfit]
                continue
            sizes = np.where(at < 0, 0, sizes)
            for size in np.unique(sizes).tolist():
                rows = np.flatnonzero(sizes == size)
                if not size:
                    column[rows] = field.default
                    continue
                own = np.empty((len(rows), *field.shape), field.dtype)
                misfit = _write(field, windows(view, size, begins[rows]), own)
                wrong += [] if misfit is None else [rows[misfit]]
                column[rows] = own
        return np.concatenate(wrong) if wrong else None


def _write(
    field: Field, written: NDArray[np.uint8], column: NDArray[Any]
) -> NDArray[np.int64] | None:
    """Write a feature with as many bytes in each row; rows that don't fit."""
    if field.kind == wire.INT64_LIST:
        try:
            values = written if written.shape[1] == field.count else varints(written, field.count)
        except ValueError:  # The file was changed; reading one by one reports it.
            return np.arange(len(written))
        wrong = misfits(field, values)
        column[...] = values.reshape(column.shape)
        return None if wrong is None else np.flatnonzero(wrong.any(1))
    stored = field.raw or np.dtype("<f4")
    if stored.kind == "b":
        column[...] = of_raw(field, written).reshape(column.shape)
        return None
    numbers = written.view(stored)
    wrong = misfits(field, numbers)
    put(numbers.reshape(column.shape), column)
    return None if wrong is None else np.flatnonzero(wrong.any(1))
