"""Rows of a batch from records: ``feature_rows`` and ``image_rows`` make a ``RecordRows``.

The native kernel parses all records of a batch in one call, from the files' own memory
(``native/records.c``). It writes raw arrays, float32 and int64 into the columns, and says where
encoded images lie, which are then decoded into their rows. Fields of other dtypes are converted
here, all rows at once. Between calls, nothing is remembered but which CRCs were checked. Records
that the kernel leaves, because they are damaged or of a kind that it doesn't know, and all of them
without the kernel, are left to be read one by one.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, RecordError
from adapters.generators import RngOf, chosen
from adapters.images import kernel, npy
from adapters.records import RecordFiles, Shard, example, irheader
from adapters.records.mapping import NoMapError, most
from adapters.records.remotefile import RemoteFile
from adapters.records.storage import MappedFile
from adapters.sources import examples
from adapters.sources.decoders import Images
from adapters.sources.examples import Examples, in_header, misfits, named_error, of_raw, put
from adapters.sources.features import Field
from adapters.sources.source import BatchColumns, Leaf, Numbers, RowNumbers

# Parts of a record with an IRHeader, as in ``native/records.h``.
_CONTENT, _LABEL, _OWN_LABEL, _LABELS, _ID, _ID2 = range(6)
_PARTS = {examples.LABEL: _LABEL, examples.ID: _ID, examples.ID2: _ID2}
# Kind of a file whose records the kernel leaves to Python; else as ``Codec.kernel_kind``.
_LEFT = 0
# Files that stay mapped for the next batch. With more, a batch maps those that it needs.
_MOST_FILES = max(1, most() // 16)
# Damaged records to skip in search of one that shows what they are like.
TRIES = 100

Opened = tuple[Any, list[memoryview | bytes], Sequence[Shard]]
"""The kernel's handle of some files, and their bytes, valid as long as they are referenced."""
Pieces = dict[int, NDArray[np.int64]]
"""Where the images of a column lie, int64 ``(rows, 3)``: buffer number, first byte and size."""


