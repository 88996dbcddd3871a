"""``FeatureRows``: features of records into the columns of a batch, by the kernel's parser.

The kernel writes what is stored: bytes, float32 or int64. Features of other dtypes are converted
here, all rows at once. Without the kernel, ``examples`` reads one record after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import kernel
from adapters.records import RecordFiles, Shard, example, irheader, recordio
from adapters.sources import headers
from adapters.sources.examples import misfits, of_raw, put
from adapters.sources.features import Field
from adapters.sources.recordcolumns import (
    CONTENT,
    ID,
    ID2,
    LABEL,
    LEFT,
    NOWHERE,
    Column,
    RecordColumns,
)

_PARTS = {headers.LABEL: LABEL, headers.ID: ID, headers.ID2: ID2}


Gathered = tuple[
    NDArray[np.bool_] | None, Sequence[memoryview | bytes], dict[int, NDArray[np.int64]]
]
"""Result of gathering a batch: a mask of the rows to read one by one, which reports errors, None if
there are none; the memory of the files; and, for each field with a decoder, where a row's image
lies: ``(rows, 3)``, index of the memory, first byte and size."""


def feature_rows(files: RecordFiles, fields: Sequence[Field], moves: bool) -> FeatureRows | None:
    """Return the ``FeatureRows`` for these fields; None if each record must be read by itself.

    Args:
        files: The records.
        fields: Their features.
        moves: True if an image is cropped or flipped, which boxes in a label wouldn't follow.
    """
    module = kernel.load()
    # If only some files are RecordIO, their records are read one by one.
    has_headers = all(shard.format == recordio.NAME for shard in files.shards)
    if has_headers:
        try:
            fields = headers.in_header(fields)
        except ContentError:  # May be Examples; if not, reading one by one reports it.
            return None
    if module is None or any(_default_row(field) is None for field in fields):
        return None
    return FeatureRows(module, files, fields, has_headers, moves)


class FeatureRows:
    """Gathers rows of batches. Thread-safe, but for this process alone.

    Args:
        module: The kernel.
        files: The records.
        fields: Their features, in column order; of one shape each, or images.
        has_headers: True if records have an IRHeader and the fields are ``in_header``.
        moves: See ``feature_rows``.
    """

    def __init__(
        self,
        module: ModuleType,
        files: RecordFiles,
        fields: Sequence[Field],
        has_headers: bool,
        moves: bool,
    ) -> None:
        self._fields = list(fields)
        self._stored = [_stored(field) for field in fields]
        self._indirect = [
            place
            for place, (field, stored) in enumerate(zip(fields, self._stored))
            if field.decoder is None and (stored != field.dtype or stored.kind == "b")
        ]
        self._images = [place for place, field in enumerate(fields) if field.decoder is not None]
        self._labels = [
            place
            for place, field in enumerate(fields)
            if moves
            and has_headers
            and field.key == headers.LABEL
            and field.part_of is None
            and field.shape
        ]
        """Labels that mustn't be boxes, see ``irheader.refuse_objects``."""
        self._is_direct = not self._indirect and not self._images
        columns = [_column(field, has_headers) for field in fields]

        def kind_of(shard: Shard) -> int:
            is_header = shard.format == recordio.NAME
            return shard.codec.kernel_kind if is_header == has_headers else LEFT

        self._columns = RecordColumns(module, files, columns, kind_of)

    def gather(
        self,
        numbers: NDArray[np.int64],
        order: NDArray[np.int64] | None,
        columns: Sequence[NDArray[Any]],
    ) -> Gathered:
        """Write the features of these records, except for images.

        Args:
            numbers: Sample number of each row, ``(rows,)``.
            order: Rows in the order in which to read them, for images; None for one after another.
            columns: An array for each field, ``(rows, *shape)``.
        """
        if self._is_direct:
            return *self._columns.parse(numbers, None, columns), {}
        own, count = list(columns), len(numbers)
        places = {place: np.empty((count, 3), np.int64) for place in self._images}
        for place in self._indirect:
            own[place] = np.empty((count, *self._fields[place].shape), self._stored[place])
        for place, found in places.items():
            own[place] = found
        wanted = numbers if order is None else numbers[order]
        wrong, buffers = self._columns.parse(wanted, order, own)
        if wrong is not None and order is not None:
            by_row = np.empty(count, bool)
            by_row[order] = wrong
            wrong = by_row
        for place in self._labels:
            objects = np.array([irheader.are_objects(label) for label in own[place]], bool)
            wrong = objects if wrong is None else wrong | objects
        for place in self._indirect:
            misfit = _converted(self._fields[place], own[place], columns[place])
            if misfit is not None:
                wrong = misfit if wrong is None else wrong | misfit
        return wrong, buffers, places


def _column(field: Field, has_headers: bool) -> Column:
    part = _PARTS.get(field.key, CONTENT) if has_headers else NOWHERE
    if field.decoder is not None:
        return Column(field.key, example.BYTES_LIST, 1, part, is_place=True)
    count = field.count * (1 if field.raw is None else field.raw.itemsize)
    return Column(field.key, field.kind, count, part, default=_default_row(field) or None)


def _stored(field: Field) -> np.dtype[Any]:
    """Dtype that the kernel writes for a feature."""
    if field.raw is not None:
        return field.raw
    return np.dtype(np.int64 if field.kind == example.INT64_LIST else "<f4")


def _default_row(field: Field) -> bytes | None:
    """Bytes that it writes for a missing feature, empty if none; None if it can't."""
    if field.default is None or field.decoder is not None:
        return b""
    with np.errstate(all="ignore"):
        row = np.ascontiguousarray(field.default.astype(_stored(field)))
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
