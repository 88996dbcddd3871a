"""``RecordParser``: the kernel's parser, from record files into the columns of a batch.

All records of a batch are parsed in one call without Python code per record, from the files' own
memory (``native/records.c``). Between calls, nothing is remembered but which CRCs were checked. The
kernel writes what is stored: bytes, float32 or int64; fields of other dtypes are
converted here, all rows at once. Records that it doesn't take, because they are damaged or of a
kind that it leaves to Python, are named, to be read one by one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.images import kernel
from adapters.records import RecordFiles, Shard, example, irheader
from adapters.records.mapping import NoMapError, most
from adapters.records.remotefile import RemoteFile
from adapters.records.storage import MappedFile
from adapters.sources import examples
from adapters.sources.examples import misfits, of_raw, put
from adapters.sources.features import Field
from adapters.sources.source import BatchColumns, Numbers, RowNumbers

# What a field is in a record with an IRHeader, as in ``native/records.h``.
CONTENT, LABEL, OWN_LABEL, LABELS, ID, ID2, NOWHERE = range(7)
LEFT = 0
"""Kind of a file whose records the kernel leaves to Python; else as ``Codec.kernel_kind``."""

_PARTS = {examples.LABEL: LABEL, examples.ID: ID, examples.ID2: ID2}

# Files that stay mapped for the next batch. With more, a batch maps those that it needs.
_MOST_FILES = max(1, most() // 16)
Pieces = dict[int, NDArray[np.int64]]
"""Where the images of a column lie, int64 ``(rows, 3)``: buffer number, first byte and size."""
Parsed = tuple[NDArray[np.bool_] | None, Sequence[memoryview | bytes], Pieces]
"""Result of parsing a batch: a mask of the records to read one by one, None if there are none; the
files' bytes, valid as long as they are referenced; and where the images lie in them."""


class KernelColumn(NamedTuple):
    """Field of records that is written into a column."""

    name: bytes
    """Name of the feature in an Example."""
    kind: int
    """Kind of its list."""
    size: int
    """Numbers in a row, or bytes for a bytes list."""
    part: int = NOWHERE
    """Part of a record with an IRHeader."""
    is_place: bool = False
    """Write where the bytes of an image lie, instead; see ``Pieces``."""
    prefix: bytes = b""
    """Bytes of the value before those that go into the row."""
    default: bytes | None = None
    """Row of a record without the feature; None to leave the record to Python."""


class _Opened(NamedTuple):
    """Files whose memory the kernel holds."""

    handle: Any
    buffers: list[memoryview | bytes]


class RecordParser:
    """Parses records of a batch. Thread-safe, without a lock; for this process alone.

    Args:
        files: The records.
        fields: Fields to write, at least one, of one shape each, or images.
        columns: The kernel's column of each field.
        kind_of: Returns a file's ``Codec.kernel_kind``, or ``LEFT``.
        labels: Fields whose rows mustn't be boxes, see ``irheader.refuse_objects``.
    """

    def __init__(
        self,
        files: RecordFiles,
        fields: Sequence[Field],
        columns: Sequence[KernelColumn],
        kind_of: Callable[[Shard], int],
        labels: Sequence[int],
    ) -> None:
        module = kernel.load()
        assert module is not None
        self._kernel = module
        self._files = files
        self._shards = files.shards
        self._kind_of = kind_of
        self._fields = fields
        self._labels = labels
        self._images = [place for place, column in enumerate(columns) if column.is_place]
        # Dtypes that the kernel writes for the fields that are converted afterwards.
        self._converted: dict[int, np.dtype[Any]] = {}
        for place, (field, column) in enumerate(zip(fields, columns)):
            dtype = _kernel_dtype(field)
            if column.is_place or column.prefix:  # An image, or a raw array, which is copied.
                continue
            if dtype != field.dtype or dtype.kind == "b":  # Any byte but 0 is True.
                self._converted[place] = dtype
        self._is_direct = not (self._images or self._converted or labels)
        self._schema = module.schema(
            [(c.name, c.kind, c.part, c.is_place, c.size, c.prefix, c.default) for c in columns]
        )
        self._firsts = np.cumsum([0, *map(len, self._shards)])
        self._stays = len(self._shards) <= _MOST_FILES and not files.are_remote
        self._opened: _Opened | None = None

    def parse(self, numbers: Numbers, rows: RowNumbers, columns: BatchColumns) -> Parsed:
        """Write the fields of these records, except for images.

        Args:
            numbers: Record numbers. The files must be open.
            rows: Row of each record.
            columns: An array for each field, contiguous, ``(rows, *shape)``.

        Raises:
            ConnectionError: A store doesn't answer.
        """
        if self._is_direct:
            return *self._parsed(numbers, rows, columns), {}
        own = list(columns)
        pieces = {place: np.empty((len(columns[0]), 3), np.int64) for place in self._images}
        for place, piece in pieces.items():
            own[place] = piece
        for place, dtype in self._converted.items():
            own[place] = np.empty(columns[place].shape, dtype)
        wrong, buffers = self._parsed(numbers, rows, own)
        written: Any = slice(None) if rows is None else rows
        masks = [] if wrong is None else [wrong]
        for place in self._labels:
            masks.append(np.array(list(map(irheader.are_objects, own[place][written])), bool))
        for place in self._converted:
            misfit = _convert(self._fields[place], own[place][written], columns[place], written)
            masks += [] if misfit is None else [misfit]
        return functools.reduce(np.logical_or, masks) if masks else None, buffers, pieces

    def _parsed(
        self, numbers: Numbers, rows: RowNumbers, columns: BatchColumns
    ) -> tuple[NDArray[np.bool_] | None, list[memoryview | bytes]]:
        numbers = np.ascontiguousarray(self._files.in_order(numbers))
        if self._stays:
            opened = self._opened
            if opened is None:
                opened = self._open(self._shards, [None] * len(self._shards))
                self._opened = opened if all(map(len, opened.buffers)) else None
        else:
            opened, numbers = self._open_for(numbers)
        wrong = self._kernel.gather(self._schema, opened.handle, numbers, rows, tuple(columns))
        return None if wrong is None else np.frombuffer(wrong, np.bool_), opened.buffers

    def _open_for(self, numbers: Numbers) -> tuple[_Opened, Numbers]:
        """Open the files of these records; return also the records' numbers in them."""
        places = np.searchsorted(self._firsts, numbers, "right") - 1
        own = numbers - self._firsts[places]
        needed, which = np.unique(places, return_inverse=True)
        shards = [self._shards[place] for place in needed.tolist()]
        opened = self._open(shards, [own[which == place] for place in range(len(shards))])
        return opened, np.cumsum([0, *map(len, shards)])[which] + own

    def _open(
        self, shards: Sequence[Shard], numbers: Sequence[NDArray[np.int64] | None]
    ) -> _Opened:
        buffers = [_buffer_of(*each) for each in zip(shards, numbers)]
        handle = self._kernel.files(
            tuple(buffers),
            tuple(np.ascontiguousarray(shard.offsets, np.int64) for shard in shards),
            tuple(
                None if shard.sizes is None else np.ascontiguousarray(shard.sizes, np.int64)
                for shard in shards
            ),
            tuple(shard.checked for shard in shards),
            tuple(map(self._kind_of, shards)),
        )
        return _Opened(handle, [b"" if buffer is None else buffer for buffer in buffers])