class RecordRows:
    """Fills rows of batches. Thread-safe, without a lock; for this process alone.

    Args:
        files: The records.
        fields: Fields of one shape each, and images, by column number. Errors name those that have
            a name.
        parts: What the fields are in a record with an IRHeader; None to leave all records.
        kinds: Each file's ``Codec.kernel_kind``, or ``_LEFT``.
        labels: Fields whose rows mustn't be boxes, see ``irheader.refuse_objects``.
        prefix: Bytes of the first field's value, before those that go into the row.
    """

    def __init__(
        self,
        files: RecordFiles,
        fields: Sequence[Field],
        parts: Sequence[int] | None,
        kinds: Sequence[int],
        labels: Sequence[int],
        prefix: bytes = b"",
    ) -> None:
        self._files, self._shards = files, files.shards
        self._fields = fields
        self._decoders = {at: field.decoder for at, field in enumerate(fields) if field.decoder}
        self._kernel = kernel.load() if parts is not None else None
        if self._kernel is None or parts is None:
            return
        self._kinds, self._labels = kinds, labels
        columns = []
        # Dtypes that the kernel writes for the fields that are converted afterwards.
        self._converted: dict[int, np.dtype[Any]] = {}
        for at, (field, part) in enumerate(zip(fields, parts)):
            size = field.count * (1 if field.raw is None else field.raw.itemsize)
            is_place, before = field.decoder is not None, b"" if at else prefix
            row = _default_row(field)
            columns.append((field.key, field.kind, part, is_place, size, before, row))
            dtype = _kernel_dtype(field)
            if not is_place and (dtype != field.dtype or dtype.kind == "b"):
                self._converted[at] = dtype  # Any byte but 0 is True.
        self._schema = self._kernel.schema(columns)
        self._stays = len(self._shards) <= _MOST_FILES and not files.are_remote
        self._opened: Opened | None = None

    def fill(
        self, numbers: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers = None
    ) -> tuple[dict[int, Exception], NDArray[np.int64]]:
        """Write records into rows; see ``Source.fill``.

        Returns:
            Errors of records by their places among ``numbers``, which don't name the record yet,
            and the places of records that are left to be read one by one.
        """
        self._files.check_open()
        failures: dict[int, Exception] = {}
        if self._kernel is None:
            return failures, numbers.argsort()
        if not self._decoders:
            left = self._parsed(numbers, rows, columns)[0]
            return failures, np.flatnonzero(left) if left is not None else numbers[:0]
        order = numbers.argsort(kind="stable")  # Images are decoded in the order of the files.
        left, buffers, shards, pieces = self._parsed(
            numbers[order], order if rows is None else rows[order], columns
        )
        parsed = order if left is None else order[~left]
        parsed_rows = parsed if rows is None else rows[parsed]
        for at, decoder in self._decoders.items() if len(parsed) else ():
            rng = chosen(rng_of, parsed)
            places = pieces[at][parsed_rows]
            with _reopened(shards, buffers, places[:, 0]) as files:
                failed = decoder.decode_rows(files, rng, parsed_rows, columns[at], places)
            mapped = (each.storage for each in shards if isinstance(each.storage, MappedFile))
            if failed and any(each.is_truncated() for each in mapped):  # Since then.
                return {}, order
            for image, error in failed:
                if self._fields[at].name and isinstance(error, ContentError):
                    error = named_error(self._fields[at], error)
                failures.setdefault(int(parsed[image]), error)
        return failures, order[left] if left is not None else numbers[:0]

    # --- the kernel's parser ---

    def _parsed(
        self, numbers: Numbers, rows: RowNumbers, columns: BatchColumns
    ) -> tuple[NDArray[np.bool_] | None, Sequence[memoryview | bytes], Sequence[Shard], Pieces]:
        """Write the fields of these records, except for images.

        Returns:
            A mask of the records to read one by one, None if there are none; the files' bytes; the
                files; and where the images lie in them.
        """
        assert self._kernel is not None
        own = list(columns)
        pieces = {at: np.empty((len(columns[0]), 3), np.int64) for at in self._decoders}
        for at, piece in pieces.items():
            own[at] = piece
        for at, dtype in self._converted.items():
            own[at] = np.empty(columns[at].shape, dtype)
        (handle, buffers, shards), numbers = self._open(numbers)
        wrong = self._kernel.gather(
            self._schema, handle, np.ascontiguousarray(numbers), rows, tuple(own)
        )
        written: Any = slice(None) if rows is None else rows
        masks: list[Any] = [] if wrong is None else [np.frombuffer(wrong, np.bool_)]
        for at in self._labels:
            masks.append(np.array(list(map(irheader.are_objects, own[at][written])), bool))
        for at in self._converted:
            field, stored = self._fields[at], own[at][written]
            if stored.dtype.kind == "b":
                columns[at][written] = of_raw(field, stored.view(np.uint8))
                continue
            misfit = misfits(field, stored)
            put(stored, columns[at], written)
            masks += [] if misfit is None else [misfit.reshape(len(misfit), -1).any(axis=1)]
        return functools.reduce(np.logical_or, masks) if masks else None, buffers, shards, pieces

    def _open(self, numbers: Numbers) -> tuple[Opened, Numbers]:
        """Open the files of these records; return also the records' numbers in them."""
        if self._opened is not None:
            return self._opened, self._files.in_order(numbers)
        places, own = self._files.places(numbers)
        needed = np.arange(len(self._shards)) if self._stays else np.unique(places)
        which = np.searchsorted(needed, places)
        files, buffers, shards = [], [], [self._shards[place] for place in needed.tolist()]
        for at, shard in enumerate(shards):
            sizes = None if shard.sizes is None else np.ascontiguousarray(shard.sizes, np.int64)
            offsets = np.ascontiguousarray(shard.offsets, np.int64)
            storage, buffer = shard.storage, None
            name = b"", 0  # Of a mapped file: path and inode show whether it was truncated.
            with contextlib.suppress(NoMapError, RecordError):  # Reading them says what's wrong.
                if isinstance(storage, RemoteFile):
                    buffer = storage.fetched_view(*shard.extents(own[which == at]))
                elif isinstance(storage, MappedFile):
                    name = os.fsencode(storage.path), storage.inode
                    buffer = storage.whole_view()
            kind = self._kinds[int(needed[at])]
            files.append((buffer, offsets, sizes, shard.checked, kind, *name))
            buffers.append(b"" if buffer is None else buffer)
        assert self._kernel is not None
        opened: Opened = self._kernel.files(files), buffers, shards
        if self._stays and all(len(buffer) or not len(s) for buffer, s in zip(buffers, shards)):
            self._opened = opened
        return opened, np.cumsum([0, *map(len, shards)])[which] + own


