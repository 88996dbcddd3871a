"""Features of records gathered into the columns of a batch, without a step in Python for each.

Records whose features lie alike are of one *kind* (``featurekinds``). A batch is a few gathers: a
record's start, its kind's places, and the same number of bytes from each.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.records import RecordFiles, Shard, wire
from adapters.records.layouts import Layouts, Wanted, varints, windows
from adapters.records.mapping import NoMapError
from adapters.sources.examples import misfits, of_raw, put
from adapters.sources.featurekinds import UNKNOWN, UNUSUAL, FeatureKinds
from adapters.sources.features import Field

# Of small features that lie near each other, all are fetched at once: eleven scalars in batches of
# 1,024 took twice as long one by one.
_FEW_BYTES = 1024
# Where a batch has fewer for each of its kinds, features are gathered one by one, of all kinds.
_ROWS_OF_A_KIND = 16


class FeatureRows:
    """Gathers rows of batches. Any thread may ask; it is for this process alone.

    Args:
        files: The records.
        fields: Their features, in the order of the columns.
    """

    def __init__(self, files: RecordFiles, fields: Sequence[Field]) -> None:
        self._files = files
        self._fields = list(fields)
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Start over, as in a forked process, where a thread that was looking is not."""
        self._layouts = Layouts([_wanted(field) for field in self._fields])
        self._tables: dict[int, _Table] = {}

    def gather(
        self, numbers: NDArray[np.int64], columns: Sequence[NDArray[Any]]
    ) -> NDArray[np.bool_] | None:
        """Write these records' features.

        Args:
            numbers: Of the samples, ``(rows,)``.
            columns: An array for each field, ``(rows, *shape)``.

        Returns:
            Which rows are right, None if all are; the others must be read one by one, to see what
            is wrong.
        """
        files = self._files
        files.check_open()
        if not len(numbers):
            return None
        if len(files.shards) == 1:
            return self._table(0).gather(files.in_order(numbers), columns)
        places, own = files.places(numbers)
        right = np.zeros(len(numbers), bool)
        for place in np.unique(places).tolist():
            rows = np.flatnonzero(places == place)
            parts = [np.empty((len(rows), *each.shape[1:]), each.dtype) for each in columns]
            done = self._table(place).gather(own[rows], parts)
            right[rows] = True if done is None else done
            for column, part in zip(columns, parts):
                column[rows] = part
        return None if right.all() else right

    def _table(self, place: int) -> _Table:
        table = self._tables.get(place)
        if table is None:
            shard = self._files.shards[place]
            table = self._tables.setdefault(place, _Table(shard, self._fields, self._layouts))
        return table


class _Part(NamedTuple):
    """The part of a record in which the features of its kind lie."""

    begin: int
    size: int
    """0 where each is better fetched by itself, as there are many bytes between them."""
    spans: list[tuple[int, int]]
    """Of each feature: from ``begin`` on, or from the record's begin; -1 where it is missing."""

    @classmethod
    def of(cls, places: NDArray[np.int32], lengths: NDArray[np.int32]) -> _Part:
        """That of a kind."""
        there = places >= 0
        begin = int(places[there].min(initial=np.iinfo(np.int32).max))
        size = int((places + lengths)[there].max(initial=begin)) - begin
        if there.sum() < 2 or size > max(_FEW_BYTES, 1.2 * lengths.sum()):
            begin = size = 0
        firsts = np.where(there, places - begin, -1)
        return cls(begin, size, list(zip(firsts.tolist(), (firsts + lengths).tolist())))


class _Table:
    """One file."""

    def __init__(self, shard: Shard, fields: list[Field], layouts: Layouts) -> None:
        self._shard = shard
        self._fields = fields
        self._kinds = FeatureKinds(shard, [field.needed for field in fields], layouts)
        self._parts: dict[int, _Part] = {}
        sizes = shard.sizes
        self._size = int(sizes.max()) if sizes is not None and len(sizes) else 0

    def gather(
        self, numbers: NDArray[np.int64], columns: Sequence[NDArray[Any]]
    ) -> NDArray[np.bool_] | None:
        """As ``FeatureRows.gather``, of the records of one file."""
        storage = self._shard.storage
        try:
            view = storage.view()
        except NoMapError:
            return np.zeros(len(numbers), bool)
        starts = self._shard.offsets[numbers]
        known = self._kinds
        kinds = known.of[numbers] if known.only is None else None
        if kinds is None or kinds.min() >= 0:
            storage.will_touch(starts, self._size)
            if kinds is None:
                assert known.only is not None
                wrong = self._alike(view, starts, known.only, columns)
            else:
                wrong = self._known(view, starts, kinds, columns)
            return None if wrong is None else ~np.isin(np.arange(len(starts)), wrong)
        usual: NDArray[np.bool_] = kinds != UNUSUAL
        if not usual.any():
            return usual
        storage.will_touch(starts[usual], self._size)
        unknown = kinds == UNKNOWN
        if unknown.any():
            usual[unknown], kinds[unknown], places, lengths = known.look(view, numbers[unknown])
            if (usual & (kinds == UNKNOWN)).any():  # Of one kind too many.
                every, sizes = known.places[kinds], known.lengths[kinds]
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
        """Have those rows written that are usual; which are right, None if all are."""
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
        """Write records whose kinds are known; the rows of what doesn't fit, None for none."""
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
        places, lengths = self._kinds.places[found], self._kinds.lengths[found]
        begin, end = int(places.min()), int((places + lengths).max())
        few = len(found) * _ROWS_OF_A_KIND <= len(kinds)
        if not few or begin < 0 or end - begin > _FEW_BYTES or int(starts.max()) + end > len(view):
            every, sizes = self._kinds.places[kinds], self._kinds.lengths[kinds]
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
        """Write records of one kind; the rows of what doesn't fit, None for none."""
        part = self._parts.get(kind)
        if part is None:
            places, lengths = self._kinds.places[kind], self._kinds.lengths[kind]
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
        """Write one feature after another; the rows of what doesn't fit, None for none."""
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


_all: weakref.WeakSet[FeatureRows] = weakref.WeakSet()


def _forget_all() -> None:
    for rows in list(_all):
        rows.forget()


os.register_at_fork(after_in_child=_forget_all)


def _wanted(field: Field) -> Wanted:
    size = field.count * field.raw.itemsize if field.raw is not None else 0
    return Wanted(field.key, field.kind, field.count, size)


def _write(
    field: Field, written: NDArray[np.uint8], column: NDArray[Any]
) -> NDArray[np.int64] | None:
    """Write a feature's values, of as many bytes in each row; the rows of what doesn't fit."""
    if field.kind == wire.INT64_LIST:
        try:
            values = written if written.shape[1] == field.count else varints(written, field.count)
        except ValueError:  # Somebody has written into the file, which reading one by one tells.
            return np.arange(len(written))
        wrong = misfits(field, values)
        column[...] = values.reshape(column.shape)
        return None if wrong is None else np.flatnonzero(wrong.any(1))
    stored = field.raw or np.dtype("<f4")
    if stored.kind == "b":
        column[...] = of_raw(field, written).reshape(column.shape)
    else:
        put(written.view(stored).reshape(column.shape), column)
    return None
