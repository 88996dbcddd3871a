"""Gathering of record features into the columns of a batch, without Python code per record.

Neighbouring files form one *unit* (``joined``). Records of a unit whose features lie alike are of
one *kind* (``featurekinds``). The kernel goes through a batch once: from a record's start and its
kind's offsets, it copies bytes or decodes varints into the row. Without the kernel, and for
features that it doesn't support, ``featuretable`` does the same with NumPy.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import kernel
from adapters.records import RecordFiles, Shard, recordio, wire
from adapters.records.joined import ApartError, joined
from adapters.records.layouts import Layouts, Wanted
from adapters.records.mapping import NoMapError
from adapters.sources.examples import misfits, of_raw, put
from adapters.sources.featurekinds import UNKNOWN, UNUSUAL, FeatureKinds
from adapters.sources.features import Field
from adapters.sources.featuretable import FeatureTable
from adapters.sources.headers import HeaderKinds, in_header

_MOST_NUMBERED = np.iinfo(np.int16).max


class FeatureRows:
    """Gathers rows of batches. Thread-safe, but for this process alone.

    Args:
        files: The records.
        fields: Their features, in column order.
    """

    def __init__(self, files: RecordFiles, fields: Sequence[Field]) -> None:
        self._files, self._fields = files, fields
        self._rows = UnitRows(files, fields, joined(files.shards))

    def gather(
        self, numbers: NDArray[np.int64], columns: Sequence[NDArray[Any]]
    ) -> NDArray[np.bool_] | None:
        """Write the features of these records; see ``UnitRows.gather``."""
        try:
            return self._rows.gather(numbers, columns)
        except ApartError:
            self._rows = rows = UnitRows(self._files, self._fields, self._files.shards)
            return rows.gather(numbers, columns)


class UnitRows:
    """Gathers rows from files with a fixed division into units.

    Args:
        files: The records.
        fields: Their features, in column order.
        units: The files, or several of them joined.
    """

    def __init__(self, files: RecordFiles, fields: Sequence[Field], units: Sequence[Shard]) -> None:
        self._files = files
        self._units = list(units)
        self._firsts = np.cumsum([0, *map(len, self._units)])
        # If only some files are RecordIO, their records are read one by one.
        self._behind_headers = all(shard.format == recordio.NAME for shard in files.shards)
        if self._behind_headers:
            try:
                fields = in_header(fields)
            except ContentError:  # May be Examples; if not, reading one by one reports it.
                self._behind_headers = False
        self._fields = list(fields)
        self._kernel = kernel.load()
        self._stored = [_stored(field) for field in self._fields]
        defaults = [_default_row(*each) for each in zip(self._fields, self._stored)]
        if any(row is None for row in defaults):
            self._kernel = None
        self._defaults = tuple(row or None for row in defaults)
        sizes = [stored.itemsize * field.count for field, stored in zip(fields, self._stored)]
        self._sizes = np.array(sizes, np.int64)
        is_varints = [field.kind == wire.INT64_LIST for field in self._fields]
        self._varints = np.where(is_varints, self._sizes // 8, 0)
        self._indirect = [
            place
            for place, (field, stored) in enumerate(zip(self._fields, self._stored))
            if stored != field.dtype or stored.kind == "b"
        ]
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Drop caches in a forked process: another thread may have been filling them."""
        self._layouts = Layouts([_wanted(field) for field in self._fields])
        self._kinds: dict[int, FeatureKinds] = {}
        self._tables: dict[int, FeatureTable] = {}

    def gather(
        self, numbers: NDArray[np.int64], columns: Sequence[NDArray[Any]]
    ) -> NDArray[np.bool_] | None:
        """Write the features of these records.

        Args:
            numbers: Sample numbers, ``(rows,)``.
            columns: One array for each field, ``(rows, *shape)``.

        Returns:
            Mask of the rows that are right, None if all are. Read the others one by one to get
                their errors.
        """
        files = self._files
        files.check_open()
        if not len(numbers):
            return None
        if self._kernel is None:
            return self._tabled(files.in_order(numbers), columns)
        own = list(columns)
        for place in self._indirect:
            field = self._fields[place]
            own[place] = np.empty((len(numbers), *field.shape), self._stored[place])
        numbers = files.in_order(numbers)
        if len(self._units) == 1:
            wrong = self._written(0, numbers, None, own)
        else:
            wrong = None
            places, inside = self._placed(numbers)
            for place in np.unique(places).tolist():
                chosen = np.flatnonzero(places == place)
                found = self._written(place, inside[chosen], chosen, own)
                if found is not None:
                    wrong = np.zeros(len(numbers), bool) if wrong is None else wrong
                    wrong[chosen] = found
        for place in self._indirect:
            misfit = _converted(self._fields[place], own[place], columns[place])
            if misfit is not None:
                wrong = misfit if wrong is None else wrong | misfit
        return None if wrong is None else ~wrong

    def _written(
        self,
        place: int,
        numbers: NDArray[np.int64],
        chosen: NDArray[np.int64] | None,
        columns: list[NDArray[Any]],
    ) -> NDArray[np.bool_] | None:
        """Write records of one unit into the chosen rows; mask of wrong rows, None if none."""
        shard, known = self._units[place], self._kinds_of(place)
        try:
            view = shard.touch(numbers, known.most_bytes)
        except NoMapError:
            return np.ones(len(numbers), bool)
        kinds = None if known.only is not None else known.of
        wrong = self._gathered(view, numbers, chosen, shard.offsets, kinds, known.where, columns)
        if wrong is None or kinds is None:
            return wrong
        # Kinds that are unknown, or were when the kernel looked.
        left = np.flatnonzero(wrong & (kinds[numbers] != UNUSUAL))
        if len(left):
            wrong = wrong.copy()
            own = numbers[left], left if chosen is None else chosen[left]
            found = self._looked(known, view, shard.offsets, *own, columns)
            wrong[left] = False if found is None else found
        return wrong if wrong.any() else None

    def _looked(
        self,
        known: FeatureKinds,
        view: memoryview,
        offsets: NDArray[np.int64],
        numbers: NDArray[np.int64],
        chosen: NDArray[np.int64],
        columns: list[NDArray[Any]],
    ) -> NDArray[np.bool_] | None:
        """Find the kinds of unknown records, and write all of these records."""
        kinds = known.of[numbers]
        unknown, where = kinds == UNKNOWN, known.where
        if unknown.any():
            usual, found, places, lengths = known.look(view, numbers[unknown])
            where = known.where
            # Too many kinds: each further record gets a kind of its own.
            more = np.flatnonzero(usual & (found == UNKNOWN))[: _MOST_NUMBERED - len(where[0])]
            found[more] = len(where[0]) + np.arange(len(more))
            where = (
                np.concatenate([where[0], places[more]]),
                np.concatenate([where[1], lengths[more]]),
            )
            kinds[unknown] = found
        every = np.arange(len(numbers))
        return self._gathered(view, every, chosen, offsets[numbers], kinds, where, columns)

    def _gathered(
        self,
        view: memoryview,
        numbers: NDArray[np.int64],
        chosen: NDArray[np.int64] | None,
        starts: NDArray[np.int64],
        kinds: NDArray[np.int16] | None,
        where: tuple[NDArray[np.int32], NDArray[np.int32]],
        columns: list[NDArray[Any]],
    ) -> NDArray[np.bool_] | None:
        assert self._kernel is not None
        sizes = self._sizes, self._varints
        own = tuple(columns), self._defaults
        wrong = self._kernel.gather(view, numbers, chosen, starts, kinds, *where, *sizes, *own)
        return None if wrong is None else np.frombuffer(wrong, np.bool_)

    def _tabled(
        self, numbers: NDArray[np.int64], columns: Sequence[NDArray[Any]]
    ) -> NDArray[np.bool_] | None:
        """Gather with NumPy."""
        if len(self._units) == 1:
            return self._table(0).gather(numbers, columns)
        places, own = self._placed(numbers)
        right = np.zeros(len(numbers), bool)
        for place in np.unique(places).tolist():
            chosen = np.flatnonzero(places == place)
            parts = [np.empty((len(chosen), *each.shape[1:]), each.dtype) for each in columns]
            done = self._table(place).gather(own[chosen], parts)
            right[chosen] = True if done is None else done
            for column, part in zip(columns, parts):
                column[chosen] = part
        return None if right.all() else right

    def _placed(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Unit of each record, and its number there."""
        places = np.searchsorted(self._firsts, numbers, "right") - 1
        return places, numbers - self._firsts[places]

    def _table(self, place: int) -> FeatureTable:
        table = self._tables.get(place)
        if table is None:
            shard = self._units[place]
            made = FeatureTable(shard, self._fields, self._kinds_of(place))
            table = self._tables.setdefault(place, made)
        return table

    def _kinds_of(self, place: int) -> FeatureKinds:
        kinds = self._kinds.get(place)
        if kinds is None:
            shard, needed = self._units[place], [field.needed for field in self._fields]
            if self._behind_headers:
                made: FeatureKinds = HeaderKinds(shard, self._fields)
            else:
                made = FeatureKinds(shard, needed, self._layouts)
            kinds = self._kinds.setdefault(place, made)
        return kinds


_all: weakref.WeakSet[UnitRows] = weakref.WeakSet()


def _forget_all() -> None:
    for each in list(_all):
        each.forget()


os.register_at_fork(after_in_child=_forget_all)


def _wanted(field: Field) -> Wanted:
    size = field.count * field.raw.itemsize if field.raw is not None else 0
    return Wanted(field.key, field.kind, field.count, size)


def _stored(field: Field) -> np.dtype[Any]:
    """Dtype that the kernel writes for a feature."""
    if field.raw is not None:
        return field.raw
    return np.dtype(np.int64 if field.kind == wire.INT64_LIST else "<f4")


def _default_row(field: Field, stored: np.dtype[Any]) -> bytes | None:
    """Bytes that it writes for a missing feature, empty if none; None if it can't."""
    if field.default is None:
        return b""
    with np.errstate(all="ignore"):
        row = np.ascontiguousarray(field.default.astype(stored))
        same = row.astype(field.dtype).tobytes() == field.default.tobytes()
    return row.tobytes() if same else None


def _converted(
    field: Field, stored: NDArray[Any], column: NDArray[Any]
) -> NDArray[np.bool_] | None:
    """Convert stored values into a column; mask of rows that don't fit, None if none."""
    if stored.dtype.kind == "b":
        column[...] = of_raw(field, stored.view(np.uint8))
        return None
    wrong = misfits(field, stored)
    with np.errstate(invalid="ignore"):
        put(stored, column)
    return None if wrong is None else np.any(wrong.reshape(len(wrong), -1), axis=1)