@contextlib.contextmanager
def _reopened(
    shards: Sequence[Shard], buffers: Sequence[memoryview | bytes], numbers: NDArray[np.int64]
) -> Iterator[list[kernel.Encoded]]:
    """Give open files in the place of the maps of these files, if local.

    Decoding takes long enough for a file to be truncated meanwhile.
    """
    given: list[kernel.Encoded] = list(buffers)
    with contextlib.ExitStack() as opened:
        for number in np.unique(numbers).tolist():
            storage = shards[number].storage
            file = None if isinstance(storage, RemoteFile) else storage.reopened()
            if file is not None:
                given[number] = opened.enter_context(file)
        yield given


def _kernel_dtype(field: Field) -> np.dtype[Any]:
    """Dtype that the kernel writes for a feature."""
    if field.raw is not None:
        return field.raw
    return np.dtype(np.int64 if field.kind == example.INT64_LIST else "<f4")


def _default_row(field: Field) -> bytes | None:
    """Row that the kernel writes for a missing feature; None if it has none, or can't exactly."""
    if field.default is None:
        return None
    with np.errstate(all="ignore"):
        stored = field.default.astype(_kernel_dtype(field))
        is_exact = stored.astype(field.dtype).tobytes() == field.default.tobytes()
    return stored.tobytes() or None if is_exact else None


# --- typed features ---


def feature_rows(files: RecordFiles, content: Examples) -> RecordRows:
    """Make the writer of rows with typed features of one shape each, and images."""
    fields: Sequence[Field] = content.fields
    codecs = [shard.codec for shard in files.shards]
    # If only some files have headers, their records are read one by one.
    has_headers = all(codec.envelope.has_header for codec in codecs)
    kinds = [
        codec.kernel_kind if codec.envelope.has_header == has_headers else _LEFT for codec in codecs
    ]

    parts: list[int] | None = None
    with contextlib.suppress(ContentError):  # May be Examples; reading one by one reports it.
        fields = list(map(in_header, fields)) if has_headers else fields
        parts = [_PARTS.get(field.key, _CONTENT) for field in fields]
    labels = []
    if content.moves and has_headers:
        are_labels = [field.key == examples.LABEL and field.part_of is None for field in fields]
        labels = [at for at, field in enumerate(fields) if are_labels[at] and field.shape]
    return RecordRows(files, fields, parts, kinds, labels)


# --- images and labels ---


def image_rows(files: RecordFiles, content: Images, label: Leaf) -> RecordRows:
    """Make the writer of rows with an image and its label, whose shape and dtype is given."""
    shape, dtype = label
    kind = example.FLOAT_LIST if dtype.kind == "f" else example.INT64_LIST
    # One value of an Example is a number, not an array.
    kinds = [
        each.codec.kernel_kind if shape != (1,) or each.codec.envelope.has_header else _LEFT
        for each in files.shards
    ]
    (image, prefix), parts = image_field(files, content), None
    if 0 not in shape and image.leaf is not None:
        parts = [_CONTENT, _LABELS if shape else _OWN_LABEL]
    own = Field("", content.names[1].encode(), kind, dtype, shape)
    labels = [1] if content.moves and shape else []
    return RecordRows(files, [image, own], parts, kinds, labels, prefix)


def image_field(files: RecordFiles, content: Images) -> tuple[Field, bytes]:
    """Make the field of images, and the header of raw ones; without a leaf if shapes aren't fixed.

    Raw arrays are like the first one of a file whose records are all equally long.
    """
    name, dtype = content.names[0].encode(), np.dtype(np.uint8)
    field = Field("", name, example.BYTES_LIST, dtype, varies=True, decoder=content.decoder)
    if content.decoder is not None or not _are_equally_long(shard := files.locate(0)[0]):
        return field, b""
    for number in range(min(len(shard), TRIES)):
        with contextlib.suppress(ContentError, RecordError):  # Damaged; the next one may do.
            encoded, _ = content.split(shard.read(number), shard.format)
            if bytes(encoded[: len(npy.MAGIC)]) != npy.MAGIC:
                continue
            array = npy.read(encoded)
            if not array.size or not array.flags.c_contiguous:
                break
            shape, dtype = array.shape, array.dtype
            raw = replace(field, dtype=dtype, shape=shape, varies=False, raw=dtype)
            return raw, bytes(encoded[: len(encoded) - array.nbytes])
    return field, b""


def _are_equally_long(shard: Shard) -> bool:
    """True if the records of a file take the same number of bytes each."""
    try:
        end = shard.codec.end(shard.storage, int(shard.offsets[-1]))
    except (IndexError, RecordError):
        return False
    return len(np.unique(np.diff(shard.offsets, append=end))) == 1