def _buffer_of(shard: Shard, numbers: NDArray[np.int64] | None) -> memoryview | None:
    """Bytes of a file, in which these records can be read; None if reading them says what's wrong.

    Args:
        shard: The file.
        numbers: Records that will be read, for a remote file; None for all.
    """
    with contextlib.suppress(NoMapError, RecordError):
        if isinstance(shard.storage, RemoteFile):
            assert numbers is not None
            return shard.storage.fetched_view(*shard.extents(numbers))
        if isinstance(shard.storage, MappedFile):
            return shard.storage.whole_view()
    return None


def column_of(field: Field, has_headers: bool) -> KernelColumn:
    """Make the kernel's column of a field; ``has_headers`` if records begin with an IRHeader."""
    part = _PARTS.get(field.key, CONTENT) if has_headers else NOWHERE
    if field.decoder is not None:
        return KernelColumn(field.key, example.BYTES_LIST, 1, part, is_place=True)
    count = field.count * (1 if field.raw is None else field.raw.itemsize)
    return KernelColumn(field.key, field.kind, count, part, default=default_row(field))


def _kernel_dtype(field: Field) -> np.dtype[Any]:
    """Dtype that the kernel writes for a feature."""
    if field.raw is not None:
        return field.raw
    return np.dtype(np.int64 if field.kind == example.INT64_LIST else "<f4")


def default_row(field: Field) -> bytes | None:
    """Row that the kernel writes for a missing feature; None if that is an error."""
    if field.default is None or field.decoder is not None:
        return None
    with np.errstate(all="ignore"):
        return field.default.astype(_kernel_dtype(field)).tobytes() or None


def takes_default(field: Field) -> bool:
    """True if the kernel can write the field's default exactly, or the field has none."""
    row = default_row(field)
    if row is None or field.default is None:
        return True
    with np.errstate(all="ignore"):
        same = np.frombuffer(row, _kernel_dtype(field)).astype(field.dtype).tobytes()
    return same == field.default.tobytes()


def _convert(
    field: Field, stored: NDArray[Any], column: NDArray[Any], rows: Any
) -> NDArray[np.bool_] | None:
    """Convert stored values into rows of a column; mask of those that don't fit, None if none."""
    if stored.dtype.kind == "b":
        column[rows] = of_raw(field, stored.view(np.uint8))
        return None
    wrong = misfits(field, stored)
    with np.errstate(invalid="ignore"):  # NaN, or a row that wasn't written.
        put(stored, column, rows)
    return None if wrong is None else np.any(wrong.reshape(len(wrong), -1), axis=1)
